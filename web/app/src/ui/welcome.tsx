// Signing up and logging in.

import { RefusedByServer } from "@tidewire/client";
import { logIn, server, useToken } from "../model/session.ts";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/app.ts";
import { Fault, Field, Tabs, useTask } from "./dialogs.tsx";
import { Notice } from "./parts.tsx";

type Way = "login" | "signup" | "token";

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 64 64" role="img" aria-label="Tidewire">
      <rect width="64" height="64" rx="15" class="logo-ground" />
      <path class="logo-tick" d="M19 22l5.500 5.500L36 16M31 24l3.500 3.500L46 16" />
      <path class="logo-wave" d="M10 35c5.500-7 11-7 16.500 0s11 7 16.500 0 7.500-6.200 11-4.400" />
      <path
        class="logo-wave far"
        d="M10 49c5.500-7 11-7 16.500 0s11 7 16.500 0 7.500-6.200 11-4.400"
      />
    </svg>
  );
}

export function Welcome({ reason }: { reason: string | null }) {
  const say = words.value;
  const info = server.value;
  const isFirst = info?.isWithoutAccounts ?? false;
  const chosen = useSignal<Way | null>(null);
  const way = chosen.value ?? (isFirst ? "signup" : "login");
  const ways: Way[] =
    info?.registration === "closed" ? ["login", "token"] : ["login", "signup", "token"];
  const notices: Record<string, string> = {
    session_revoked: say.endedRevoked,
    account_deleted: say.accountDeleted,
    account_erased: say.accountErased,
  };
  const labels = { login: say.logIn, signup: say.signUp, token: say.withToken };

  return (
    <main class="welcome">
      <div class="welcome-head">
        <Logo />
        <h1>Tidewire</h1>
        <p class="soft">{say.tagline}</p>
      </div>
      <section class="welcome-card">
        {reason && (
          <p class="notice" role="status">
            {notices[reason] ?? say.endedLogin}
          </p>
        )}
        {isFirst && way === "signup" && (
          <div class="first-start">
            <h2>{say.firstTitle}</h2>
            <p>{say.firstText}</p>
          </div>
        )}
        <Tabs
          label={say.account}
          value={way}
          choices={ways.map((one) => [one, labels[one]])}
          onValue={(value) => {
            chosen.value = value;
          }}
        />
        {way === "token" ? <TokenForm /> : <AccountForm key={way} isNew={way === "signup"} />}
        {info?.registration === "closed" && <p class="hint">{say.closedRegistration}</p>}
      </section>
    </main>
  );
}

function AccountForm({ isNew }: { isNew: boolean }) {
  const say = words.value;
  const username = useSignal("");
  const displayName = useSignal("");
  const password = useSignal("");
  const invite = useSignal("");
  const task = useTask();
  const isInvited = isNew && server.value?.registration === "invite";
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        task.run(async () => {
          try {
            await logIn({
              username: username.value.trim(),
              password: password.value,
              register: isNew ? "always" : "never",
              displayName: displayName.value.trim() || undefined,
              invite: invite.value.trim() || undefined,
            });
          } catch (error) {
            const isTaken = error instanceof RefusedByServer && error.code === "CONFLICT";
            throw isTaken ? new Notice(say.nameTaken) : error;
          }
        });
      }}
    >
      <Field
        label={say.userName}
        hint={isNew ? say.userNameHint : undefined}
        value={username.value}
        onValue={(value) => {
          username.value = value;
        }}
        name="username"
        autocomplete="username"
        autocapitalize="none"
        spellcheck={false}
        required
        maxLength={64}
        autoFocus
      />
      {isNew && (
        <Field
          label={say.displayName}
          value={displayName.value}
          onValue={(value) => {
            displayName.value = value;
          }}
          name="name"
          autocomplete="name"
          maxLength={64}
        />
      )}
      <Field
        label={say.password}
        hint={isNew ? say.passwordHint : undefined}
        value={password.value}
        onValue={(value) => {
          password.value = value;
        }}
        type="password"
        name="password"
        autocomplete={isNew ? "new-password" : "current-password"}
        required
        minLength={isNew ? 8 : 1}
      />
      {isInvited && (
        <Field
          label={say.invite}
          value={invite.value}
          onValue={(value) => {
            invite.value = value;
          }}
          autocomplete="off"
          required
        />
      )}
      <Fault text={task.fault} />
      <button type="submit" class="button primary wide" disabled={task.isBusy}>
        {isNew ? say.signUpButton : say.logInButton}
      </button>
    </form>
  );
}

function TokenForm() {
  const say = words.value;
  const token = useSignal("");
  const task = useTask();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        task.run(() => useToken(token.value.trim()));
      }}
    >
      <Field
        label={say.token}
        hint={say.tokenHint}
        value={token.value}
        onValue={(value) => {
          token.value = value;
        }}
        type="password"
        autocomplete="off"
        required
        autoFocus
      />
      <Fault text={task.fault} />
      <button type="submit" class="button primary wide" disabled={task.isBusy}>
        {say.tokenButton}
      </button>
    </form>
  );
}
