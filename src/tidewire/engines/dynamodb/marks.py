"""The mark of membership on the rows of positions, so that a move is one write of one row. PURE.

A row of positions carries its owner's `joined_sequence` for as long as its owner is a member. A
change of the membership writes or clears it in the same transaction; a move is conditioned on it.
The row stays when its owner leaves: positions survive.
"""

from typing import Final

from tidewire.domain.chats import Member
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.known import Place
from tidewire.engines.dynamodb.rows import Row, Value, Write

MARK: Final = "joined_sequence"
_IS_MEMBER: Final = f"attribute_exists(#{MARK})"
_BEGIN: Final = (
    "#last_acked_sequence = if_not_exists(#last_acked_sequence, :none),"
    " #last_read_sequence = if_not_exists(#last_read_sequence, :none),"
    " #updated_at = if_not_exists(#updated_at, :at)"
)
"""A row that does not exist yet begins with positions of 0."""


def position_key(chat_id: ChatId, user_id: UserId) -> dict[str, Value]:
    return {"user_id": user_id, "chat_id": chat_id}


def first_row(chat_id: ChatId, member: Member) -> dict[str, Value]:
    """The row of a founding member."""
    return position_key(chat_id, member.user_id) | {
        "last_acked_sequence": 0,
        "last_read_sequence": 0,
        "updated_at": member.joined_at_ms,
        MARK: member.joined_sequence,
    }


def mark(chat_id: ChatId, member: Member) -> Write:
    """Mark a member from now on; the positions of an earlier membership stay."""
    return rows.update(
        schema.POSITIONS,
        position_key(chat_id, member.user_id),
        f"SET #{MARK} = :joined, {_BEGIN}",
        joined=member.joined_sequence,
        none=0,
        at=member.joined_at_ms,
    )


def unmark(chat_id: ChatId, user_id: UserId, *, now_ms: int) -> Write:
    """Take the mark away: the user is not a member from now on."""
    return rows.update(
        schema.POSITIONS,
        position_key(chat_id, user_id),
        f"SET {_BEGIN} REMOVE #{MARK}",
        none=0,
        at=now_ms,
    )


def hide(chat_id: ChatId, member: Member, head: int) -> Write:
    """Hide the chat from the member until there is a message above `head`."""
    return rows.update(
        schema.POSITIONS,
        position_key(chat_id, member.user_id),
        f"SET #hidden_through = :head, {_BEGIN}",
        head=head,
        none=0,
        at=member.joined_at_ms,
    )


def is_marked(row: Row | None) -> bool:
    return row is not None and MARK in row


def forward(place: Place, to: Positions, *, now_ms: int, needs_mark: bool = True) -> Write:
    """Move positions up to `to`, if neither is higher already and their owner is a member.

    A read of 0 leaves `read` as it is. Without `needs_mark` another row of the same transaction has
    to check the membership; the row of positions may then be missing.
    """
    steps = ["#last_acked_sequence = :delivered", "#updated_at = :now"]
    conditions = ["#last_acked_sequence <= :delivered"]
    new: dict[str, Value] = {"delivered": to.delivered, "now": now_ms}
    if to.read or not needs_mark:
        steps.append("#last_read_sequence = :read")
        conditions.append("#last_read_sequence <= :read")
        new["read"] = to.read
    is_forward = " AND ".join(conditions)
    condition = f"{_IS_MEMBER} AND {is_forward}"
    if not needs_mark:
        condition = f"attribute_not_exists(#user_id) OR ({is_forward})"
    return rows.update(
        schema.POSITIONS,
        position_key(*place),
        "SET " + ", ".join(steps),
        condition=condition,
        **new,
    )
