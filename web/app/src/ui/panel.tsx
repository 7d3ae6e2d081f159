// A panel beside the conversation; on a small screen it covers the conversation.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { words } from "../words/app.ts";
import * as icons from "./icon-paths.ts";
import { IconButton } from "./parts.tsx";

export function Panel(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const panel = useRef<HTMLElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const first = panel.current?.querySelector<HTMLElement>("input, .bar button");
    first?.focus({ preventScroll: true });
    return () => before?.focus({ preventScroll: true });
  }, []);
  return (
    <aside
      ref={panel}
      class="panel"
      aria-labelledby={id}
      onKeyDown={(event) => {
        if (event.key === "Escape" && !(event.target as Element).closest("dialog")) props.onClose();
      }}
    >
      <header class="bar">
        <h2 id={id}>{props.title}</h2>
        <IconButton icon={icons.close} label={words.value.close} onClick={props.onClose} />
      </header>
      <div class="panel-body">{props.children}</div>
    </aside>
  );
}
