// About a chat: its members, and the user's settings for it.

import type { Chat, Member, Role } from "@tidewire/client";
import { useEffect } from "preact/hooks";
import { isMuted, type Live } from "../model/live.ts";
import { chatHref, go, goBack } from "../model/route.ts";
import { useSignal } from "../model/signals.ts";
import { whenOf, words } from "../words/app.ts";
import { Check, Confirm, Dialog, Fault, Field, MenuItem, useTask } from "./dialogs.tsx";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { nameOfChat } from "./names.ts";
import { find } from "./new-chat.tsx";
import { Panel } from "./panel.tsx";
import { Face, IconButton, Name } from "./parts.tsx";

type Asked =
  | { kind: "leave" | "close" | "block" }
  | { kind: "remove" | "handOver"; member: Member };

export function About({ live, chatId }: { live: Live; chatId: string }) {
  const say = words.value;
  const chat = live.look(chatId);
  const name = nameOfChat(live, chat);
  return (
    <Panel title={say.about} onClose={() => goBack(chatHref(chatId))}>
      <div class="about-head">
        <Face id={chat.otherId ?? chatId} name={name} isLarge />
        <h3>
          <Name>{name}</Name>
        </h3>
      </div>
      {chat.type === "group" ? (
        <Group live={live} chat={chat} />
      ) : (
        <Direct live={live} chat={chat} name={name} />
      )}
    </Panel>
  );
}

function Mute({ live, chat }: { live: Live; chat: Chat }) {
  const say = words.value;
  const anchor = useSignal<DOMRect | null>(null);
  const task = useTask();
  const done = (work: Promise<void>) =>
    task.run(async () => {
      anchor.value = null;
      await work;
      live.touch(chat.chatId);
    });
  const until = chat.mutedUntil;
  // The server mutes for a hundred years if no end is given.
  const isForLong = until !== null && until.getTime() - Date.now() > 1e11;
  return (
    <>
      {isMuted(chat) ? (
        <MenuItem icon={icons.bell} label={say.unmute} onClick={() => done(chat.unmute())} />
      ) : (
        <button
          type="button"
          class="menu-item"
          onClick={(event) => {
            anchor.value = event.currentTarget.getBoundingClientRect();
          }}
        >
          <Icon path={icons.bellOff} />
          <span>{say.mute}</span>
        </button>
      )}
      {isMuted(chat) && until && !isForLong && (
        <p class="hint indent">{say.mutedUntil(whenOf(until))}</p>
      )}
      <Fault text={task.fault} />
      {anchor.value && (
        <Dialog
          title={say.mute}
          isTitleHidden
          anchor={anchor.value}
          onClose={() => {
            anchor.value = null;
          }}
        >
          <div class="menu-items">
            <MenuItem
              icon={icons.bellOff}
              label={say.muteHour}
              onClick={() => done(chat.mute(1))}
            />
            <MenuItem
              icon={icons.bellOff}
              label={say.muteDay}
              onClick={() => done(chat.mute(24))}
            />
            <MenuItem
              icon={icons.bellOff}
              label={say.muteWeek}
              onClick={() => done(chat.mute(168))}
            />
            <MenuItem
              icon={icons.bellOff}
              label={say.muteAlways}
              onClick={() => done(chat.mute())}
            />
          </div>
        </Dialog>
      )}
    </>
  );
}

function Direct({ live, chat, name }: { live: Live; chat: Chat; name: string }) {
  const say = words.value;
  const isBlocked = useSignal(false);
  const isAsking = useSignal(false);
  const task = useTask();
  const { otherId } = chat;
  useEffect(() => {
    live.client.blocked().then(
      (people) => {
        isBlocked.value = people.some((one) => one.userId === otherId);
      },
      // Offline: the block is not known, and the menu offers to block.
      () => undefined,
    );
  }, [otherId]);
  return (
    <div class="menu-items">
      <Mute live={live} chat={chat} />
      <MenuItem
        icon={icons.hide}
        label={chat.isHidden ? say.unhide : say.hide}
        onClick={() =>
          task.run(async () => {
            await (chat.isHidden ? chat.unhide() : chat.hide());
            live.touch(chat.chatId);
          })
        }
      />
      {otherId &&
        (isBlocked.value ? (
          <MenuItem
            icon={icons.block}
            label={say.unblock}
            onClick={() =>
              task.run(async () => {
                await live.client.unblock(otherId);
                isBlocked.value = false;
              })
            }
          />
        ) : (
          <MenuItem
            icon={icons.block}
            label={say.block}
            isDanger
            onClick={() => {
              isAsking.value = true;
            }}
          />
        ))}
      {isBlocked.value && <p class="hint indent">{say.blockedHere}</p>}
      <Fault text={task.fault} />
      {isAsking.value && otherId && (
        <Confirm
          title={say.blockTitle(name)}
          text={say.blockText}
          action={say.block}
          onDone={() => {
            isAsking.value = false;
          }}
          onYes={async () => {
            await live.client.block(otherId);
            isBlocked.value = true;
          }}
        />
      )}
    </div>
  );
}

function Group({ live, chat }: { live: Live; chat: Chat }) {
  const say = words.value;
  const members = useSignal<readonly Member[] | null>(null);
  const asked = useSignal<Asked | null>(null);
  const isForGood = useSignal(false);
  const task = useTask();
  const load = () => {
    if (chat.isMember) task.run(async () => void (members.value = await chat.members()));
  };
  useEffect(() => {
    load();
    return live.listen((event) => {
      if (event.type === "ChatUpdated" && event.chatId === chat.chatId) load();
    });
  }, []);

  const me = members.value?.find((one) => one.userId === live.client.userId);
  const isOwner = me?.role === "owner";
  const mayManage = isOwner || me?.role === "admin";
  const done = () => {
    asked.value = null;
  };
  const ask = asked.value;
  return (
    <>
      {mayManage && <Rename live={live} chat={chat} />}
      <div class="menu-items">
        <Mute live={live} chat={chat} />
        {chat.isMember && !isOwner && (
          <MenuItem
            icon={icons.out}
            label={say.leave}
            isDanger
            onClick={() => {
              asked.value = { kind: "leave" };
            }}
          />
        )}
        {isOwner && (
          <MenuItem
            icon={icons.trash}
            label={say.closeGroup}
            isDanger
            onClick={() => {
              asked.value = { kind: "close" };
            }}
          />
        )}
        {isOwner && <p class="hint indent">{say.ownerLeaves}</p>}
      </div>
      <Fault text={task.fault} />
      <section>
        <h3 class="section">{say.memberList}</h3>
        {mayManage && <AddMember live={live} chat={chat} onAdded={load} />}
        <ul class="people">
          {[...(members.value ?? [])].sort(byRole).map((member) => (
            <li key={member.userId}>
              <Face id={member.userId} name={member.displayName} />
              <span class="person">
                <Name>{member === me ? say.you : member.displayName}</Name>
                {member.role !== "member" && (
                  <span class="role">{member.role === "owner" ? say.owner : say.admin}</span>
                )}
              </span>
              {member !== me && mayManage && member.role !== "owner" && (
                <MemberMenu
                  chat={chat}
                  member={member}
                  isOwner={isOwner}
                  onAsk={(next) => {
                    asked.value = next;
                  }}
                  onDone={load}
                />
              )}
            </li>
          ))}
        </ul>
      </section>
      {ask?.kind === "leave" && (
        <Confirm
          title={say.leaveTitle}
          text={say.leaveText}
          action={say.leave}
          onDone={done}
          onYes={async () => {
            await chat.leave({ doNotAddAgain: isForGood.value });
            go("#/");
          }}
        >
          <Check
            label={say.leaveForGood}
            isOn={isForGood.value}
            onValue={(isOn) => {
              isForGood.value = isOn;
            }}
          />
        </Confirm>
      )}
      {ask?.kind === "close" && (
        <Confirm
          title={say.closeTitle}
          text={say.closeText}
          action={say.closeGroup}
          onDone={done}
          onYes={async () => {
            await chat.close();
            go("#/");
          }}
        />
      )}
      {ask?.kind === "remove" && (
        <Confirm
          title={say.removeTitle(ask.member.displayName)}
          text={say.removeText}
          action={say.remove}
          onDone={done}
          onYes={async () => {
            await chat.remove(ask.member.userId);
            load();
          }}
        />
      )}
      {ask?.kind === "handOver" && (
        <Confirm
          title={say.handOverTitle(ask.member.displayName)}
          text={say.handOverText}
          action={say.handOver}
          onDone={done}
          onYes={async () => {
            await chat.handOver(ask.member.userId);
            load();
          }}
        />
      )}
    </>
  );
}

const ORDER: Record<Role, number> = { owner: 0, admin: 1, member: 2 };

function byRole(one: Member, other: Member): number {
  return ORDER[one.role] - ORDER[other.role] || one.displayName.localeCompare(other.displayName);
}

function Rename({ live, chat }: { live: Live; chat: Chat }) {
  const say = words.value;
  const name = useSignal(chat.name ?? "");
  const task = useTask();
  return (
    <form
      class="inline-form"
      onSubmit={(event) => {
        event.preventDefault();
        task.run(async () => {
          await chat.rename(name.value.trim());
          live.touch(chat.chatId);
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
        autocomplete="off"
      />
      <button
        type="submit"
        class="button"
        disabled={task.isBusy || name.value.trim() === chat.name || !name.value.trim()}
      >
        {say.rename}
      </button>
      <Fault text={task.fault} />
    </form>
  );
}

function AddMember(props: { live: Live; chat: Chat; onAdded: () => void }) {
  const say = words.value;
  const username = useSignal("");
  const task = useTask();
  return (
    <form
      class="inline-form"
      onSubmit={(event) => {
        event.preventDefault();
        task.run(async () => {
          const person = await find(props.live, username.value.trim());
          await props.chat.add(person.userId);
          username.value = "";
          props.onAdded();
        });
      }}
    >
      <Field
        label={say.addPerson}
        value={username.value}
        onValue={(value) => {
          username.value = value;
          task.clear();
        }}
        autocapitalize="none"
        autocomplete="off"
        spellcheck={false}
        required
      />
      <button type="submit" class="button" disabled={task.isBusy}>
        {say.add}
      </button>
      <Fault text={task.fault} />
    </form>
  );
}

function MemberMenu(props: {
  chat: Chat;
  member: Member;
  isOwner: boolean;
  onAsk: (asked: Asked) => void;
  onDone: () => void;
}) {
  const { chat, member, isOwner } = props;
  const say = words.value;
  const anchor = useSignal<DOMRect | null>(null);
  const task = useTask();
  const close = () => {
    anchor.value = null;
  };
  const role = (next: "admin" | "member") =>
    task.run(async () => {
      close();
      await chat.setRole(member.userId, next);
      props.onDone();
    });
  if (!isOwner && member.role === "admin") return null;
  return (
    <>
      <IconButton
        icon={icons.more}
        label={say.actionsFor(member.displayName)}
        onClick={(event) => {
          anchor.value = (event.currentTarget as HTMLElement).getBoundingClientRect();
        }}
      />
      {anchor.value && (
        <Dialog
          title={say.actionsFor(member.displayName)}
          isTitleHidden
          anchor={anchor.value}
          onClose={close}
        >
          <div class="menu-items">
            {isOwner &&
              (member.role === "admin" ? (
                <MenuItem
                  icon={icons.people}
                  label={say.makeMember}
                  onClick={() => role("member")}
                />
              ) : (
                <MenuItem icon={icons.people} label={say.makeAdmin} onClick={() => role("admin")} />
              ))}
            {isOwner && (
              <MenuItem
                icon={icons.crown}
                label={say.handOver}
                onClick={() => {
                  close();
                  props.onAsk({ kind: "handOver", member });
                }}
              />
            )}
            <MenuItem
              icon={icons.out}
              label={say.remove}
              isDanger
              onClick={() => {
                close();
                props.onAsk({ kind: "remove", member });
              }}
            />
          </div>
        </Dialog>
      )}
      <Fault text={task.fault} />
    </>
  );
}
