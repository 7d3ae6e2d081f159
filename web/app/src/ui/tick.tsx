// The tick beside an own message.

import type { Tick as TickName } from "@tidewire/client";
import { words } from "../words/index.ts";

const PATHS: Record<TickName, string> = {
  sending: "M9 3.500a5.500 5.500 0 1 1 0 11a5.500 5.500 0 0 1 0-11z",
  sent: "M3.500 9.500l3.500 3.500L14.500 5.500",
  delivered: "M1 9.500l3.500 3.500L12 5.500M8.500 13l7.500-7.500",
  read: "M1 9.500l3.500 3.500L12 5.500M8.500 13l7.500-7.500",
  failed: "M9 2.500a6.500 6.500 0 1 1 0 13a6.500 6.500 0 0 1 0-13zM9 5.500v4.500M9 12.500h.01",
};

export function Tick({ tick }: { tick: TickName }) {
  const say = words.value;
  const label = {
    sending: say.tickSending,
    sent: say.tickSent,
    delivered: say.tickDelivered,
    read: say.tickRead,
    failed: say.tickFailed,
  }[tick];
  return (
    <svg class={`tick ${tick}`} viewBox="0 0 18 18" role="img" aria-label={label}>
      <title>{label}</title>
      <path d={PATHS[tick]} />
    </svg>
  );
}
