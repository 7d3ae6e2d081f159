// Components that are loaded when they are first shown.

import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/app.ts";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";

export function lazy<Props extends object>(
  load: () => Promise<ComponentType<Props>>,
): ComponentType<Props> {
  let Loaded: ComponentType<Props> | null = null;
  return function Lazy(props: Props) {
    const isHere = useSignal(Loaded !== null);
    const isMissing = useSignal(false);
    useEffect(() => {
      if (Loaded) return;
      load().then(
        (component) => {
          Loaded = component;
          isHere.value = true;
        },
        (error) => {
          console.warn("tidewire: a part of the page could not be loaded", error);
          isMissing.value = true;
        },
      );
    }, []);
    if (isHere.value && Loaded) return <Loaded {...props} />;
    return isMissing.value ? <Missing /> : null;
  };
}

/** Shown if a part cannot be loaded: no network, or a newer version of the page on the server. */
function Missing() {
  const say = words.value;
  return (
    <div class="connection" role="alert">
      <Icon path={icons.alert} />
      <span>{say.partMissing}</span>
      <button type="button" class="link" onClick={() => location.reload()}>
        {say.reload}
      </button>
    </div>
  );
}
