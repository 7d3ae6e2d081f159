"""An entry as a row: a column for each field that every entry has, and `extra` for the rest. PURE.

Few entries have more than the first fields. So a store keeps the others, but `target` and
`deleted_by`, in one more column, `extra`: JSON without absent fields. A plain message has none.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from tidewire.domain.ids import UserId
from tidewire.domain.messages import Amendment, EntryKind, Message

PLAIN_FIELDS: Final = Message.__struct_fields__[:9]
"""The fields that every entry has, up to the time."""
ROW_FIELDS: Final = (*PLAIN_FIELDS, "target", "extra", "deleted_by")
NUMBER_FIELDS: Final = frozenset(
    {"sequence", "prev_sequence", "created_at_ms", "target", "deleted_by"}
)
"""Those that are whole numbers; the others are text."""

NOT_PLAIN: Final = len(PLAIN_FIELDS)
"""Where in a row the fields begin that a plain message does not have."""


class _Extra(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    kind: EntryKind | None = None
    emoji: str | None = None
    is_on: bool = True
    count: int = 0
    reason: str | None = None
    reply_to: int | None = None
    mentions: tuple[UserId, ...] = ()


_NOTHING: Final = _Extra()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Extra).decode


def row_of(message: Message) -> tuple[Any, ...]:
    """The values of `ROW_FIELDS`."""
    amends = message.amends
    target = None if amends is None else amends.target
    return (*astuple(message)[:NOT_PLAIN], target, extra_of(message), message.deleted_by)


def extra_of(message: Message) -> str | None:
    """The fields that only some entries have, as text; None if the entry has none of them."""
    amends = message.amends
    if amends is not None:
        extra = _Extra(amends.kind, amends.emoji, amends.is_on, message.count, amends.reason)
    elif message.reply_to is None and not message.mentions:
        return None
    else:
        extra = _Extra(reply_to=message.reply_to, mentions=message.mentions)
    return _encode(extra).decode()


def entry_of_row(row: Sequence[Any]) -> Message:
    """The entry of the values of `ROW_FIELDS`. Raises ValueError if they do not form one."""
    target, extra_text, deleted_by = row[NOT_PLAIN:]
    extra = _NOTHING if extra_text is None else _decode(extra_text)
    amends = None
    if (target is None) != (extra.kind is None):
        raise ValueError("an entry has a target if it is no message, and only then")
    if extra.kind is not None:
        amends = Amendment(
            kind=extra.kind,
            target=target,
            emoji=extra.emoji,
            is_on=extra.is_on,
            reason=extra.reason,
        )
    others = (extra.reply_to, extra.mentions, amends, extra.count, deleted_by)
    return Message(*(*row[:NOT_PLAIN], *others))
