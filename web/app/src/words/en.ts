// The texts of a conversation in English, for the web chat and the widget. The other catalogues
// have the same names.

const plural = new Intl.PluralRules("en");
const some = (count: number, one: string, other: string): string =>
  `${count} ${plural.select(count) === "one" ? one : other}`;

export const en = {
  // Coming in.
  opening: "Opening…",

  // States.
  offline: "Offline. What you write waits here and goes out by itself.",
  tryNow: "Try now",

  // The list.
  you: "You",
  unknownPerson: "Unknown person",
  unnamedChat: "Chat",

  // A conversation.
  messagesOf: (name: string) => `Messages with ${name}`,
  typing: (names: readonly string[]) =>
    names.length === 1
      ? `${names[0]} is typing…`
      : names.length === 2
        ? `${names[0]} and ${names[1]} are typing…`
        : "Several people are typing…",
  newMessages: "New",
  today: "Today",
  yesterday: "Yesterday",
  goToDate: "Go to a date",
  beginning: "This is the beginning of the chat",
  stuck: "Older messages cannot be loaded right now.",
  toLatest: "To the newest message",
  edited: "edited",
  editedHint: "This message was edited",
  deleted: "This message was deleted",
  damaged: "This message was damaged on the server and cannot be shown",
  gone: "Only this device still has this message",
  failed: "Not sent",
  editFailed: "Your edit was not saved",
  changeFailed: "Your change was not saved",
  saveMine: "Save mine",
  fateUnknown: "This may or may not have been sent",
  retry: "Send again",
  drop: "Discard",
  tickSending: "Waiting to be sent",
  tickSent: "The server has it",
  tickDelivered: "Delivered to all",
  tickRead: "Read by all",
  tickFailed: "Not sent",
  quoteMissing: "This message is no longer there",
  goToQuote: "Go to the quoted message",
  replyTo: (name: string) => `Reply to ${name}`,
  replyToSelf: "Reply to yourself",
  messageBy: (name: string, time: string) => `${name}, ${time}`,
  received: (name: string, text: string) => `${name}: ${text}`,
  notMember: "You are no longer in this chat.",

  // Actions on a message.
  actions: "Actions",
  react: "React",
  moreReactions: "More emoji",
  reply: "Reply",
  edit: "Edit",
  copy: "Copy text",
  delete: "Delete",
  deleteTitle: "Delete this message?",
  deleteText: "It is deleted for everyone, and this cannot be undone.",
  reactionBy: (emoji: string, names: string) => `${emoji} ${names}`,
  reactionToggle: (emoji: string, count: number, isOwn: boolean) =>
    `${emoji}, ${some(count, "person", "people")}${isOwn ? ", you too" : ""}`,
  andMore: (count: number) => `and ${count} more`,

  // Writing.
  write: "Write a message",
  send: "Send",
  save: "Save",
  cancel: "Cancel",
  close: "Close",
  editing: "Editing",
  tooLong: (bytes: number) => `${bytes} bytes too long`,
  mentionList: "People to mention",
  everybody: "all",
  outboxFull:
    "Too many messages are waiting to be sent. Try again when some of them have gone out.",

  // Faults.
  unreachable: "The server does not answer. Try again in a moment.",
  fault: "That did not work.",
  faults: {
    INVALID_CREDENTIALS: "The user name or the password is wrong.",
    CONFLICT: "That name is taken, or this has been done already.",
    FORBIDDEN: "That is not allowed.",
    RATE_LIMITED: "Too many tries. Wait a moment.",
    USER_NOT_FOUND: "There is no such person.",
    NOT_A_MEMBER: "You are no longer in this chat.",
    CHAT_FULL: "The group is full.",
    UNAUTHORIZED: "Log in again.",
    SERVICE_UNAVAILABLE: "The server cannot do this now. Try again in a moment.",
    VALIDATION_ERROR: "Something in the form is not right.",
    EDIT_CONFLICT: "This message was changed on another device first.",
    MESSAGE_DELETED: "The message was deleted.",
    TOO_MANY_EDITS: "A message can only be edited so many times.",
    MESSAGE_TOO_LARGE: "The message is too long.",
  } as Record<string, string>,
};

export type Words = typeof en;
