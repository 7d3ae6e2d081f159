"""Rows of the tables as values of the domain, and back. PURE."""

import hashlib
from typing import Final

import msgspec

from tidewire.domain.chats import Chat, ChatType, Member, Role
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Appended, Message, SendMessage
from tidewire.domain.users import User
from tidewire.engines.dynamodb.rows import Row, Value

KEY_LIFE_SECONDS: Final = 7 * 24 * 3600
"""How long a client_message_id is remembered (ADR-004)."""

ACTIVE: Final = "active"
PENDING: Final = "pending"
"""A group that is still being filled: nobody sees it."""
CLOSED: Final = "closed"
"""A group that was closed: there is no member any more, so nobody sees it either."""
PENDING_DELETIONS: Final = "#deletions"
"""The part of the names that holds deletions which were begun; no name begins with #."""


# Messages and their keys.


def message_row(message: Message) -> dict[str, Value]:
    return {
        "chat_id": message.chat_id,
        "sequence": message.sequence,
        "prev_sequence": message.prev_sequence,
        "message_id": message.message_id,
        "sender_id": message.sender_id,
        "client_message_id": message.client_message_id,
        "content": message.content,
        "content_type": message.content_type,
        "created_at": message.created_at_ms,
    }


def message_of(row: Row) -> Message:
    return Message(
        chat_id=ChatId(row["chat_id"]),
        sequence=row["sequence"],
        prev_sequence=row["prev_sequence"],
        message_id=MessageId(row["message_id"]),
        sender_id=UserId(row["sender_id"]),
        client_message_id=ClientMessageId(row["client_message_id"]),
        content=row["content"],
        content_type=row["content_type"],
        created_at_ms=row["created_at"],
    )


class StoredKey(msgspec.Struct, frozen=True):
    """What is remembered of a message under its client_message_id."""

    sender_id: UserId
    content_hash: bytes
    answer: Appended


def content_hash(content: str, content_type: str) -> bytes:
    return hashlib.sha256(f"{content_type}\0{content}".encode()).digest()


def key_row(message: Message) -> dict[str, Value]:
    return {
        "chat_id": message.chat_id,
        "client_message_id": message.client_message_id,
        "message_id": message.message_id,
        "sequence": message.sequence,
        "prev_sequence": message.prev_sequence,
        "sender_id": message.sender_id,
        "content_hash": content_hash(message.content, message.content_type),
        "created_at": message.created_at_ms,
        "ttl": message.created_at_ms // 1000 + KEY_LIFE_SECONDS,
    }


def key_of(row: Row | None, *, now_ms: int) -> StoredKey | None:
    """The key, unless there is none or it has expired: DynamoDB deletes up to two days late."""
    if row is None or has_expired(row, now_ms=now_ms):
        return None
    answer = Appended(
        message_id=MessageId(row["message_id"]),
        sequence=row["sequence"],
        prev_sequence=row["prev_sequence"],
        created_at_ms=row["created_at"],
        deduplicated=True,
    )
    return StoredKey(UserId(row["sender_id"]), row["content_hash"], answer)


def has_expired(row: Row, *, now_ms: int) -> bool:
    return bool(row["ttl"] <= now_ms // 1000)


def is_same(send: SendMessage, key: StoredKey) -> bool:
    return content_hash(send.content, send.content_type) == key.content_hash


# Chats and members.


def chat_of(row: Row | None) -> Chat | None:
    """The chat, unless there is none that anybody may see, yet or any more."""
    if row is None or row["status"] != ACTIVE:
        return None
    return Chat(
        chat_id=ChatId(row["chat_id"]),
        chat_type=ChatType(row["chat_type"]),
        name=row.get("name"),
        created_by=UserId(row["created_by"]),
        created_at_ms=row["created_at"],
        updated_at_ms=row["updated_at"],
        membership_version=row["membership_version"],
        member_count=row["member_count"],
        head=row["last_sequence"],
        block_changes=row.get("block_changes", 0),
    )


def chat_row(chat: Chat, *, status: str = ACTIVE) -> dict[str, Value]:
    return {
        "chat_id": chat.chat_id,
        "chat_type": chat.chat_type.value,
        "name": chat.name,
        "created_by": chat.created_by,
        "created_at": chat.created_at_ms,
        "updated_at": chat.updated_at_ms,
        "status": status,
        "member_count": chat.member_count,
        "membership_version": chat.membership_version,
        "last_sequence": chat.head,
        # Most chats have none, and need no attribute for it.
        "block_changes": chat.block_changes or None,
        "last_message_at": 0,
    }


class MemberState(msgspec.Struct, frozen=True):
    """A membership with what concerns its own sends only."""

    member: Member
    is_blocked: bool


def member_row(chat_id: ChatId, member: Member, *, is_blocked: bool = False) -> dict[str, Value]:
    return {
        "chat_id": chat_id,
        "user_id": member.user_id,
        "role": member.role.value,
        "joined_at": member.joined_at_ms,
        "joined_sequence": member.joined_sequence,
        "added_by": member.added_by,
        "muted_until": member.muted_until_ms,
        "blocked": True if is_blocked else None,
    }


def member_of(row: Row | None) -> Member | None:
    if row is None:
        return None
    return Member(
        user_id=UserId(row["user_id"]),
        role=Role(row["role"]),
        joined_at_ms=row["joined_at"],
        joined_sequence=row["joined_sequence"],
        added_by=UserId(row["added_by"]),
        muted_until_ms=row.get("muted_until"),
    )


def member_state_of(row: Row | None) -> MemberState | None:
    member = member_of(row)
    if row is None or member is None:
        return None
    return MemberState(member, is_blocked=row.get("blocked", False))


def user_chat_row(chat: Chat, member: Member) -> dict[str, Value]:
    """What a user's list of chats keeps: enough to sort it without looking into each."""
    return {
        "user_id": member.user_id,
        "chat_id": chat.chat_id,
        "chat_type": chat.chat_type.value,
        "joined_at": member.joined_at_ms,
    }


def positions_of(row: Row | None) -> Positions:
    """A row that is not there yet is at the beginning."""
    if row is None:
        return Positions(0, 0)
    return Positions(row["last_acked_sequence"], row["last_read_sequence"])


# People.


def user_row(user: User, *, password_hash: str | None = None) -> dict[str, Value]:
    return {
        "user_id": user.user_id,
        "username": user.username,
        "display_name": user.display_name,
        "created_at": user.created_at_ms,
        "updated_at": user.updated_at_ms,
        "disabled_at": user.disabled_at_ms,
        "enabled_at": user.enabled_at_ms,
        "deleted_at": user.deleted_at_ms,
        "password_hash": password_hash,
        "logins_version": 0,
        "blocks_count": 0,
    }


def user_of(row: Row) -> User:
    return User(
        user_id=UserId(row["user_id"]),
        username=row["username"],
        display_name=row["display_name"],
        created_at_ms=row["created_at"],
        updated_at_ms=row["updated_at"],
        disabled_at_ms=row.get("disabled_at"),
        enabled_at_ms=row.get("enabled_at"),
        deleted_at_ms=row.get("deleted_at"),
    )


def name_key(username: str) -> dict[str, Value]:
    """Where a name is kept: by its first letter, so that names can be listed in their order."""
    folded = username.casefold()
    return {"initial": folded[:1], "username": folded}


def can_join(row: Row | None) -> bool:
    """Whether the user of this row can be put into a chat."""
    return row is not None and user_of(row).can_join


def pending_key(user_id: str) -> dict[str, Value]:
    """Where a deletion that was begun is kept: among the names, in a part that no name is in."""
    return {"initial": PENDING_DELETIONS, "username": user_id}


def name_row(user: User) -> dict[str, Value]:
    return name_key(user.username) | {"user_id": user.user_id}
