// What a conversation says, in German.

import type { Words } from "./en.ts";

const plural = new Intl.PluralRules("de");
const some = (count: number, one: string, other: string): string =>
  `${count} ${plural.select(count) === "one" ? one : other}`;

export const de: Words = {
  opening: "Wird geöffnet …",
  offline: "Offline. Was du schreibst, wird später von selbst gesendet.",
  tryNow: "Jetzt versuchen",
  you: "Du",
  unknownPerson: "Unbekannte Person",
  unnamedChat: "Chat",
  messagesOf: (name) => `Nachrichten mit ${name}`,
  typing: (names) =>
    names.length === 1
      ? `${names[0]} schreibt …`
      : names.length === 2
        ? `${names[0]} und ${names[1]} schreiben …`
        : "Mehrere schreiben …",
  newMessages: "Neu",
  today: "Heute",
  yesterday: "Gestern",
  goToDate: "Zu einem Datum springen",
  beginning: "Hier beginnt der Chat",
  stuck: "Ältere Nachrichten lassen sich gerade nicht laden.",
  toLatest: "Zur neuesten Nachricht",
  edited: "bearbeitet",
  editedHint: "Diese Nachricht wurde bearbeitet",
  deleted: "Diese Nachricht wurde gelöscht",
  damaged: "Diese Nachricht wurde auf dem Server beschädigt und lässt sich nicht anzeigen",
  gone: "Nur dieses Gerät hat diese Nachricht noch",
  failed: "Nicht gesendet",
  fateUnknown: "Ob sie gesendet wurde, ist nicht bekannt",
  retry: "Erneut senden",
  drop: "Verwerfen",
  tickSending: "Wird noch gesendet",
  tickSent: "Auf dem Server gespeichert",
  tickDelivered: "Allen zugestellt",
  tickRead: "Von allen gelesen",
  tickFailed: "Nicht gesendet",
  quoteMissing: "Diese Nachricht gibt es nicht mehr",
  goToQuote: "Zur zitierten Nachricht springen",
  replyTo: (name) => `Antwort an ${name}`,
  replyToSelf: "Antwort an dich selbst",
  messageBy: (name, time) => `${name}, ${time}`,
  received: (name, text) => `${name}: ${text}`,
  notMember: "Du bist nicht mehr in diesem Chat.",
  actions: "Aktionen",
  react: "Reagieren",
  moreReactions: "Mehr Emojis",
  reply: "Antworten",
  edit: "Bearbeiten",
  copy: "Text kopieren",
  delete: "Löschen",
  deleteTitle: "Diese Nachricht löschen?",
  deleteText: "Sie wird für alle gelöscht. Das lässt sich nicht rückgängig machen.",
  reactionBy: (emoji, names) => `${emoji} ${names}`,
  reactionToggle: (emoji, count, isOwn) =>
    `${emoji}, ${some(count, "Person", "Personen")}${isOwn ? ", auch du" : ""}`,
  andMore: (count) => `und ${count} weitere`,
  write: "Nachricht schreiben",
  send: "Senden",
  save: "Speichern",
  cancel: "Abbrechen",
  close: "Schließen",
  editing: "Nachricht bearbeiten",
  tooLong: (bytes) => `${bytes} Bytes zu lang`,
  mentionList: "Personen zum Erwähnen",
  everybody: "alle",
  outboxFull:
    "Zu viele Nachrichten warten auf das Senden. Versuch es wieder, wenn einige gesendet sind.",
  unreachable: "Der Server antwortet nicht. Versuch es gleich noch einmal.",
  fault: "Das hat nicht geklappt.",
  faults: {
    INVALID_CREDENTIALS: "Der Benutzername oder das Passwort ist falsch.",
    CONFLICT: "Dieser Name ist vergeben, oder das ist schon geschehen.",
    FORBIDDEN: "Das ist nicht erlaubt.",
    RATE_LIMITED: "Zu viele Versuche. Warte einen Augenblick.",
    USER_NOT_FOUND: "Diese Person gibt es nicht.",
    NOT_A_MEMBER: "Du bist nicht mehr in diesem Chat.",
    CHAT_FULL: "Die Gruppe ist voll.",
    UNAUTHORIZED: "Melde dich neu an.",
    SERVICE_UNAVAILABLE: "Der Server kann das gerade nicht. Versuch es gleich noch einmal.",
    VALIDATION_ERROR: "Etwas im Formular stimmt nicht. Prüfe die Angaben.",
    MESSAGE_TOO_LARGE: "Die Nachricht ist zu lang.",
  },
};
