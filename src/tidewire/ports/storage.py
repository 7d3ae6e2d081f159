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

from collections.abc import Callable, Sequence
from typing import Protocol

from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.chats import (
    ChatAccess,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    Roster,
)
from tidewire.domain.delivery import (
    Advance,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
)
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.messages import AppendOutcome, Message, MessagePage, SendMessage
from tidewire.domain.users import User
from tidewire.ports.accounts import AccountStore


class MessageStore(Protocol):
    """Messages, once and in order."""

    @property
    def appends_per_chat(self) -> bool:
        """True if appends to different chats may run side by side (one in flight per chat); False
        if the store takes one append at a time, of any chats."""
        ...

    async def append(self, sends: Sequence[SendMessage], *, now_ms: int) -> list[AppendOutcome]:
        """Store messages and give each its place in its chat; one outcome a send, same order.

        Atomicity: dedup, membership, sequence, message, counter, the author's positions and the
        event's place are one act; a batch is stored together with its survivors or not at all.
        Order: sends of one chat are stored in the order given. Sequences of a chat only grow, in
        commit order; `prev_sequence` is exact.
        Idempotency: one (chat_id, client_message_id) is one message. Verdicts, first that fits:
          the sender's own key, same content   → Appended, deduplicated, the first one's numbers
          the sender's own key, other content  → KeyReused with the original
          not a member, or no such chat        → NotAMember
          blocked, in a direct chat            → Forbidden
          no counter, or one behind its chat   → CounterMissing; nothing is written to this chat
          somebody else's key                  → KeyReused without details
          otherwise                            → Appended
        The author's positions move as `positions_after_append` says, before this returns.
        Raises StoreUnavailable or StoreFull for the batch as a whole.
        Concurrency: may be called again before it returns; with `appends_per_chat` a batch is of
        one chat.
        Bounds: at most APPEND_SENDS_MAX sends, each key at most once (the batcher sees to both).
        """
        ...

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        """The messages above a cursor, ascending: what a sync returns.

        Membership, head and messages are of one instant. The page ends at `count_max` messages or
        when one more would pass `bytes_max` of content, but has at least one message if there is
        one. It is never cut inside: a reader who has it and everything up to `after` is complete
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
        """One message by its id. Raises NotAMember, MessageNotFound."""
        ...


AppendDone = Callable[[list[AppendOutcome] | Exception], None]
"""Is told the outcomes of an append, or what it raised. On the event loop."""


class AppendsByCallback(Protocol):
    """An ability that a store may have: `append` without a task and a future for every batch."""

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        """As `MessageStore.append`; `done` is called once, later. Raises only if the store takes
        nothing in, and then `done` is not called."""
        ...


class ChatStore(Protocol):
    """Chats and who is in them. Every change raises the chat's membership version by one, and is
    decided on the state it changes, by the rules of `domain.access`, in the same act."""

    async def create_direct(self, command: CreateDirect, *, now_ms: int) -> CreatedChat:
        """The one chat of a pair, made with its counter and both members if it was not there.

        Two that create at once get the same chat. One that is there is found, whoever blocks whom;
        if the actor has hidden it, the actor sees it again.
        Raises UserNotFound, InvalidOperation (oneself), and what `access.check_begin_direct` does.
        """
        ...

    async def create_group(
        self, command: CreateGroup, *, members_max: int, now_ms: int
    ) -> CreatedChat:
        """A new group with its counter, its owner and all its members, or nothing.

        A retry with the same chat_id finds the first one (`created` False). Raises UserNotFound,
        ChatIsFull, InvalidOperation for a bad name, a member named twice or a taken id, and
        `access.cannot_add` if one of the members blocks the creator, who is not told which.
        """
        ...

    async def add_member(
        self,
        actor: UserId,
        chat_id: ChatId,
        user_id: UserId,
        role: Role,
        *,
        members_max: int,
        now_ms: int,
    ) -> Member:
        """Add a user. His `joined_sequence` is the head at the very instant of joining.

        Raises what `access.check_add` raises.
        """
        ...

    async def remove_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> None:
        """Remove a user: from this instant he can neither send nor read. His positions stay."""
        ...

    async def leave(
        self, actor: UserId, chat_id: ChatId, *, for_good: bool = False, now_ms: int
    ) -> None:
        """As remove_member, of oneself. `for_good`: nobody can add the actor to this group again,
        until the actor takes that back (`readmit`)."""
        ...

    async def readmit(self, user_id: UserId, chat_id: ChatId) -> None:
        """Let the user be added to a group again that was left for good. If it was not, nothing
        changes, whether there is such a group or not."""
        ...

    async def refused_groups(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        """The groups that the user has left for good, by id, from above `after`."""
        ...

    async def strangers(self, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
        """Those of the others with whom the user shares no chat."""
        ...

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role, *, now_ms: int
    ) -> Member:
        """Make a member an admin or an admin a member. The same role again changes nothing."""
        ...

    async def hand_over(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> Member:
        """Make another member the owner, and the owner an admin, in one act: two changes of roles.
        The new owner. One who is the owner already: nothing changes. Raises what
        `access.check_hand_over` raises."""
        ...

    async def close_group(self, actor: UserId, chat_id: ChatId, *, now_ms: int) -> None:
        """End a group: from this instant it has no members, so it can neither be read nor written,
        and to everybody it is as if there were no such chat. Messages and positions stay stored.
        One event, `ChatClosed`, names those who were in it. Raises what `access.check_close` does.
        """
        ...

    async def rename(self, actor: UserId, chat_id: ChatId, name: str, *, now_ms: int) -> ChatAccess:
        """Give a group another name (InvalidOperation for a bad one). The same changes nothing."""
        ...

    async def mute(self, actor: UserId, chat_id: ChatId, muted_until_ms: int | None) -> Member:
        """Set the caller's own mute. It is nobody else's business: no version, no event."""
        ...

    async def hide(self, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
        """Hide a direct chat from the actor until there is another message in it, or (not `wanted`)
        show it again. It concerns no other member: no version, no event. Digest, standing and chat
        list go on naming it, with `is_hidden`. Raises what `access.check_hide` raises."""
        ...

    async def access_chat(self, reader: UserId, chat_id: ChatId) -> ChatAccess:
        """The chat and the caller's membership in it. Raises NotAMember."""
        ...

    async def members(
        self, reader: UserId, chat_id: ChatId, *, after: UserId | None, count_max: int
    ) -> list[Member]:
        """The members by user id, from above `after`. Raises NotAMember."""
        ...

    async def roster(self, chat_id: ChatId) -> Roster | None:
        """Everybody in a chat with the version that is true of, for the fan-out; None if there is
        no such chat."""
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


class PositionStore(Protocol):
    """Delivered and read positions. They only grow, whatever is asked."""

    async def advance(self, advances: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        """Move positions forward; one outcome an advance, same order.

        `read N` also delivers N. What is not higher than what is stored does not move it and is no
        error. Membership is checked first (NotAMember), then the bound (SequenceAboveHead: above
        the last stored message, nothing moves). Each advance is atomic by itself; a batch is
        durable together.
        """
        ...

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        """The lowest positions among the current members of each chat, in the same order; None
        where there is no such chat.

        Costs the same for ten members and for a thousand.
        """
        ...

    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> DeliveryStatus:
        """Who has the message with this sequence (None: the last one). Raises NotAMember,
        SequenceAboveHead; a sequence without a message is answered like one of nobody's."""
        ...

    async def digest(self, user_id: UserId, *, after: ChatId | None, count_max: int) -> DigestPage:
        """The state of the user's chats, by chat id from above `after`, each of one instant."""
        ...

    async def standing(self, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
        """The state of one of the user's chats, as in his digest; None if he is not in it."""
        ...

    async def moved_at(self, user_id: UserId, chat_ids: Sequence[ChatId]) -> dict[ChatId, int]:
        """When the user's positions in these chats last moved, in ms; chats without any are left
        out."""
        ...


class UserStore(Protocol):
    """People."""

    async def add_user(self, user: User) -> User:
        """Store a new user; the same user_id again is found instead. Raises UsernameTaken."""
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
        """Call a user something else. Raises UserNotFound."""
        ...


class Storage(MessageStore, ChatStore, PositionStore, UserStore, AccountStore, Protocol):
    """The whole store: what an engine provides."""

    @property
    def epoch(self) -> str:
        """Which life of the store this is; a restore begins another one."""
        ...

    async def check_room(self) -> None:
        """Raises StoreUnavailable if nothing can be stored now, because the disk is full. Readers
        are served all the same."""
        ...

    async def close(self) -> None:
        """Finish what was taken in, then let go of everything. Later calls: StoreUnavailable."""
        ...
