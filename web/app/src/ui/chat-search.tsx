// Finds messages of one chat: by text on this device, or by date on the server.

import type { Live } from "../model/live.ts";
import { chatHref, goBack, showMessage } from "../model/route.ts";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/app.ts";
import { Fault, Field, useTask } from "./dialogs.tsx";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { Panel } from "./panel.tsx";
import { moveFocus, Notice } from "./parts.tsx";
import { useSearch } from "./search.ts";
import { Found } from "./sidebar.tsx";

const FOUND_MAX = 100;

export function ChatSearch({ live, chatId }: { live: Live; chatId: string }) {
  const say = words.value;
  const { query, found, fault } = useSearch(live, {
    chat: live.client.chat(chatId),
    lettersMin: 1,
    limit: FOUND_MAX,
  });

  return (
    <Panel title={say.search} onClose={() => goBack(chatHref(chatId))}>
      <search class="search-box">
        <Icon path={icons.search} />
        <input
          type="search"
          placeholder={say.inThisChat}
          aria-label={say.inThisChat}
          value={query.value}
          onInput={(event) => {
            query.value = event.currentTarget.value;
          }}
        />
      </search>
      <Fault text={fault.value} />
      <GoToDate live={live} chatId={chatId} />
      {found.value && (
        <section aria-live="polite">
          <h3 class="section">
            {found.value.length ? say.found(found.value.length) : say.noResults}
          </h3>
          <ul onKeyDown={(event) => moveFocus(event, "button.found")}>
            {found.value.map((message) => (
              <Found key={message.sequence} live={live} message={message} />
            ))}
          </ul>
        </section>
      )}
    </Panel>
  );
}

function GoToDate({ live, chatId }: { live: Live; chatId: string }) {
  const say = words.value;
  const date = useSignal("");
  const task = useTask();
  return (
    <form
      class="inline-form"
      onSubmit={(event) => {
        event.preventDefault();
        const [year, month, day] = date.value.split("-").map(Number);
        if (!year || !month || !day) return;
        task.run(async () => {
          const message = await live.client.chat(chatId).messageAt(new Date(year, month - 1, day));
          if (!message) throw new Notice(say.noneSince);
          showMessage(chatId, message.sequence);
        });
      }}
    >
      <Field
        label={say.goToDate}
        type="date"
        value={date.value}
        onValue={(value) => {
          date.value = value;
        }}
        required
      />
      <button type="submit" class="button" disabled={task.isBusy}>
        <Icon path={icons.forward} />
        <span class="sr">{say.goToDate}</span>
      </button>
      <Fault text={task.fault} />
    </form>
  );
}
