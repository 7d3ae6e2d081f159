"""The store, as the planes need it: one method is one atomic act of the business.

A plane asks for the role it needs (`MessageStore`); an engine satisfies them all (`Storage`). These
docstrings are the contract, `tests/contract` runs it over every engine.

Common to all methods:
- A write is durable when it returns: on stable storage, or committed by the cluster's database.
- `StoreUnavailable` (or a subclass) means that a write may or may not have happened; the same call
  again is always safe, because every write is idempotent or conditional.
- A refusal (`Refused`) means that nothing was written.
- Events of a commit are handed to the engine's `CommitListener` in commit order, once per commit,
  after it is durable.
- Times are wall-clock milliseconds, given by the caller.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from tidewire.domain import chat_changes, chats, delivery
from tidewire.domain.chat_changes import Changed, ChangeRequest
from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.messages import AppendOutcome, Message, MessagePage, SendMessage
from tidewire.domain.users import User
from tidewire.ports.accounts import AccountStore
from tidewire.ports.runtime import resolve

EXIT_STORE_IN_DOUBT: Final = 74
"""The exit code of a process whose store can no longer be trusted (EX_IOERR)."""


class Appends(Protocol):
    """Appends messages to the store, once and in order."""

    @property
    def appends_per_chat(self) -> bool:
        """True if appends to different chats may run side by side (one in flight per chat); False
        if the store takes one append at a time, of any chats."""
        ...

    def append_nowait(
        self, sends: Sequence[SendMessage], *, now_ms: int, done: "AppendDone"
    ) -> None:
        """Store messages and give each its place in its chat; one outcome per send, same order.

        `done` is called once, later, on the event loop, with the outcomes or with the error.
        Raises only if the store accepts nothing, and then `done` is not called.
        Atomicity: dedup, membership, sequence, message, counter, the author's positions and the
        event's place are one act; the sends of a batch that are not refused are stored together or
        not at all.
        Order: sends of one chat are stored in the order given. Sequences of a chat only grow, in
        commit order; `prev_sequence` is exact.
        Idempotency: one (chat_id, client_message_id) is one message. Verdicts, first that fits:
          the sender's own key, same content   → Appended, deduplicated, the first one's numbers
          the sender's own key, other content  → KeyReused with the original
          not a member, or no such chat        → NotAMember
          blocked, in a direct chat            → Forbidden
          no counter, or one behind its chat   → CounterMissing; nothing is written to this chat
          another sender's key                 → KeyReused without details
          what `judge_amendment` refuses       → that: targets, edits, reactions, mentions
          otherwise                            → Appended
        Amendments: the mark of an edit on its target, the row of a reaction and the erasure of what
        is deleted are part of the same act. After it no read returns what was erased; the chain
        keeps its numbers. A retry of an erased entry still gets its answer. The answer to a
        deletion that is stored now says whose message it was (`moderated_by`).
        A send of SYSTEM has no member as author: it is stored without checks of membership and
        blocks, and moves no positions.
        The author's positions move as `author_move` says, before `done` is called.
        StoreUnavailable or StoreFull concern the batch as a whole.
        Concurrency: may be called again before `done` is; with `appends_per_chat` a batch is of
        one chat.
        Bounds: at most APPEND_SENDS_MAX sends, each key at most once (the batcher ensures both).
        """
        ...


class MessageStore(Appends, Protocol):
    """Messages, once and in order."""

    async def takes_entries(self) -> bool:
        """Whether more than plain messages can be appended: edits, deletions, reactions, replies
        and mentions. False while a store of an earlier release is not upgraded yet; then it may be
        called again and again, at little cost. Once True, it stays True."""
        return True

    async def append(self, sends: Sequence[SendMessage], *, now_ms: int) -> list[AppendOutcome]:
        """The same for a caller that waits, and may give up. Engines inherit it as it stands."""
        answer: asyncio.Future[list[AppendOutcome]] = asyncio.get_running_loop().create_future()
        self.append_nowait(sends, now_ms=now_ms, done=partial(resolve, answer))
        return await answer

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        """The messages above a cursor, ascending: what a sync returns.

        Membership, head and messages are of one instant. The page ends at `count_max` messages or
        when one more would pass `bytes_max` of content, but has at least one message if there is
        one. It has no gaps: a reader who has it and everything up to `after` is complete
        to `synced_through`, which is the last message's sequence, or `after` if there is none.
        Raises NotAMember; CursorAhead if `after` is above the head.
        """
        ...

    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        """The last messages below a sequence (None: the newest), ascending: history.

        `has_more` says if there are older ones; `synced_through` is the last one's sequence, 0 for
        an empty page. Otherwise as `messages_after`. Raises NotAMember.
        """
        ...

    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        """One entry by its id. Raises NotAMember, MessageNotFound."""
        ...

    async def messages_now(
        self, reader: UserId, chat_id: ChatId, sequences: Sequence[int]
    ) -> dict[int, MessageNow]:
        """The current states of these messages, by sequence. Messages that are as they were written
        are left out, and so are sequences that are not messages.

        At most PAGE_MESSAGES_MAX of them. Each part has the sequence of its entry (`fold`): it is
        at least as new as a page that was read before. Raises NotAMember.
        """
        ...

    async def chats_of_author(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        """The chats that the user is or was a member of, by id from above `after`."""
        ...

    async def messages_by(
        self, user_id: UserId, chat_id: ChatId, *, after: int, count_max: int
    ) -> list[int]:
        """The sequences above `after` of the user's messages that are not deleted, ascending.
        For the erasure of a person: membership is not checked."""
        ...


AppendDone = Callable[[list[AppendOutcome] | Exception], None]
"""Called with the outcomes of an append, or with the error."""


class ChatStore(Protocol):
    """Chats and who is in them. Every change raises the chat's membership version by one, and is
    decided on the state it changes, by the rules of `domain.access` and `domain.chat_changes`, in
    the same act."""

    async def create_direct(self, command: chats.CreateDirect, *, now_ms: int) -> chats.CreatedChat:
        """The one chat of a pair, made with its counter and both members if it was not there.

        Two calls at once get the same chat. An existing chat is returned, blocks or not; if the
        actor has hidden it, the actor sees it again.
        Raises UserNotFound, InvalidOperation (oneself), and what `access.check_begin_direct` does.
        """
        ...

    async def create_group(
        self, command: chats.CreateGroup, *, members_max: int, now_ms: int
    ) -> chats.CreatedChat:
        """A new group with its counter, its owner and all its members, or nothing.

        A retry with the same chat_id finds the first one (`created` False). Raises UserNotFound,
        ChatIsFull, InvalidOperation for a bad name, a member named twice or a taken id, and
        `access.cannot_add` if one of the members blocks the creator, who is not told which.
        """
        ...

    async def change_chat(self, request: ChangeRequest, *, now_ms: int) -> Changed:
        """Change who is in a chat, their roles or its name. The methods from `add_member` to
        `rename` call this one; engines inherit them unchanged."""
        ...

    async def add_member(
        self,
        actor: UserId,
        chat_id: ChatId,
        user_id: UserId,
        role: chats.Role,
        *,
        members_max: int,
        now_ms: int,
    ) -> chats.Member:
        """Add a user, whose `joined_sequence` is the head at the very instant of joining.

        Raises what `access.check_add` raises.
        """
        add = partial(chat_changes.add_member, user_id=user_id, role=role, members_max=members_max)
        decide = partial(add, now_ms=now_ms)
        request = ChangeRequest(actor, chat_id, decide, user_id, joins=True)
        return _target_of(await self.change_chat(request, now_ms=now_ms))

    async def remove_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> None:
        """Remove a user, who can neither send nor read from then on. The positions stay."""
        decide = partial(chat_changes.remove_member, user_id=user_id, now_ms=now_ms)
        await self.change_chat(ChangeRequest(actor, chat_id, decide, user_id), now_ms=now_ms)

    async def leave(
        self, actor: UserId, chat_id: ChatId, *, for_good: bool = False, now_ms: int
    ) -> None:
        """As remove_member, of oneself. `for_good`: the actor cannot be added to this group again,
        until the actor takes that back (`readmit`)."""
        decide = partial(chat_changes.leave, now_ms=now_ms)
        request = ChangeRequest(actor, chat_id, decide, refuses=for_good)
        await self.change_chat(request, now_ms=now_ms)

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: chats.Role, *, now_ms: int
    ) -> chats.Member:
        """Make a member an admin or an admin a member. The same role again changes nothing."""
        decide = partial(chat_changes.change_role, user_id=user_id, role=role, now_ms=now_ms)
        request = ChangeRequest(actor, chat_id, decide, user_id)
        return _target_of(await self.change_chat(request, now_ms=now_ms))

    async def hand_over(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> chats.Member:
        """Make another member the owner, and the owner an admin, in one act: two changes of roles.
        Returns the new owner. Changes nothing if the user is the owner already. Raises what
        `access.check_hand_over` raises."""
        decide = partial(chat_changes.hand_over, user_id=user_id, now_ms=now_ms)
        request = ChangeRequest(actor, chat_id, decide, user_id)
        return _target_of(await self.change_chat(request, now_ms=now_ms))

    async def close_group(self, actor: UserId, chat_id: ChatId, *, now_ms: int) -> None:
        """End a group: from this instant it has no members, so it can neither be read nor written,
        and to all users it is as if there were no such chat. Messages and positions stay stored.
        One event, `ChatClosed`, names those who were in it. Raises what `access.check_close` does.
        """
        decide = partial(chat_changes.close_group, now_ms=now_ms)
        request = ChangeRequest(actor, chat_id, decide, ends=True)
        await self.change_chat(request, now_ms=now_ms)

    async def rename(
        self, actor: UserId, chat_id: ChatId, name: str, *, now_ms: int
    ) -> chats.ChatAccess:
        """Give a group another name (InvalidOperation if it is bad). The same name: no change."""
        decide = partial(chat_changes.rename, name=name, now_ms=now_ms)
        changed = await self.change_chat(ChangeRequest(actor, chat_id, decide), now_ms=now_ms)
        return chats.ChatAccess(changed.chat, changed.actor)

    async def readmit(self, user_id: UserId, chat_id: ChatId) -> None:
        """Allow again that the user is added to a group that the user has left for good. Else
        nothing changes, whether there is such a group or not."""
        ...

    async def refused_groups(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        """The groups that the user has left for good, by id, from above `after`."""
        ...

    async def strangers(self, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
        """Those of the others with whom the user shares no chat."""
        ...

    async def mute(
        self, actor: UserId, chat_id: ChatId, muted_until_ms: int | None
    ) -> chats.Member:
        """Set the caller's own mute. It concerns no other member: no version, no event."""
        ...

    async def hide(self, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
        """Hide a direct chat from the actor until there is another message in it, or (not `wanted`)
        show it again. It concerns no other member: no version, no event. Digest, standing and chat
        list go on naming it, with `is_hidden`. Raises what `access.check_hide` raises."""
        ...

    async def access_chat(self, reader: UserId, chat_id: ChatId) -> chats.ChatAccess:
        """The chat and the caller's membership in it. Raises NotAMember."""
        ...

    async def members(
        self, reader: UserId, chat_id: ChatId, *, after: UserId | None, count_max: int
    ) -> list[chats.Member]:
        """The members by user id, from above `after`. Raises NotAMember."""
        ...

    async def roster(self, chat_id: ChatId) -> chats.Roster | None:
        """All members of a chat, with the membership version for which that is true, for the
        fan-out; None if there is no such chat."""
        ...

    async def share_group(self, one: UserId, other: UserId) -> bool:
        """True if some group has both as members."""
        ...

    async def chat_list(
        self,
        reader: UserId,
        *,
        cursor: ChatListCursor | None,
        count_max: int,
        active_since_ms: int = 0,
    ) -> ChatListPage:
        """The reader's chats, newest activity first, each as it is now, all of one instant.

        The order is that of the first page's instant, which the cursor carries on: what happens
        meanwhile neither hides a chat from the later pages nor shows it twice. A chat that the
        reader has joined since is not among them. `active_since_ms` leaves older ones out.
        """
        ...


def _target_of(changed: Changed) -> chats.Member:
    assert changed.target is not None
    return changed.target


class PositionStore(Protocol):
    """Delivered and read positions. They only grow, whatever is asked."""

    async def advance(
        self, advances: Sequence[delivery.Advance], *, now_ms: int
    ) -> list[delivery.AdvanceOutcome]:
        """Move positions forward; one outcome per advance, same order.

        `read N` also delivers N. A position that is not above the stored one moves nothing and is
        no error. Membership is checked first (NotAMember), then the bound (SequenceAboveHead: above
        the last stored entry, nothing moves). Each advance is atomic by itself; a batch is durable
        together.
        """
        ...

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[delivery.Floors | None]:
        """The lowest positions among the current members of each chat, in the same order; None
        where there is no such chat. They carry the version of those members, or an older one: a
        member who is not in the roster of that version has joined since.

        Costs the same for ten members and for a thousand.
        """
        ...

    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> delivery.DeliveryStatus:
        """Who has the message with this sequence (None: the last one). Raises NotAMember,
        SequenceAboveHead; a sequence without a message is answered as if it had no author."""
        ...

    async def digest(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> delivery.DigestPage:
        """The state of the user's chats, by chat id from above `after`, each of one instant."""
        ...

    async def standing(self, user_id: UserId, chat_id: ChatId) -> delivery.DigestEntry | None:
        """The state of one of the user's chats, as in the digest; None if the user is not in it."""
        ...

    async def moved_at(self, user_id: UserId, chat_ids: Sequence[ChatId]) -> dict[ChatId, int]:
        """When the user's positions in these chats last moved, in ms; chats without any are left
        out."""
        ...


class UserStore(Protocol):
    """People."""

    async def add_user(self, user: User) -> User:
        """Store a new user. If the user_id exists, returns that user. Raises UsernameTaken."""
        ...

    async def users(self, user_ids: Sequence[UserId]) -> list[User]:
        """Those of the users that exist, in no order."""
        ...

    async def user_named(self, username: str) -> User | None:
        """The user of this name, upper and lower case being the same."""
        ...

    async def users_named(self, usernames: Sequence[str]) -> list[User]:
        """Those of the users that exist, in no order, each once."""
        ...

    async def list_users(self, *, after: str | None, count_max: int) -> list[User]:
        """Users by name (case ignored), from above the name `after`."""
        ...

    async def set_display_name(self, user_id: UserId, display_name: str, *, now_ms: int) -> User:
        """Give a user another display name. Raises UserNotFound."""
        ...


class Storage(MessageStore, ChatStore, PositionStore, UserStore, AccountStore, Protocol):
    """The whole store: what an engine provides."""

    @property
    def epoch(self) -> str:
        """The epoch of the store; a restore begins another one."""
        ...

    async def check_room(self) -> None:
        """Raises StoreUnavailable if nothing can be stored now, because the disk is full. Readers
        are served all the same."""
        ...

    async def close(self) -> None:
        """Finish the accepted work, then release everything. Later calls: StoreUnavailable."""
        ...
