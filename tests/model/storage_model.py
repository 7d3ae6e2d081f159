"""What a store should do, in the plainest way: every question is answered by looking at everything.

Independent of `domain.access` and `domain.delivery`: the rules stand here once more, naively, in
the words of docs/guarantees.md and of decisions 0002 to 0007; those about messages that change, in
`entries_model`. Answers and events are tuples, so that they can be compared with what an engine
gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from tests.model import entries_model
from tidewire.domain.delivery import Advance
from tidewire.domain.ids import SYSTEM, ChatId, MessageId, UserId
from tidewire.domain.messages import EntryKind, Message, SendMessage, said_by

Answer = tuple[Any, ...]
Told = tuple[Any, ...]

NOT_A_MEMBER: Final[Answer] = ("NotAMember",)
DONE: Final[Answer] = ("done",)

MAY: Final = {
    "rename": ("owner", "admin"),
    "add member": ("owner", "admin"),
    "add admin": ("owner",),
    "remove member": ("owner", "admin"),
    "remove admin": ("owner",),
    "change role": ("owner",),
    "hand over": ("owner",),
    "close": ("owner",),
    "leave": ("admin", "member"),
}


@dataclass
class ModelChat:
    chat_id: ChatId
    chat_type: str
    name: str | None
    roles: dict[UserId, str]
    version: int = 1
    is_closed: bool = False
    counter: int = 0
    log: list[Message] = field(default_factory=list)
    written: list[Message] = field(default_factory=list)
    """The same entries as they were before a deletion: what a device may still hold."""
    joined: dict[UserId, int] = field(default_factory=dict)
    delivered: dict[UserId, int] = field(default_factory=dict)
    read: dict[UserId, int] = field(default_factory=dict)
    """Positions and joinings outlive the membership; a missing one is 0."""

    @property
    def head(self) -> int:
        return max((message.sequence for message in self.log), default=0)

    def effective(self, positions: dict[UserId, int], user: UserId) -> int:
        return max(positions.get(user, 0), self.joined.get(user, 0))

    def others(self, positions: dict[UserId, int], viewer: UserId) -> int:
        """The minimum over the other members; the head if there is none."""
        return min(
            (self.effective(positions, user) for user in self.roles if user != viewer),
            default=self.head,
        )

    def unread(self, user: UserId) -> list[Message]:
        read = self.effective(self.read, user)
        above = [message for message in self.log if message.sequence > read]
        return [message for message in above if entries_model.is_unread(message, user)]

    def digest_entry(self, user: UserId) -> Answer:
        return (
            self.chat_id,
            self.chat_type,
            self.head,
            self.version,
            self.joined.get(user, 0),
            self.delivered.get(user, 0),
            self.read.get(user, 0),
            self.others(self.delivered, user),
            self.others(self.read, user),
            min(100, len(self.unread(user))),
            min(100, len([one for one in self.unread(user) if entries_model.mentions(one, user)])),
        )


class Model:
    """All chats, who exists, and what the listener should have been told since the last act."""

    def __init__(self) -> None:
        self.people: list[UserId] = []
        self.chats: dict[ChatId, ModelChat] = {}
        self.told: list[Told] = []

    # Messages.

    def append(self, sends: Sequence[SendMessage], now_ms: int) -> list[Answer]:
        before = {chat_id: chat.counter for chat_id, chat in self.chats.items()}
        return [self._append(send, now_ms, before.get(send.chat_id, 0)) for send in sends]

    def _append(self, send: SendMessage, now_ms: int, before: int) -> Answer:
        """`before` is where the chat ended before the batch."""
        chat = self.chats.get(send.chat_id)
        same_key = [
            message
            for message in (chat.log if chat else [])
            if message.client_message_id == send.client_message_id
        ]
        for message in same_key:
            if message.sender_id == send.sender_id:
                numbers = numbers_of(message)
                # Of what was erased there is nothing left to compare; of what this very batch
                # erases there may be.
                if message.deleted_by is not None and message.deleted_by > before:
                    return ("own key", *numbers)
                is_same = message.is_deleted or said_by(message) == said_by(send)
                return ("again", *numbers) if is_same else ("KeyReused", *numbers)
        if chat is None or (send.sender_id not in chat.roles and send.sender_id != SYSTEM):
            return NOT_A_MEMBER
        if same_key:
            return ("KeyReused",)
        if refusal := entries_model.refusal_of(chat.log, chat.roles, send):
            return refusal
        message = Message(
            chat_id=send.chat_id,
            sequence=chat.counter + 1,
            prev_sequence=chat.head,
            message_id=_placed(send.message_id, chat.counter + 1),
            sender_id=send.sender_id,
            client_message_id=send.client_message_id,
            content=send.content,
            content_type=send.content_type,
            created_at_ms=now_ms,
            reply_to=send.reply_to,
            mentions=send.mentions,
            amends=send.amends,
        )
        message = replace(message, count=entries_model.count_of(chat.log, message))
        moderated = entries_model.moderated(chat.log, send)
        self.told.append(("message", message, chat.version))
        if send.sender_id != SYSTEM:
            # Who corrects an old message has not read what came since.
            self._move_author(chat, message, send.seen_sequence if send.amends is None else 0)
        chat.log.append(message)
        chat.written.append(message)
        chat.counter = message.sequence
        if message.kind is EntryKind.DELETE:
            chat.log = entries_model.erased(chat.log, message)
        return ("stored", *numbers_of(message), moderated, message.count)

    def _move_author(self, chat: ModelChat, message: Message, seen: int | None) -> None:
        author, prev = message.sender_id, message.prev_sequence
        bounds = [chat.delivered.get(author, 0), prev]
        if seen is not None:
            bounds.append(seen)
        has_read = min(bounds) > chat.read.get(author, 0)
        if has_read:
            chat.read[author] = min(bounds)
        for positions in (chat.delivered, chat.read):
            if chat.effective(positions, author) == prev:
                positions[author] = message.sequence
        if has_read:
            self._tell_positions(chat, author)

    def page_after(
        self, reader: UserId, chat_id: ChatId, after: int, count_max: int, bytes_max: int
    ) -> Answer:
        chat = self.chats.get(chat_id)
        if chat is None or reader not in chat.roles:
            return NOT_A_MEMBER
        if after > chat.head:
            return ("CursorAhead", chat.head)
        waiting = [message for message in chat.log if message.sequence > after]
        page = cut(waiting, count_max, bytes_max)
        through = page[-1].sequence if page else after
        return (page, through, len(page) < len(waiting), chat.head)

    def page_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, count_max: int, bytes_max: int
    ) -> Answer:
        chat = self.chats.get(chat_id)
        if chat is None or reader not in chat.roles:
            return NOT_A_MEMBER
        older = [m for m in reversed(chat.log) if before is None or m.sequence < before]
        page = cut(older, count_max, bytes_max)
        return (page[::-1], len(page) < len(older), chat.head)

    # Chats.

    def create_direct(self, chat_id: ChatId, actor: UserId, other: UserId) -> Answer:
        if actor == other:
            return ("InvalidOperation",)
        if actor not in self.people or other not in self.people:
            return ("UserNotFound",)
        for chat in self.chats.values():
            if chat.chat_type == "direct" and set(chat.roles) == {actor, other}:
                return ("found", chat.chat_id)
        return self._create(chat_id, "direct", None, {actor: "member", other: "member"})

    def create_group(
        self, chat_id: ChatId, actor: UserId, members: Sequence[UserId], bound: int
    ) -> Answer:
        if len(members) + 1 > bound:
            return ("ChatIsFull",)
        if any(user not in self.people for user in (actor, *members)):
            return ("UserNotFound",)
        roles = {actor: "owner"} | dict.fromkeys(members, "member")
        return self._create(chat_id, "group", "team", roles)

    def _create(
        self, chat_id: ChatId, chat_type: str, name: str | None, roles: dict[UserId, str]
    ) -> Answer:
        self.chats[chat_id] = ModelChat(chat_id, chat_type, name, roles)
        self.told.append(("created", chat_id, chat_type, sorted(roles)))
        return ("created", chat_id)

    def add(self, actor: UserId, chat_id: ChatId, user: UserId, role: str, bound: int) -> Answer:
        if role == "owner":
            return ("InvalidOperation",)
        refusal, chat = self._may(actor, chat_id, f"add {role}")
        if chat is None:
            return refusal
        if user not in self.people:
            return ("UserNotFound",)
        if user in chat.roles:
            return ("AlreadyAMember",)
        if len(chat.roles) >= bound:
            return ("ChatIsFull",)
        chat.roles[user] = role
        chat.joined[user] = chat.head
        self._tell_change(chat, "added", user, role, actor)
        return ("member", role, chat.head)

    def remove(self, actor: UserId, chat_id: ChatId, user: UserId) -> Answer:
        known = self.chats.get(chat_id)
        if known is not None and actor == user and actor in known.roles:
            return ("InvalidOperation",)
        role = known.roles.get(user) if known is not None else None
        refusal, chat = self._may(
            actor, chat_id, "remove admin" if role == "admin" else "remove member"
        )
        if chat is None:
            return refusal
        if role is None:
            return ("UserNotFound",)
        if role == "owner":
            return ("InvalidOperation",)
        return self._part(chat, user, actor)

    def leave(self, actor: UserId, chat_id: ChatId) -> Answer:
        known = self.chats.get(chat_id)
        if known is not None and known.roles.get(actor) == "owner":
            return ("InvalidOperation",)
        refusal, chat = self._may(actor, chat_id, "leave")
        return refusal if chat is None else self._part(chat, actor, actor)

    def _part(self, chat: ModelChat, user: UserId, actor: UserId) -> Answer:
        role = chat.roles.pop(user)
        self._tell_change(chat, "removed", user, role, actor)
        return DONE

    def change_role(self, actor: UserId, chat_id: ChatId, user: UserId, role: str) -> Answer:
        if role == "owner":
            return ("InvalidOperation",)
        refusal, chat = self._may(actor, chat_id, "change role")
        if chat is None:
            return refusal
        if user not in chat.roles:
            return ("UserNotFound",)
        if chat.roles[user] == "owner":
            return ("InvalidOperation",)
        if chat.roles[user] != role:
            chat.roles[user] = role
            self._tell_change(chat, "role_changed", user, role, actor)
        return ("member", role, chat.joined.get(user, 0))

    def hand_over(self, actor: UserId, chat_id: ChatId, user: UserId) -> Answer:
        known = self.chats.get(chat_id)
        if known is not None and actor in known.roles and known.roles.get(user) == "owner":
            return ("member", "owner", known.joined.get(user, 0))
        refusal, chat = self._may(actor, chat_id, "hand over")
        if chat is None:
            return refusal
        if user not in chat.roles:
            return ("UserNotFound",)
        for one, role in ((user, "owner"), (actor, "admin")):
            chat.roles[one] = role
            self._tell_change(chat, "role_changed", one, role, actor)
        return ("member", "owner", chat.joined.get(user, 0))

    def close(self, actor: UserId, chat_id: ChatId) -> Answer:
        refusal, chat = self._may(actor, chat_id, "close")
        if chat is None:
            return refusal
        chat.version += 1
        self.told.append(("closed", chat_id, sorted(chat.roles), chat.version))
        chat.roles.clear()
        chat.is_closed = True
        return DONE

    def rename(self, actor: UserId, chat_id: ChatId, name: str) -> Answer:
        refusal, chat = self._may(actor, chat_id, "rename")
        if chat is None:
            return refusal
        if chat.name != name:
            chat.name = name
            chat.version += 1
            self.told.append(("renamed", chat_id, name, chat.version, actor))
        return ("renamed", name, chat.version)

    def _may(self, actor: UserId, chat_id: ChatId, what: str) -> tuple[Answer, ModelChat | None]:
        """The chat if the actor may do it, else the refusal."""
        chat = self.chats.get(chat_id)
        if chat is None or actor not in chat.roles:
            return NOT_A_MEMBER, None
        if chat.chat_type == "direct":
            return ("InvalidOperation",), None
        if chat.roles[actor] not in MAY[what]:
            return ("Forbidden",), None
        return DONE, chat

    # Positions.

    def advance(self, advance: Advance) -> Answer:
        chat = self.chats.get(advance.chat_id)
        user = advance.user_id
        if chat is None or user not in chat.roles:
            return NOT_A_MEMBER
        if max(advance.delivered, advance.read) > chat.head:
            return ("SequenceAboveHead", chat.head)
        before = chat.delivered.get(user, 0), chat.read.get(user, 0)
        after = max(before[0], advance.delivered, advance.read), max(before[1], advance.read)
        chat.delivered[user], chat.read[user] = after
        if after != before:
            self._tell_positions(chat, user)
        return ("positions", *after, after != before)

    def delivery_status(self, reader: UserId, chat_id: ChatId, sequence: int | None) -> Answer:
        chat = self.chats.get(chat_id)
        if chat is None or reader not in chat.roles:
            return NOT_A_MEMBER
        at = chat.head if sequence is None else sequence
        if at > chat.head:
            return ("SequenceAboveHead", chat.head)
        authors = [message.sender_id for message in chat.log if message.sequence == at]
        awaited = [u for u in chat.roles if u not in authors and chat.joined.get(u, 0) < at]
        delivered = [user for user in awaited if chat.delivered.get(user, 0) >= at]
        read = [user for user in awaited if chat.read.get(user, 0) >= at]
        return ("status", at, len(delivered), len(read), len(awaited) - len(delivered))

    def digest(self, user: UserId) -> list[Answer]:
        return [
            self.chats[chat_id].digest_entry(user)
            for chat_id in sorted(self.chats)
            if user in self.chats[chat_id].roles
        ]

    # Events.

    def _tell_positions(self, chat: ModelChat, user: UserId) -> None:
        positions = chat.delivered.get(user, 0), chat.read.get(user, 0)
        self.told.append(("positions", chat.chat_id, user, *positions))

    def _tell_change(
        self, chat: ModelChat, change: str, user: UserId, role: str, actor: UserId
    ) -> None:
        chat.version += 1
        joined = chat.joined.get(user, 0)
        self.told.append((change, chat.chat_id, user, role, joined, chat.version, actor))


def _placed(message_id: MessageId, sequence: int) -> MessageId:
    """When it was made, by which it differs from others of then, and its place in base 32."""
    place = ""
    for _ in range(8):
        sequence, digit = divmod(sequence, 32)
        place = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit] + place
    return MessageId(message_id[:14] + message_id[22:] + place)


def numbers_of(message: Message) -> Answer:
    return (message.sequence, message.prev_sequence, message.message_id, message.created_at_ms)


def cut(messages: Sequence[Message], count_max: int, bytes_max: int) -> list[Message]:
    """The longest beginning within both bounds, but at least one message."""
    fitting = [
        count
        for count in range(1, min(count_max, len(messages)) + 1)
        if count == 1 or sum(len(m.content.encode()) for m in messages[:count]) <= bytes_max
    ]
    return list(messages[: max(fitting, default=0)])
