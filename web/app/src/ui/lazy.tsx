// A part of the page that is loaded when it is first shown.

import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { useSignal } from "../model/signals.ts";

export function lazy<Props extends object>(
  load: () => Promise<ComponentType<Props>>,
): ComponentType<Props> {
  let Loaded: ComponentType<Props> | null = null;
  return function Lazy(props: Props) {
    const isHere = useSignal(Loaded !== null);
    useEffect(() => {
      if (Loaded) return;
      void load().then((component) => {
        Loaded = component;
        isHere.value = true;
      });
    }, []);
    return isHere.value && Loaded ? <Loaded {...props} /> : null;
  };
}
