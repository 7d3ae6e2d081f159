"""Rows of the tables as values of the domain, and back; those of the log are in `entries`. PURE."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidewire.domain import outbox
from tidewire.domain.accounts import Session, StoredRequest
from tidewire.domain.chats import Chat, Member
from tidewire.domain.delivery import Positions
from tidewire.domain.events import (
    ChangeEvent,
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, ConnectionId
from tidewire.domain.messages import Message
from tidewire.domain.sessions import StoredSession
from tidewire.domain.users import User
from tidewire.engines.dynamodb.rows import Row, Shape, Value

ACTIVE: Final = "active"
PENDING: Final = "pending"
"""A group that is still being filled: its members do not see it yet."""
CLOSED: Final = "closed"
"""A group that was closed: it has no member any more, and is not seen either."""
PENDING_DELETIONS: Final = "#deletions"
"""The partition of the names with the deletions that were begun; no name begins with #."""

CHAT: Final = Shape(Chat, head="last_sequence")
MEMBER: Final = Shape(Member)
USER: Final = Shape(User)
REQUEST: Final = Shape(StoredRequest)
SESSION: Final = Shape(Session, generation="token_generation")


# Chats and members.


def chat_of(row: Row | None) -> Chat | None:
    """The chat; None if there is none, or if it is not visible yet or is closed."""
    return CHAT.value(row) if row is not None and row["status"] == ACTIVE else None


def any_chat_of(row: Row | None) -> Chat | None:
    """As `chat_of`, but also a closed chat: the server itself may still write into it."""
    return CHAT.value(row) if row is not None and row["status"] != PENDING else None


def chat_row(chat: Chat, *, status: str = ACTIVE) -> dict[str, Value]:
    return CHAT.row(chat) | {
        "status": status,
        # Most chats have none, and need no attribute for it.
        "block_changes": chat.block_changes or None,
        "last_message_at": 0,
    }


def last_message(row: Row) -> int:
    """The sequence of a chat's last message, by its head row; absent: the last entry is one."""
    found: int = row["last_message"] if "last_message" in row else row["last_sequence"]
    return found


def last_mention(row: Row) -> int:
    """The sequence of the last message of a chat that mentions members; 0: there is none."""
    found: int = row.get("last_mention", 0)
    return found


class MemberState(msgspec.Struct, frozen=True):
    """A membership with what matters for the member's own sends only."""

    member: Member
    is_blocked: bool


def member_row(chat_id: ChatId, member: Member, *, is_blocked: bool = False) -> dict[str, Value]:
    return MEMBER.row(member) | {"chat_id": chat_id, "blocked": True if is_blocked else None}


def member_of(row: Row | None) -> Member | None:
    return None if row is None else MEMBER.value(row)


def member_state_of(row: Row | None) -> MemberState | None:
    if row is None:
        return None
    return MemberState(MEMBER.value(row), is_blocked=row.get("blocked", False))


def user_chat_row(chat: Chat, member: Member) -> dict[str, Value]:
    """A row of a user's list of chats: enough to sort the list without reading each chat."""
    return {
        "user_id": member.user_id,
        "chat_id": chat.chat_id,
        "chat_type": chat.chat_type,
        "joined_at": member.joined_at_ms,
    }


def positions_of(row: Row | None) -> Positions:
    """Without a row the positions are 0."""
    if row is None:
        return Positions(0, 0)
    return Positions(row["last_acked_sequence"], row["last_read_sequence"])


# People.


def user_row(user: User, *, password_hash: str | None = None) -> dict[str, Value]:
    return USER.row(user) | {
        "password_hash": password_hash,
        "logins_version": 0,
        "blocks_count": 0,
    }


def name_key(username: str) -> dict[str, Value]:
    """Where a name is kept: by its first letter, so that names can be listed in their order."""
    folded = username.casefold()
    return {"initial": folded[:1], "username": folded}


def can_join(row: Row | None) -> bool:
    """Whether the user of this row can be put into a chat."""
    return row is not None and USER.value(row).can_join


def pending_key(user_id: str) -> dict[str, Value]:
    """Where a deletion that was begun is kept: among the names, in a partition without names."""
    return {"initial": PENDING_DELETIONS, "username": user_id}


def name_row(user: User) -> dict[str, Value]:
    return name_key(user.username) | {"user_id": user.user_id}


# Sessions.


def session_row(session: Session, *, refresh_hash: bytes | None) -> dict[str, Value]:
    return SESSION.row(session) | {
        "refresh_token_hash": refresh_hash,
        "rotated_at": 0,
        "ttl": expiry(session.expires_at_ms),
    }


def moving_fields(session: Session) -> dict[str, Value]:
    """The fields that a refresh changes, except its tokens."""
    row = session_row(session, refresh_hash=None)
    names = ("last_active_at", "expires_at", "ttl", "address", "client")
    return {name: row[name] for name in names if row[name] is not None}


def user_session_row(session: Session) -> dict[str, Value]:
    """A row of the list of a user's sessions: an index that does not lag."""
    return {
        "user_id": session.user_id,
        "session_id": session.session_id,
        "ttl": expiry(session.expires_at_ms),
    }


def stored_session_of(row: Row) -> StoredSession:
    return StoredSession(
        session=SESSION.value(row),
        refresh_hash=row.get("refresh_token_hash"),
        previous_hash=row.get("prev_token_hash"),
        rotated_at_ms=row["rotated_at"],
    )


def expiry(expires_at_ms: int) -> int:
    """The `ttl` of a row: the second after it has expired, so that it is never deleted early."""
    return -(-expires_at_ms // 1000)


# The outbox and its leases. All leases lie in one partition, together with the relays that are
# running, so that one query shows which relay looks after which shard.

LEASES_OF: Final = "outbox"
"""The partition of the leases."""
_SHARD: Final = "shard#"
_RELAY: Final = "relay#"

_KINDS: Final[dict[str, type[ChangeEvent]]] = {
    kind.__name__: kind for kind in (ChatCreated, ChatRenamed, MembershipChanged, ChatClosed)
}


def messages_row(
    messages: Sequence[Message],
    origins: Sequence[ConnectionId | None],
    *,
    membership_version: int,
    now_ms: int,
) -> dict[str, Value]:
    chat_id = messages[0].chat_id
    return outbox_key(outbox.messages_key(chat_id, messages[0].sequence)) | {
        "chat_id": chat_id,
        "sequences": [message.sequence for message in messages],
        "membership_version": membership_version,
        "origins": [origin or "" for origin in origins],
        "created_at": now_ms,
    }


def change_row(event: ChangeEvent, *, now_ms: int) -> dict[str, Value]:
    key = outbox.change_key(event.chat.chat_id, event.chat.membership_version)
    return outbox_key(key) | {
        "chat_id": event.chat.chat_id,
        "kind": type(event).__name__,
        "event": msgspec.json.encode(event),
        "created_at": now_ms,
    }


def outbox_row_of(row: Row) -> outbox.OutboxRow:
    """A row that cannot be read becomes Unreadable: the others must still be read."""
    key = outbox.OutboxKey(row["shard"], row["row"])
    try:
        created_at_ms = msgspec.convert(row["created_at"], int)
        content = _messages_of(row) if "sequences" in row else _change_of(row)
    except (KeyError, TypeError, ValueError) as error:
        # Only the type of the error: the row may contain what people have written.
        return outbox.OutboxRow(key, 0, outbox.Unreadable(type(error).__name__))
    return outbox.OutboxRow(key, created_at_ms, content)


def _messages_of(row: Row) -> outbox.PersistedMessages:
    fields = {name: row[name] for name in ("chat_id", "sequences", "membership_version")}
    origins = [origin or None for origin in row["origins"]]
    content = msgspec.convert(fields | {"origins": origins}, outbox.PersistedMessages)
    if not 0 < len(content.sequences) == len(content.origins):
        raise ValueError("each message has an origin")
    return content


def _change_of(row: Row) -> ChangeEvent:
    return msgspec.json.decode(row["event"], type=_KINDS[row["kind"]])


def outbox_key(key: outbox.OutboxKey) -> dict[str, Value]:
    return {"shard": key.shard, "row": key.row}


def lease_key(shard: int) -> dict[str, Value]:
    return {"leases_of": LEASES_OF, "lease": f"{_SHARD}{shard:04d}"}


def relay_key(relay_id: str) -> dict[str, Value]:
    return {"leases_of": LEASES_OF, "lease": _RELAY + relay_id}


def lease_table_of(rows: Iterable[Row], *, now_ms: int) -> outbox.LeaseTable:
    """Expired rows count as absent: DynamoDB deletes them late. A lease lasts as long as the row of
    its owner, so that one row has to be renewed and not one for each shard."""
    rows = list(rows)
    until = {
        row["lease"].removeprefix(_RELAY): row["until"]
        for row in rows
        if row["lease"].startswith(_RELAY)
    }
    relays, leases = [], []
    for row in rows:
        name: str = row["lease"]
        if name.startswith(_RELAY):
            if row["until"] > now_ms:
                relays.append(name.removeprefix(_RELAY))
            continue
        until_ms = max(row["until"], until.get(row["owner"], 0))
        if until_ms > now_ms:
            leases.append(outbox.Lease(int(name.removeprefix(_SHARD)), row["owner"], until_ms))
    return outbox.LeaseTable(tuple(relays), tuple(leases))
