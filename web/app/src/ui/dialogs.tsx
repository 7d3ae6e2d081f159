// Dialogs, menus and forms.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/index.ts";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { IconButton, moveFocus, sentenceOf } from "./parts.tsx";

/**
 * A dialog above everything else until it is closed: the browser keeps the focus in it, closes
 * it with Escape, and gives the focus back.
 *
 * With an `anchor` it is a menu beside that; on a phone it comes from below.
 */
export function Dialog(props: {
  title: string;
  isTitleHidden?: boolean;
  anchor?: DOMRect | null;
  class?: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  const { anchor } = props;

  useLayoutEffect(() => {
    const element = dialog.current!;
    element.showModal();
    if (anchor) placeBeside(element, anchor);
    // Close it before it is removed: only a closed dialog gives the focus back.
    return () => element.close();
  }, []);

  return (
    <dialog
      ref={dialog}
      class={`${anchor === undefined ? "card" : "menu"} ${props.class ?? ""}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === dialog.current) props.onClose();
      }}
      onKeyDown={(event) => anchor && moveFocus(event, ".menu-item")}
    >
      <div class="dialog-body">
        <header class={props.isTitleHidden ? "sr" : "dialog-head"}>
          <h2 id={id}>{props.title}</h2>
          {!props.isTitleHidden && (
            <IconButton icon={icons.close} label={words.value.close} onClick={props.onClose} />
          )}
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

function placeBeside(element: HTMLElement, anchor: DOMRect): void {
  if (matchMedia("(max-width: 40rem)").matches) return;
  const { width, height } = element.getBoundingClientRect();
  const left = Math.max(8, Math.min(anchor.left, innerWidth - width - 8));
  const below = anchor.bottom + 4;
  const top = below + height < innerHeight - 8 ? below : Math.max(8, anchor.top - height - 4);
  element.style.left = `${left}px`;
  element.style.top = `${top}px`;
}

export function MenuItem(props: {
  icon: string;
  label: string;
  isDanger?: boolean;
  onClick: () => void;
}) {
  return (
    <button
      type="button"
      class={`menu-item${props.isDanger ? " danger" : ""}`}
      onClick={props.onClick}
    >
      <Icon path={props.icon} />
      <span>{props.label}</span>
    </button>
  );
}

/** A choice of one among a few. */
export function Tabs<Value extends string>(props: {
  label: string;
  value: Value;
  choices: readonly (readonly [Value, string])[];
  onValue: (value: Value) => void;
}) {
  return (
    <fieldset class="tabs">
      <legend class="sr">{props.label}</legend>
      {props.choices.map(([value, label]) => (
        <button
          key={value}
          type="button"
          aria-pressed={value === props.value}
          onClick={() => props.onValue(value)}
        >
          {label}
        </button>
      ))}
    </fieldset>
  );
}

/** A question before something that cannot be undone. */
export function Confirm(props: {
  title: string;
  text: string;
  action: string;
  onDone: () => void;
  onYes: () => Promise<unknown>;
  children?: ComponentChildren;
}) {
  const task = useTask();
  return (
    <Dialog title={props.title} onClose={props.onDone} class="small">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          task.run(async () => {
            await props.onYes();
            props.onDone();
          });
        }}
      >
        <p>{props.text}</p>
        {props.children}
        <Fault text={task.fault} />
        <div class="buttons">
          <button type="button" class="button" onClick={props.onDone}>
            {words.value.cancel}
          </button>
          <button type="submit" class="button danger" disabled={task.isBusy}>
            {props.action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface FieldProps {
  label: string;
  hint?: string;
  value: string;
  onValue: (value: string) => void;
  type?: "text" | "password" | "date";
  name?: string;
  autocomplete?: string;
  autocapitalize?: "none";
  spellcheck?: boolean;
  required?: boolean;
  minLength?: number;
  maxLength?: number;
  autoFocus?: boolean;
  onKeyDown?: (event: KeyboardEvent) => void;
}

export function Field(props: FieldProps) {
  const { label, hint, value, onValue, type = "text", ...rest } = props;
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        value={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onInput={(event) => onValue(event.currentTarget.value)}
        {...rest}
        type={type as "text"}
      />
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

/** A checkbox with a label and a hint. */
export function Check(props: {
  label: string;
  hint?: string;
  isOn: boolean;
  onValue: (isOn: boolean) => void;
}) {
  const id = useId();
  return (
    <div class="choice">
      <label class="check">
        <input
          type="checkbox"
          checked={props.isOn}
          aria-describedby={props.hint && id}
          onChange={(event) => props.onValue(event.currentTarget.checked)}
        />
        <span>{props.label}</span>
      </label>
      {props.hint && (
        <p class="hint" id={id}>
          {props.hint}
        </p>
      )}
    </div>
  );
}

export function Fault({ text }: { text: string | null }) {
  return (
    <p class={text ? "fault" : "fault empty"} role="alert">
      {text}
    </p>
  );
}

/** Runs a task that the user has started, one at a time, and keeps the sentence of its error. */
export function useTask(): {
  isBusy: boolean;
  fault: string | null;
  run: (work: () => Promise<unknown>) => void;
  clear: () => void;
} {
  const isBusy = useSignal(false);
  const fault = useSignal<string | null>(null);
  const run = (work: () => Promise<unknown>): void => {
    if (isBusy.peek()) return;
    isBusy.value = true;
    fault.value = null;
    work()
      .catch((error: unknown) => {
        fault.value = sentenceOf(error);
      })
      .finally(() => {
        isBusy.value = false;
      });
  };
  return {
    isBusy: isBusy.value,
    fault: fault.value,
    run,
    clear: () => {
      fault.value = null;
    },
  };
}
