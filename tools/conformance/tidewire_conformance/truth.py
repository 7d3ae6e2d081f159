"""What the played server knows: chats, their messages as a chain, positions of all members.

Small on purpose: a check must be able to say exactly what is in it. No I/O.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UlidSource, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message

OTHER: Final = UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
"""The other member of every chat."""
BEGAN_AT_MS: Final = 1_700_000_000_000
"""Messages have times of their own, from this one on: each is a second later than the last."""


@dataclass(slots=True)
class PlayedChat:
    """One chat. `counter` is the last number that was given out; numbers may be skipped."""

    chat_id: ChatId
    chat_type: ChatType = ChatType.DIRECT
    messages: list[Message] = field(default_factory=list)
    counter: int = 0
    membership_version: int = 1
    delivered: int = 0
    read: int = 0
    others_delivered: int = 0
    others_read: int = 0
    is_member: bool = True

    @property
    def head(self) -> int:
        return self.messages[-1].sequence if self.messages else 0

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for message in self.messages]

    @property
    def texts(self) -> list[str]:
        """The texts that a client with all entries shows: messages as they are now."""
        now = {one.sequence: one.content for one in self.messages if one.amends is None}
        for entry in self.messages:
            if entry.amends is not None and entry.amends.kind == EntryKind.EDIT:
                now[entry.amends.target] = entry.content
        return list(now.values())

    def after(self, cursor: int, limit: int) -> tuple[Sequence[Message], bool]:
        """A page above the cursor, and whether there is more."""
        found = [message for message in self.messages if message.sequence > cursor]
        return found[:limit], len(found) > limit


class Truth:
    def __init__(self, own_id: UserId) -> None:
        self.own_id = own_id
        self.epoch = "epoch-1"
        self.chats: dict[str, PlayedChat] = {}
        self._ids = UlidSource(random.Random(7).getrandbits)
        self._second = 0

    def new_chat(self, chat_type: ChatType = ChatType.DIRECT) -> PlayedChat:
        chat = PlayedChat(self._ids.chat_id(BEGAN_AT_MS), chat_type)
        self.chats[chat.chat_id] = chat
        return chat

    def find(self, chat: PlayedChat, client_message_id: str) -> Message | None:
        for message in chat.messages:
            if message.client_message_id == client_message_id:
                return message
        return None

    def append(
        self,
        chat: PlayedChat,
        text: str,
        *,
        sender_id: UserId = OTHER,
        client_message_id: str | None = None,
        skip: int = 0,
        created_at_ms: int | None = None,
    ) -> Message:
        """Store a message; `skip` numbers before it stay unused."""
        self._second += 1
        at_ms = BEGAN_AT_MS + 1000 * self._second if created_at_ms is None else created_at_ms
        prev_sequence = chat.head
        chat.counter += 1 + skip
        key = client_message_id or f"00000000-0000-4000-8000-{self._second:012d}"
        message = Message(
            chat.chat_id,
            chat.counter,
            prev_sequence,
            MessageId(self._ids.message_id(BEGAN_AT_MS)),
            sender_id,
            ClientMessageId(key),
            text,
            "text/plain",
            at_ms,
        )
        chat.messages.append(message)
        return message

    def amend(
        self, chat: PlayedChat, kind: EntryKind, target: Message, content: str = ""
    ) -> Message:
        """Store an entry about a message. A deletion erases it and its edits."""
        emoji = "👍" if kind is EntryKind.REACT else None
        entry = msgspec.structs.replace(
            self.append(chat, content, sender_id=target.sender_id),
            amends=Amendment(kind=kind, target=target.sequence, emoji=emoji),
            count=1 if emoji else 0,
        )
        chat.messages[-1] = entry
        if kind is EntryKind.DELETE:
            chat.messages = [
                msgspec.structs.replace(one, content="", deleted_by=entry.sequence)
                if one.sequence == target.sequence or _edits(one, target)
                else one
                for one in chat.messages
            ]
        return entry

    def append_damaged(self, chat: PlayedChat, *, has_ids: bool = True) -> Message:
        """Store a message of which the server knows only the numbers, and perhaps the ids."""
        message = msgspec.structs.replace(self.append(chat, ""), content="", is_damaged=True)
        if not has_ids:
            message = msgspec.structs.replace(
                message,
                message_id=MessageId(""),
                sender_id=UserId(""),
                client_message_id=ClientMessageId(""),
                content_type="",
                created_at_ms=0,
            )
        chat.messages[-1] = message
        return message

    def digest(self) -> list[DigestEntry]:
        return [
            DigestEntry(
                chat_id=chat.chat_id,
                chat_type=chat.chat_type,
                head=chat.head,
                membership_version=chat.membership_version,
                joined_sequence=0,
                delivered=chat.delivered,
                read=chat.read,
                others_delivered=chat.others_delivered,
                others_read=chat.others_read,
                unread=min(
                    sum(
                        1
                        for message in chat.messages
                        if message.sequence > chat.read
                        and message.sender_id != self.own_id
                        and message.amends is None
                        and not message.is_deleted
                    ),
                    100,
                ),
            )
            for chat in self.chats.values()
            if chat.is_member
        ]

    def restored(self, keep: int) -> None:
        """Go back to a backup in which every chat has `keep` messages; the counters jump ahead."""
        self.epoch += "+"
        for chat in self.chats.values():
            del chat.messages[keep:]
            chat.counter += 1 << 20
            chat.delivered = min(chat.delivered, chat.head)
            chat.read = min(chat.read, chat.head)


def _edits(entry: Message, target: Message) -> bool:
    amends = entry.amends
    return amends is not None and (amends.kind, amends.target) == (
        EntryKind.EDIT,
        target.sequence,
    )
