"""What an application is shown: messages, and everything that can happen. PURE."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from tidewire.client.effects import Status
from tidewire.client.places import Place
from tidewire.domain.delivery import Tick, tick
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.wire.rest_models import MessageView
from tidewire.wire.timestamps import parse_time_ms

NAMES_MAX: Final = 20_000
"""How many people are remembered by name."""
_TEXT_SHOWN: Final = 40


class Names:
    """What people are called, by their ids. One for all messages of a client, so that a message
    that was read before a name was learned has it too."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}

    def get(self, user_id: str) -> str | None:
        return self._by_id.get(user_id)

    def learn(self, names: Mapping[str, str]) -> dict[str, str]:
        """Take names in; those that are new, or other than before."""
        known = self._by_id
        news = {one: name for one, name in names.items() if known.get(one) != name}
        known.update(news)
        while len(known) > NAMES_MAX:
            del known[next(iter(known))]
        return news


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A message as a row of the store."""

    position: int
    chat_id: str
    sequence: int
    prev_sequence: int
    message_id: str
    sender_id: str
    client_message_id: str
    content: str
    content_type: str
    created_at: str
    is_own: int
    is_gone: int


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a chat. Its `tick` is that of the moment in which it is looked at."""

    chat_id: ChatId
    sequence: int
    message_id: MessageId
    sender_id: UserId
    client_message_id: ClientMessageId
    text: str
    created_at_ms: int
    is_own: bool
    is_gone: bool = False
    """The server lost it in a restore; only this device still has it."""
    is_damaged: bool = False
    """The server's copy is damaged: the text is empty, and only chat and sequence are sure."""
    place: Place | None = None
    names: Names | None = None

    @property
    def sender_name(self) -> str | None:
        """What its author is called; None while that is not known."""
        return None if self.names is None else self.names.get(self.sender_id)

    @property
    def created_at(self) -> datetime:
        """When the server stored it, in UTC. For people: the order is that of `sequence`."""
        return datetime.fromtimestamp(self.created_at_ms / 1000, tz=UTC)

    @property
    def tick(self) -> Tick | None:
        """What stands beside it; None beside messages of others."""
        if not self.is_own:
            return None
        if self.place is None:
            return Tick.SENT
        return tick(
            self.sequence,
            others_delivered=self.place.others_delivered,
            others_read=self.place.others_read,
        )

    def __repr__(self) -> str:
        # The beginning of the text: enough to know it again, and no log gets all of it.
        by = self.sender_name or self.sender_id
        return f"Message(#{self.sequence} of {self.chat_id}, by {by}: {_short(self.text)})"


def _short(text: str) -> str:
    return repr(text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…")


def message_of(kept: Kept, place: Place | None, names: Names | None = None) -> Message:
    return Message(
        chat_id=ChatId(kept.chat_id),
        sequence=kept.sequence,
        message_id=MessageId(kept.message_id),
        sender_id=UserId(kept.sender_id),
        client_message_id=ClientMessageId(kept.client_message_id),
        text=kept.content,
        created_at_ms=parse_time_ms(kept.created_at) or 0,
        is_own=bool(kept.is_own),
        is_gone=bool(kept.is_gone),
        # A message has at least one byte: only a damaged one is stored without any.
        is_damaged=not kept.content,
        place=place,
        names=names,
    )


def message_of_view(
    view: MessageView, place: Place | None, own_id: str | None, names: Names | None = None
) -> Message:
    return Message(
        chat_id=view.chat_id,
        sequence=view.sequence,
        message_id=view.message_id,
        sender_id=view.sender_id,
        client_message_id=view.client_message_id,
        text=view.content,
        created_at_ms=parse_time_ms(view.created_at) or 0,
        is_own=view.sender_id == own_id,
        is_damaged=view.is_damaged,
        place=place,
        names=names,
    )


def reply_id(own_id: str, message: Message, part: int = 0) -> ClientMessageId:
    """The id of our reply to a message: always the same one, in the form of a UUIDv4.

    Who replies is in it, because two may reply to one message; `part` tells several replies apart.
    """
    text = f"tidewire-reply\n{own_id}\n{message.chat_id}\n{message.message_id}\n{part}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return ClientMessageId(
        f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
    )


# Events. Those with a position are stored, and come again until they are confirmed.

FLEETING: Final = 0


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    position: int = FLEETING
    """Its number in the store; 0 if it is not stored, and so never comes again."""
    redelivered: bool = False
    """An earlier life may have handed it out already, without its being confirmed."""


class MessageReceived(_Event, frozen=True, kw_only=True):
    """A message of somebody else."""

    message: Message


class MessageStored(_Event, frozen=True, kw_only=True):
    """A message of our own, written here or on another device: the server has it."""

    message: Message


class MessageRefused(_Event, frozen=True, kw_only=True):
    """A message of ours was refused for good, or (`code` None) its fate is unknown. It stays in
    the outbox until it is retried or dropped."""

    chat_id: str
    client_message_id: str
    text: str
    code: str | None
    reason: str | None

    def __repr__(self) -> str:
        return f"MessageRefused({self.chat_id}, {self.code}: {_short(self.text)})"


class ChatUpdated(_Event, frozen=True, kw_only=True):
    """Something happened to a chat: `created`, `renamed`, `member_added`, `member_removed`,
    `role_changed`, or what a newer server calls it."""

    chat_id: str
    change: str
    name: str | None
    user_id: str | None
    changed_by: str


class TicksMoved(_Event, frozen=True, kw_only=True):
    """Numbers of a chat moved: ticks, unread count, name. Look at the chat."""

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
    | MessageRefused
    | ChatUpdated
    | TicksMoved
    | Typing
    | StatusMoved
)
