// The menu of a message: react, answer, edit, copy, delete.

import type { Message } from "@tidewire/client";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/index.ts";
import { Confirm, Dialog, MenuItem } from "./dialogs.tsx";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";

const QUICK = ["👍", "❤️", "😂", "😮", "😢", "🙏"];
const MORE = [
  ..."😀😅😊😍🤔😴😎🥳😭😡👋👏🙌💪🤝👀🔥✨🎉🎂🍀🌈☀️🌊⭐✅❌❓❗💯💡📌☕🍕🍻🚀🐢🐳",
].filter((letter) => letter !== "\ufe0f");

export function MessageMenu(props: {
  message: Message;
  anchor: DOMRect;
  mayDelete: boolean;
  onReply: () => void;
  onEdit: () => void;
  onDelete: () => void;
  onClose: () => void;
}) {
  const { message, anchor } = props;
  const say = words.value;
  const isMore = useSignal(false);
  const closed = (act: () => void) => () => {
    props.onClose();
    act();
  };
  const react = (emoji: string) =>
    closed(() => {
      const own = message.reactions.some((one) => one.emoji === emoji && one.isOwn);
      void (own ? message.unreact(emoji) : message.react(emoji));
    });
  return (
    <Dialog title={say.actions} isTitleHidden anchor={anchor} onClose={props.onClose}>
      <fieldset class="emoji">
        <legend class="sr">{say.react}</legend>
        {(isMore.value ? [...QUICK, ...MORE] : QUICK).map((emoji) => (
          <button key={emoji} type="button" onClick={react(emoji)}>
            {emoji}
          </button>
        ))}
        {!isMore.value && (
          <button
            type="button"
            aria-label={say.moreReactions}
            title={say.moreReactions}
            onClick={() => {
              isMore.value = true;
            }}
          >
            <Icon path={icons.plus} />
          </button>
        )}
      </fieldset>
      <div class="menu-items">
        <MenuItem icon={icons.reply} label={say.reply} onClick={closed(props.onReply)} />
        {message.isOwn && (
          <MenuItem icon={icons.edit} label={say.edit} onClick={closed(props.onEdit)} />
        )}
        <MenuItem
          icon={icons.copy}
          label={say.copy}
          // If the browser forbids copying, it is up to the browser to say so.
          onClick={closed(() => {
            navigator.clipboard?.writeText(message.text).catch(() => undefined);
          })}
        />
        {props.mayDelete && (
          <MenuItem
            icon={icons.trash}
            label={say.delete}
            isDanger
            onClick={closed(props.onDelete)}
          />
        )}
      </div>
    </Dialog>
  );
}

export function DeleteMessage({ message, onDone }: { message: Message; onDone: () => void }) {
  const say = words.value;
  return (
    <Confirm
      title={say.deleteTitle}
      text={say.deleteText}
      action={say.delete}
      onDone={onDone}
      onYes={() => message.delete()}
    />
  );
}
