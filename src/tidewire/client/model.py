"""The values that an application gets: messages and events. PURE."""

import hashlib
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tidewire.client.effects import Status
from tidewire.client.entries import amendment_of
from tidewire.client.replica import Replica
from tidewire.domain.delivery import Tick
from tidewire.domain.fold import AS_WRITTEN, MessageNow, Reaction, fold
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import EntryKind
from tidewire.domain.messages import Message as Entry
from tidewire.domain.rows import entry_of_row
from tidewire.wire.forms import form_of
from tidewire.wire.rest_models import MessageView
from tidewire.wire.timestamps import parse_time_ms

if TYPE_CHECKING:
    from tidewire.client.sent import Sent

NAMES_MAX: Final = 20_000
"""The largest number of display names that a client remembers."""
_TEXT_SHOWN: Final = 40


class Names:
    """Display names by user id. All messages of a client share one object, so a message that was
    read before a name became known has that name too."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}

    def get(self, user_id: str) -> str | None:
        return self._by_id.get(user_id)

    def learn(self, names: Mapping[str, str]) -> dict[str, str]:
        """Add names; returns those that are new or have changed."""
        known = self._by_id
        news = {one: name for one, name in names.items() if known.get(one) != name}
        known.update(news)
        while len(known) > NAMES_MAX:
            del known[next(iter(known))]
        return news


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """An entry as a row of the store: the columns in their order, then `now`, the current state of
    a message. `quoted` is the message that it replies to, if the store has it."""

    position: int
    chat_id: ChatId
    sequence: int
    prev_sequence: int
    message_id: MessageId
    sender_id: UserId
    client_message_id: ClientMessageId
    content: str
    content_type: str
    created_at: str
    is_own: int
    is_gone: int
    kind: str | None = None
    target: int | None = None
    extra: str | None = None
    is_deleted: int = 0
    now: MessageNow = AS_WRITTEN
    quoted: "MessageRow | None" = None

    @property
    def is_erased(self) -> bool:
        return bool(self.is_deleted) or self.now.is_deleted


class ChangeRow(msgspec.Struct, frozen=True):
    """An entry that amends a message: the row of that message, if the store has it, and its state
    before and after the entry. If the message is deleted by now, both are the deleted state."""

    entry: MessageRow
    message: MessageRow | None
    before: MessageNow
    after: MessageNow

    @property
    def position(self) -> int:
        return self.entry.position


def entry_of(row: MessageRow) -> Entry:
    """The row as a value of the domain; its time is left out."""
    begin = (row.chat_id, row.sequence, row.prev_sequence, row.message_id, row.sender_id)
    said = (row.client_message_id, row.content, row.content_type)
    return entry_of_row((*begin, *said, 0, row.target, row.extra, None))


class Acts(Protocol):
    """The operations on a message; its chat carries them out."""

    def edit(
        self, message: "Message", text: str, *, base: int | None = None
    ) -> "Coroutine[Any, Any, Sent]": ...
    def delete(
        self, message: "Message", *, reason: str | None = None
    ) -> "Coroutine[Any, Any, Sent]": ...
    def react(self, message: "Message", emoji: str) -> "Coroutine[Any, Any, Sent]": ...
    def unreact(self, message: "Message", emoji: str) -> "Coroutine[Any, Any, Sent]": ...


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a chat, as it was when the application asked for it. Its `tick` is computed anew
    each time it is read."""

    chat_id: ChatId
    sequence: int
    message_id: MessageId
    sender_id: UserId
    client_message_id: ClientMessageId
    text: str
    """As it is after the last edit; empty if it is deleted."""
    created_at_ms: int
    is_own: bool
    is_gone: bool = False
    """The server lost it in a restore; only this device still has it."""
    is_damaged: bool = False
    """The server's copy is damaged: the text is empty, and only chat and sequence are sure."""
    is_deleted: bool = False
    """It was deleted for all: there is no text any more."""
    reply_to: int | None = None
    """The sequence of the message that this one answers."""
    quoted: "Message | None" = None
    """That message, if this device holds it."""
    mentions: tuple[UserId, ...] = ()
    """User ids of the members whom the message mentions; `@all` stands for all of them."""
    now: MessageNow = AS_WRITTEN
    """The current state; each part has the sequence of the entry that set it."""
    replica: Replica | None = None
    names: Names | None = None
    acts: Acts | None = None

    @property
    def sender_name(self) -> str | None:
        """The author's display name; None while it is not known."""
        return None if self.names is None else self.names.get(self.sender_id)

    @property
    def created_at(self) -> datetime:
        """When the server stored it, in UTC. For display only: `sequence` gives the order."""
        return datetime.fromtimestamp(self.created_at_ms / 1000, tz=UTC)

    @property
    def is_edited(self) -> bool:
        return self.now.is_edited

    @property
    def reactions(self) -> tuple[Reaction, ...]:
        """Each has `emoji`, `count`, `is_own` and `users`: ids of some of the users who reacted."""
        return self.now.shown_reactions

    @property
    def tick(self) -> Tick | None:
        """The tick of an own message; None for messages of others."""
        if not self.is_own:
            return None
        return Tick.SENT if self.replica is None else self.replica.tick(self.sequence)

    def edit(self, text: str, *, base: int | None = None) -> "Coroutine[Any, Any, Sent]":
        """Give it another text; only its author can. See `Chat.edit`."""
        return self._acts.edit(self, text, base=base)

    def delete(self, reason: str | None = None) -> "Coroutine[Any, Any, Sent]":
        """Delete it for all; its author can, and admins of a group. See `Chat.delete`."""
        return self._acts.delete(self, reason=reason)

    def react(self, emoji: str) -> "Coroutine[Any, Any, Sent]":
        """Put an emoji on it. See `Chat.react`."""
        return self._acts.react(self, emoji)

    def unreact(self, emoji: str) -> "Coroutine[Any, Any, Sent]":
        """Take an emoji back."""
        return self._acts.unreact(self, emoji)

    @property
    def _acts(self) -> Acts:
        assert self.acts is not None, "a message that was made by hand belongs to no client"
        return self.acts

    def __repr__(self) -> str:
        # Only the beginning of the text: enough to recognise it, and no log gets all of it.
        by = self.sender_name or self.sender_id
        shown = "deleted" if self.is_deleted else _short(self.text)
        return f"Message(#{self.sequence} of {self.chat_id}, by {by}: {shown})"


def _short(text: str) -> str:
    return repr(text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…")


def message_of(
    source: MessageRow | MessageView,
    replica: Replica | None,
    names: Names | None = None,
    *,
    own_id: str | None = None,
    acts: Acts | None = None,
    now: MessageNow | None = None,
    quoted: Message | None = None,
) -> Message:
    """Make a message from a row of the store or from the server's history; for the latter `own_id`
    tells which messages are own ones. `now` replaces the state that the source has."""
    said: Entry | MessageView | None = None
    if isinstance(source, MessageRow):
        is_own, is_gone = bool(source.is_own), bool(source.is_gone)
        now = source.now if now is None else now
        if source.extra is not None:
            said = entry_of(source)
        if source.quoted is not None:
            quoted = message_of(source.quoted, replica, names, acts=acts)
    else:
        is_own, is_gone, said = source.sender_id == own_id, False, source
        now = AS_WRITTEN if now is None else now
    is_deleted = bool(source.is_deleted) or now.is_deleted
    text = "" if is_deleted else source.content if now.content is None else now.content
    return Message(
        chat_id=source.chat_id,
        sequence=source.sequence,
        message_id=source.message_id,
        sender_id=source.sender_id,
        client_message_id=source.client_message_id,
        text=text,
        created_at_ms=parse_time_ms(source.created_at) or 0,
        is_own=is_own,
        is_gone=is_gone,
        # A message has at least one byte, so an empty one is damaged or deleted.
        is_damaged=not text and not is_deleted,
        is_deleted=is_deleted,
        reply_to=None if said is None else said.reply_to,
        mentions=() if said is None or is_deleted else said.mentions,
        quoted=quoted,
        now=now,
        replica=replica,
        names=names,
        acts=acts,
    )


def with_now(message: Message, now: MessageNow) -> Message:
    """The message in a later state. There is no way back: it keeps no text from before an edit."""
    is_deleted = message.is_deleted or now.is_deleted
    text = message.text if now.content is None else now.content
    return msgspec.structs.replace(
        message,
        now=now,
        is_deleted=is_deleted,
        text="" if is_deleted else text,
        mentions=() if is_deleted else message.mentions,
        is_damaged=message.is_damaged and not is_deleted and now.content is None,
    )


def reply_id(own_id: str, message: Message, part: int = 0) -> ClientMessageId:
    """The `client_message_id` of our reply to a message: always the same, in the form of a UUIDv4.

    It depends on our own id, because two users may reply to one message; `part` tells several
    replies of one user apart.
    """
    text = f"tidewire-reply\n{own_id}\n{message.chat_id}\n{message.message_id}\n{part}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return ClientMessageId(
        f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
    )


# Events. One with a position is stored, and comes again until it is confirmed.

FLEETING: Final = 0


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    position: int = FLEETING
    """Its number in the store; 0 if it is not stored, and so never comes again."""
    redelivered: bool = False
    """The application may have got it before, but did not confirm it."""


class MessageReceived(_Event, frozen=True, kw_only=True):
    """A message of another user."""

    message: Message


class MessageStored(_Event, frozen=True, kw_only=True):
    """A message of our own, written here or on another device: the server has it."""

    message: Message


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that changes a message: what it does, and who did it."""

    kind: EntryKind
    """`edit`, `delete` or `react`."""
    sequence: int
    """Its own place in the chat."""
    target: int
    """The sequence of the message that it changes."""
    sender_id: UserId
    is_own: bool
    created_at_ms: int
    text: str = ""
    """Of an edit: the new text; empty if the message is deleted by now."""
    emoji: str | None = None
    """Of a reaction."""
    is_on: bool = True
    """Of a reaction: set, or taken back."""
    count: int = 0
    """Of a reaction: how many users have set this emoji after the change."""
    reason: str | None = None
    """Of a deletion."""
    entry: Entry | None = None
    names: Names | None = None

    @property
    def sender_name(self) -> str | None:
        return None if self.names is None else self.names.get(self.sender_id)

    def __repr__(self) -> str:
        # Without the text of an edit: messages stay out of logs.
        return f"Change({self.kind} #{self.sequence}, by {self.sender_name or self.sender_id})"

    def applied_to(self, message: Message, own_id: str) -> Message:
        """The message after this change, for an application that keeps messages itself. The given
        message may be older or newer than the change."""
        assert self.entry is not None
        now = fold(message.now, self.entry, UserId(own_id))
        return with_now(message, now)


def change_of(
    source: MessageRow | MessageView, names: Names | None, own_id: str | None = None
) -> Change | None:
    """The change that an entry is; None if it amends no message. A `MessageView` needs `own_id`."""
    if isinstance(source, MessageRow):
        entry, is_own = entry_of(source), bool(source.is_own)
    else:
        found = amendment_of(source.chat_id, source)
        if found is None:
            return None
        entry, is_own = found, source.sender_id == own_id
    amends = entry.amends
    if amends is None:
        return None
    return form_of(
        Change,
        amends,
        entry,
        is_own=is_own,
        created_at_ms=parse_time_ms(source.created_at) or 0,
        text=entry.content,
        entry=entry,
        names=names,
    )


class MessageChanged(_Event, frozen=True, kw_only=True):
    """A message was edited or deleted, or got a reaction, here or elsewhere. `before` and `after`
    are None if this device does not have the message, for example because it is too old. If the
    message is deleted by now, neither has a text, so `before` of a deletion has none."""

    chat_id: str
    target: int
    """The sequence of the message."""
    change: Change
    before: Message | None
    after: Message | None


class MessageRefused(_Event, frozen=True, kw_only=True):
    """A message of ours, or a change of one, was refused for good, or (`code` None) it is unknown
    whether the server has it. A message or an edit stays in the outbox until it is retried or
    dropped; a deletion, a reaction, and any change of a deleted message do not."""

    chat_id: str
    client_message_id: str
    text: str
    code: str | None
    reason: str | None
    kind: EntryKind = EntryKind.MESSAGE
    target: int | None = None
    """The sequence of the message that the change is about; None if this is a message."""

    def __repr__(self) -> str:
        return f"MessageRefused({self.chat_id}, {self.code}: {_short(self.text)})"


class ChatUpdated(_Event, frozen=True, kw_only=True):
    """Something happened to a chat: `created`, `renamed`, `member_added`, `member_removed`,
    `role_changed`, or a name that a newer server uses."""

    chat_id: str
    change: str
    name: str | None
    user_id: str | None
    changed_by: str


class TicksMoved(_Event, frozen=True, kw_only=True):
    """Ticks, unread count or name of a chat have changed. Read them from the chat."""

    chat_id: str


class Typing(_Event, frozen=True, kw_only=True):
    chat_id: str
    user_id: str
    is_typing: bool


class StatusMoved(_Event, frozen=True, kw_only=True):
    """The connection is in another state."""

    status: Status


Event = (
    MessageReceived
    | MessageStored
    | MessageChanged
    | MessageRefused
    | ChatUpdated
    | TicksMoved
    | Typing
    | StatusMoved
)


class Fleeting:
    """Events that are not stored: only the latest of each key is kept, `events_max` at most."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._events: dict[tuple[str, ...], Event] = {}

    def put(self, key: tuple[str, ...], event: Event) -> None:
        """Replace the event with the same key; drop the oldest event if there are too many."""
        self._events.pop(key, None)
        self._events[key] = event
        if len(self._events) > self._events_max:
            del self._events[next(iter(self._events))]

    def take(self) -> list[Event]:
        events = list(self._events.values())
        self._events.clear()
        return events
