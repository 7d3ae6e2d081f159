// The whole page, chosen by the state of the login.

import { phase } from "../model/session.ts";
import { words } from "../words/app.ts";
import { Main } from "./main.tsx";
import { Logo, Welcome } from "./welcome.tsx";

export function App() {
  const now = phase.value;
  switch (now.kind) {
    case "opening":
      return (
        <main class="center" aria-busy="true">
          <Logo />
          <p class="soft delayed">{words.value.opening}</p>
        </main>
      );
    case "welcome":
      return <Welcome reason={now.reason} />;
    case "ended":
      return <Ended reason={now.reason} />;
    case "in":
      return <Main live={now.live} />;
  }
}

function Ended({ reason }: { reason: string }) {
  const say = words.value;
  const texts: Record<string, string> = {
    reload_needed: say.reloadNeeded,
    store_failed: say.endedStore,
    duplicate_connection: say.endedDuplicate,
  };
  return (
    <main class="center">
      <Logo />
      <p role="alert">{texts[reason] ?? say.endedOther}</p>
      <button type="button" class="button primary" onClick={() => location.reload()}>
        {say.reload}
      </button>
    </main>
  );
}
