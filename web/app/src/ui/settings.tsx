// Settings: the account, the look of the page, logins, blocked users.

import { type Account, type Person, RefusedByServer, type Session } from "@tidewire/client";
import { useEffect } from "preact/hooks";
import { forgetDrafts } from "../model/drafts.ts";
import type { Live } from "../model/live.ts";
import { askToNotify, canNotify } from "../model/notify.ts";
import { deleteAccount, logOut } from "../model/session.ts";
import {
  changeLanguage,
  chosenLanguage,
  isNotifying,
  type Theme,
  theme,
} from "../model/settings.ts";
import { useSignal } from "../model/signals.ts";
import { LANGUAGES, type Language, whenOf, words } from "../words/app.ts";
import { Check, Confirm, Dialog, Fault, Field, Tabs, useTask } from "./dialogs.tsx";
import { Face, Name, Notice } from "./parts.tsx";

export function Settings({ live, onClose }: { live: Live; onClose: () => void }) {
  const say = words.value;
  const isLeaving = useSignal(false);
  const isDeleting = useSignal(false);
  return (
    <Dialog title={say.settings} onClose={onClose} class="tall">
      <AccountSection live={live} />
      <Appearance />
      <Sessions live={live} />
      <Password live={live} />
      <Blocked live={live} />
      <section class="setting">
        <div class="buttons start">
          <button
            type="button"
            class="button"
            onClick={() => {
              isLeaving.value = true;
            }}
          >
            {say.logOut}
          </button>
          <button
            type="button"
            class="button danger quiet"
            onClick={() => {
              isDeleting.value = true;
            }}
          >
            {say.deleteAccount}
          </button>
        </div>
      </section>
      {isLeaving.value && (
        <LogOut
          live={live}
          onDone={() => {
            isLeaving.value = false;
          }}
        />
      )}
      {isDeleting.value && (
        <DeleteAccount
          live={live}
          onDone={() => {
            isDeleting.value = false;
          }}
        />
      )}
    </Dialog>
  );
}

function AccountSection({ live }: { live: Live }) {
  const say = words.value;
  const account = useSignal<Account | null>(null);
  const name = useSignal("");
  const task = useTask();
  useEffect(() => {
    task.run(async () => {
      account.value = await live.client.me();
      name.value = account.value.displayName;
    });
  }, []);
  const shown = account.value;
  return (
    <section class="setting">
      <h3>{say.account}</h3>
      {shown && (
        <div class="me">
          <Face id={shown.userId} name={shown.displayName} isLarge />
          <div>
            <Name>{shown.displayName}</Name>
            <p class="soft">
              <bdi>{shown.username}</bdi>
            </p>
          </div>
        </div>
      )}
      <form
        class="inline-form"
        onSubmit={(event) => {
          event.preventDefault();
          task.run(async () => {
            account.value = await live.client.setDisplayName(name.value.trim());
          });
        }}
      >
        <Field
          label={say.displayName}
          value={name.value}
          onValue={(value) => {
            name.value = value;
          }}
          required
          maxLength={64}
          autocomplete="name"
        />
        <button
          type="submit"
          class="button"
          disabled={task.isBusy || !shown || name.value.trim() === shown.displayName}
        >
          {say.save}
        </button>
      </form>
      <Fault text={task.fault} />
    </section>
  );
}

function Appearance() {
  const say = words.value;
  const isDenied = useSignal(false);
  const themes: [Theme, string][] = [
    ["auto", say.themeAuto],
    ["light", say.themeLight],
    ["dark", say.themeDark],
  ];
  return (
    <section class="setting">
      <h3>{say.appearance}</h3>
      <Tabs
        label={say.theme}
        value={theme.value}
        choices={themes}
        onValue={(value) => {
          theme.value = value;
        }}
      />
      <div class="field">
        <label for="language">{say.language}</label>
        <select
          id="language"
          value={chosenLanguage.value ?? ""}
          onChange={(event) =>
            void changeLanguage((event.currentTarget.value || null) as Language | null)
          }
        >
          <option value="">{say.themeAuto}</option>
          {Object.entries(LANGUAGES).map(([code, label]) => (
            <option key={code} value={code} lang={code}>
              {label}
            </option>
          ))}
        </select>
      </div>
      <Check
        label={say.notifyOn}
        isOn={isNotifying.value && canNotify()}
        onValue={async (wanted) => {
          isDenied.value = false;
          isNotifying.value = wanted && (canNotify() || (await askToNotify()));
          isDenied.value = wanted && !isNotifying.value;
        }}
      />
      <Fault text={isDenied.value ? say.notifyDenied : null} />
    </section>
  );
}

function Sessions({ live }: { live: Live }) {
  const say = words.value;
  const sessions = useSignal<readonly Session[]>([]);
  const task = useTask();
  const load = async () => {
    sessions.value = await live.client.sessions();
  };
  useEffect(() => task.run(load), []);
  const others = sessions.value.filter((one) => !one.isCurrent);
  return (
    <section class="setting">
      <h3>{say.sessions}</h3>
      <ul class="sessions">
        {sessions.value.map((session) => (
          <li key={session.sessionId}>
            <div>
              <b>{session.isCurrent ? say.thisSession : clientOf(session)}</b>
              <p class="soft">
                {[session.address, say.lastActive(whenOf(session.lastActiveAt))]
                  .filter(Boolean)
                  .join(" · ")}
              </p>
            </div>
            {!session.isCurrent && (
              <button
                type="button"
                class="button"
                disabled={task.isBusy}
                onClick={() =>
                  task.run(async () => {
                    await live.client.endSession(session.sessionId);
                    await load();
                  })
                }
              >
                {say.endSession}
              </button>
            )}
          </li>
        ))}
      </ul>
      {others.length > 1 && (
        <button
          type="button"
          class="button"
          disabled={task.isBusy}
          onClick={() =>
            task.run(async () => {
              await live.client.endOtherSessions();
              await load();
            })
          }
        >
          {say.endOthers}
        </button>
      )}
      <Fault text={task.fault} />
    </section>
  );
}

/** A short name for the program of a login. */
function clientOf(session: Session): string {
  const told = session.label ?? session.client ?? session.kind;
  const browser = /(Firefox|Edg|Chrome|Safari)\//.exec(told)?.[1];
  const system = /(Windows|Mac OS X|Android|iPhone|iPad|Linux)/.exec(told)?.[1];
  return browser ? [browser.replace("Edg", "Edge"), system].filter(Boolean).join(" · ") : told;
}

function Password({ live }: { live: Live }) {
  const say = words.value;
  const current = useSignal("");
  const next = useSignal("");
  const done = useSignal<string | null>(null);
  const task = useTask();
  return (
    <section class="setting">
      <h3>{say.changePassword}</h3>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          done.value = null;
          task.run(async () => {
            const changing = live.client.changePassword(current.value, next.value);
            const count = await byPassword(changing);
            current.value = next.value = "";
            done.value = say.passwordChanged(count);
          });
        }}
      >
        <input
          type="text"
          class="sr"
          autocomplete="username"
          value={live.client.username ?? ""}
          aria-hidden="true"
          tabIndex={-1}
          readOnly
        />
        <Field
          label={say.currentPassword}
          type="password"
          autocomplete="current-password"
          value={current.value}
          onValue={(value) => {
            current.value = value;
          }}
          required
        />
        <Field
          label={say.newPassword}
          hint={say.passwordHint}
          type="password"
          autocomplete="new-password"
          value={next.value}
          onValue={(value) => {
            next.value = value;
          }}
          minLength={8}
          required
        />
        <Fault text={task.fault} />
        <p role="status">{done.value}</p>
        <button
          type="submit"
          class="button"
          disabled={task.isBusy || !current.value || !next.value}
        >
          {say.changePassword}
        </button>
      </form>
    </section>
  );
}

function Blocked({ live }: { live: Live }) {
  const say = words.value;
  const people = useSignal<readonly Person[]>([]);
  const task = useTask();
  const load = async () => {
    people.value = await live.client.blocked();
  };
  useEffect(() => task.run(load), []);
  return (
    <section class="setting">
      <h3>{say.blockedPeople}</h3>
      {people.value.length ? (
        <ul class="people">
          {people.value.map((person) => (
            <li key={person.userId}>
              <Face id={person.userId} name={person.displayName} />
              <Name>{person.displayName}</Name>
              <button
                type="button"
                class="button"
                disabled={task.isBusy}
                onClick={() =>
                  task.run(async () => {
                    await live.client.unblock(person.userId);
                    await load();
                  })
                }
              >
                {say.unblock}
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <p class="soft">{say.noneBlocked}</p>
      )}
      <Fault text={task.fault} />
    </section>
  );
}

function LogOut({ live, onDone }: { live: Live; onDone: () => void }) {
  const say = words.value;
  const unsent = live.client.outbox().length;
  return (
    <Confirm
      title={say.logOutTitle}
      text={say.logOutText}
      action={say.logOut}
      onDone={onDone}
      onYes={async () => {
        forgetDrafts();
        await logOut(live);
      }}
    >
      {unsent > 0 && <p class="fault">{say.logOutUnsent(unsent)}</p>}
    </Confirm>
  );
}

function DeleteAccount({ live, onDone }: { live: Live; onDone: () => void }) {
  const say = words.value;
  const password = useSignal("");
  const isErasing = useSignal(false);
  return (
    <Confirm
      title={say.deleteAccountTitle}
      text={say.deleteAccountText}
      action={say.deleteAccount}
      onDone={onDone}
      onYes={async () => {
        await byPassword(deleteAccount(live, password.value, isErasing.value));
        forgetDrafts();
      }}
    >
      <Check
        label={say.eraseMessages}
        hint={say.eraseMessagesHint}
        isOn={isErasing.value}
        onValue={(isOn) => {
          isErasing.value = isOn;
        }}
      />
      <Field
        label={say.password}
        type="password"
        autocomplete="current-password"
        value={password.value}
        onValue={(value) => {
          password.value = value;
        }}
        required
      />
    </Confirm>
  );
}

/** For requests that ask for the password again: INVALID_CREDENTIALS means that the password, not
 * the user name, is wrong. @throws Notice */
async function byPassword<Result>(work: Promise<Result>): Promise<Result> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof RefusedByServer && error.code === "INVALID_CREDENTIALS") {
      throw new Notice(words.value.wrongPassword);
    }
    throw error;
  }
}
