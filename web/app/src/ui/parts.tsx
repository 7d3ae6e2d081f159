// Common parts of all views: buttons, names, faces, and sentences for errors.

import { ClientError, RefusedByServer, ServerUnreachable } from "@tidewire/client";
import { hueOf, initialsOf } from "../model/text.ts";
import { language, words } from "../words/index.ts";
import { Icon } from "./icons.tsx";

const HUES = 8;

/** Coloured initials in place of a picture of a person or a group. */
export function Face({ id, name, isLarge }: { id: string; name: string; isLarge?: boolean }) {
  return (
    <span class={`face hue-${hueOf(id, HUES)}${isLarge ? " large" : ""}`} aria-hidden="true">
      {initialsOf(name)}
    </span>
  );
}

export function IconButton(props: {
  icon: string;
  label: string;
  onClick?: (event: MouseEvent) => void;
  isPressed?: boolean;
  class?: string;
  type?: "button" | "submit";
  disabled?: boolean;
}) {
  return (
    <button
      type={props.type ?? "button"}
      class={`icon-button ${props.class ?? ""}`}
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.isPressed}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <Icon path={props.icon} />
    </button>
  );
}

/** A name that may be written in any direction, without effect on the text around it. */
export function Name({ children }: { children: string }) {
  return <bdi class="name">{children}</bdi>;
}

/** The element with the focus, in the page or shadow root that the given element is in. */
export function focusBeside(element: Element | null): Element | null {
  const root = element?.getRootNode() as Document | ShadowRoot | undefined;
  return root?.activeElement ?? null;
}

/** Move the focus among these items with the up, down, Home and End keys. */
export function moveFocus(event: KeyboardEvent, items: string): void {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const ends = event.key === "Home" || event.key === "End";
  if (!step && !ends) return;
  const place = event.currentTarget as HTMLElement;
  const all = [...place.querySelectorAll<HTMLElement>(items)];
  const at = all.indexOf(focusBeside(place) as HTMLElement);
  const next = ends ? (event.key === "Home" ? 0 : all.length - 1) : at + step;
  const target = all[Math.max(0, Math.min(all.length - 1, next))];
  if (!target) return;
  event.preventDefault();
  target.focus();
}

/** An error whose sentence is shown as it is. */
export class Notice extends Error {}

/** The server's sentence, without the code and the name of the field. */
function plain({ message, code }: RefusedByServer): string {
  const text = message.replace(` (${code})`, "").replace(/^\w+: /, "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A sentence for people that says what went wrong. */
export function sentenceOf(error: unknown): string {
  const say = words.value;
  if (error instanceof ServerUnreachable) return say.unreachable;
  if (error instanceof RefusedByServer) {
    const known = say.faults[error.code];
    // The server's sentence about a field tells more than our text for the code, but is in English.
    const isEnglish = language.value === "en";
    if (known && !(isEnglish && error.code === "VALIDATION_ERROR")) return known;
    return isEnglish ? plain(error) : `${say.fault} (${error.code})`;
  }
  if (error instanceof ClientError || error instanceof Notice) return error.message;
  console.error(error);
  return say.fault;
}
