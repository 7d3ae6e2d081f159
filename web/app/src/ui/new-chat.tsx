// A new chat: with one person, or a group.

import { type Person, RefusedByServer } from "@tidewire/client";
import type { Live } from "../model/live.ts";
import { chatHref, go } from "../model/route.ts";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/app.ts";
import { Dialog, Fault, Field, Tabs, useTask } from "./dialogs.tsx";
import * as icons from "./icon-paths.ts";
import { Face, IconButton, Name, Notice } from "./parts.tsx";

export function NewChat({ live, onClose }: { live: Live; onClose: () => void }) {
  const say = words.value;
  const isGroup = useSignal(false);
  return (
    <Dialog title={say.newChat} onClose={onClose}>
      <Tabs
        label={say.newChat}
        value={isGroup.value ? "group" : "direct"}
        choices={[
          ["direct", say.direct],
          ["group", say.group],
        ]}
        onValue={(value) => {
          isGroup.value = value === "group";
        }}
      />
      {isGroup.value ? <GroupForm live={live} /> : <DirectForm live={live} />}
    </Dialog>
  );
}

/** The dialog is in the address: the chat replaces it there, so that "back" does not open it. */
function open(chatId: string): void {
  location.replace(chatHref(chatId));
  go(chatHref(chatId));
}

function DirectForm({ live }: { live: Live }) {
  const say = words.value;
  const username = useSignal("");
  const task = useTask();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        task.run(async () => {
          const person = await find(live, username.value.trim());
          open((await live.client.direct(person.username!)).chatId);
        });
      }}
    >
      <Field
        label={say.userName}
        value={username.value}
        onValue={(value) => {
          username.value = value;
          task.clear();
        }}
        autocapitalize="none"
        autocomplete="off"
        spellcheck={false}
        required
        autoFocus
      />
      <Fault text={task.fault} />
      <button type="submit" class="button primary wide" disabled={task.isBusy}>
        {say.startChat}
      </button>
    </form>
  );
}

function GroupForm({ live }: { live: Live }) {
  const say = words.value;
  const name = useSignal("");
  const username = useSignal("");
  const people = useSignal<readonly Person[]>([]);
  const adding = useTask();
  const making = useTask();

  const add = () =>
    adding.run(async () => {
      const person = await find(live, username.value.trim());
      if (!people.value.some((one) => one.userId === person.userId)) {
        people.value = [...people.value, person];
      }
      username.value = "";
    });

  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        making.run(async () => {
          if (username.value.trim()) return add();
          if (!people.value.length) throw new Notice(say.needPerson);
          const names = people.value.map((one) => one.username!);
          open((await live.client.group(name.value.trim(), ...names)).chatId);
        });
      }}
    >
      <Field
        label={say.groupName}
        value={name.value}
        onValue={(value) => {
          name.value = value;
        }}
        required
        maxLength={100}
        autoFocus
      />
      <div class="inline-form">
        <Field
          label={say.addPerson}
          value={username.value}
          onValue={(value) => {
            username.value = value;
            adding.clear();
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || !username.value.trim()) return;
            event.preventDefault();
            add();
          }}
          autocapitalize="none"
          autocomplete="off"
          spellcheck={false}
        />
        <button
          type="button"
          class="button"
          onClick={add}
          disabled={adding.isBusy || !username.value.trim()}
        >
          {say.add}
        </button>
      </div>
      <Fault text={adding.fault ?? making.fault} />
      <ul class="people">
        {people.value.map((person) => (
          <li key={person.userId}>
            <Face id={person.userId} name={person.displayName} />
            <Name>{person.displayName}</Name>
            <IconButton
              icon={icons.close}
              label={say.removePerson(person.displayName)}
              onClick={() => {
                people.value = people.value.filter((one) => one !== person);
              }}
            />
          </li>
        ))}
      </ul>
      <button type="submit" class="button primary wide" disabled={making.isBusy}>
        {say.makeGroup}
      </button>
    </form>
  );
}

/** A person by user name. @throws Notice */
export async function find(live: Live, username: string): Promise<Person> {
  let person: Person;
  try {
    person = await live.client.find(username);
  } catch (error) {
    if (error instanceof RefusedByServer && error.code === "USER_NOT_FOUND") {
      throw new Notice(words.value.notFound(username));
    }
    throw error;
  }
  if (person.userId === live.client.userId) throw new Notice(words.value.isYou);
  return { username, ...person };
}
