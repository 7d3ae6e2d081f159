// What all screens are made of: buttons, names, faces, and what went wrong.

import { ClientError, RefusedByServer, ServerUnreachable } from "@tidewire/client";
import { hueOf, initialsOf } from "../model/text.ts";
import { language, words } from "../words/index.ts";
import { Icon } from "./icons.tsx";

const HUES = 8;

/** What stands for a person's or a group's picture. */
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

/** A name that may be written in any direction, and disturbs no text around it. */
export function Name({ children }: { children: string }) {
  return <bdi class="name">{children}</bdi>;
}

/** What has the focus, in the page or the shadow root that an element is in. */
export function focusBeside(element: Element | null): Element | null {
  const root = element?.getRootNode() as Document | ShadowRoot | undefined;
  return root?.activeElement ?? null;
}

/** Up and down go from one to the next of these. */
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

/** A sentence that is shown as it is. */
export class Notice extends Error {}

/** What the server says, without the names that programs use. */
function plain({ message, code }: RefusedByServer): string {
  const text = message.replace(` (${code})`, "").replace(/^\w+: /, "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** What went wrong, for people. */
export function sentenceOf(error: unknown): string {
  const say = words.value;
  if (error instanceof ServerUnreachable) return say.unreachable;
  if (error instanceof RefusedByServer) {
    const known = say.faults[error.code];
    // What the server says of a field is more than what a code says. It says it in English.
    const isEnglish = language.value === "en";
    if (known && !(isEnglish && error.code === "VALIDATION_ERROR")) return known;
    return isEnglish ? plain(error) : `${say.fault} (${error.code})`;
  }
  if (error instanceof ClientError || error instanceof Notice) return error.message;
  console.error(error);
  return say.fault;
}
