"""Reactions: which user has which emoji on a message, and what a reader is shown of them.

There is a row for each user and emoji on a message, and everything is counted from these rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.amendments import Target
from tidewire.domain.fold import Reaction
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import REACTION_USERS_MAX
from tidewire.domain.messages import Message
from tidewire.engines.sqlite.database import execute_rows, for_rows

COUNTS_ON: Final = """
        SELECT group_concat(count || ' ' || emoji, char(10)) FROM (
            SELECT emoji, sum(is_on) AS count FROM reactions
            WHERE reactions.chat_id = question.chat_id AND reactions.target = question.sequence
            GROUP BY emoji
        )"""
IS_ON: Final = """
        SELECT is_on FROM reactions
        WHERE reactions.chat_id = question.chat_id AND reactions.target = question.sequence
            AND reactions.emoji = question.emoji AND reactions.user_id = question.user_id"""
"""Of a `question`: how many users have which emoji on a message, a line each, and whether this user
has this one."""

_SET: Final = for_rows(
    """
INSERT INTO reactions (chat_id, target, emoji, user_id, sequence, is_on) VALUES {rows}
ON CONFLICT DO UPDATE SET sequence = excluded.sequence, is_on = excluded.is_on
""",
    columns=6,
)
DROP_REACTIONS: Final = "DELETE FROM reactions WHERE chat_id = ? AND target = ?"

# In the order of the key, so that rows of one emoji on one message are together. As bytes: in a str
# an emoji makes every letter four bytes long, and the str would be made and read for nothing.
_FIND: Final = """
SELECT CAST(json_group_array(json_array(target, emoji, user_id, sequence, is_on)) AS BLOB)
FROM reactions WHERE chat_id = ? AND target BETWEEN ? AND ?
"""
GAP_MAX: Final = 256
"""Messages further apart than this are read separately. A page has no such messages."""

_Row = tuple[int, str, UserId, int, int]
_decode: Final = msgspec.json.Decoder(list[_Row]).decode
_END: Final[_Row] = (0, "", UserId(""), 0, 0)


def look_at_reactions(
    target: Target, emoji: str, user_id: UserId, counts: str | None, *, is_on: bool
) -> None:
    """Set in a target how many users have which emoji on it, and whether this user has this one."""
    if counts is not None:
        for line in counts.split("\n"):
            count, _, one = line.partition(" ")
            if count != "0":
                target.counts[one] = int(count)
    if is_on:
        target.on.add((user_id, emoji))


def set_reactions(
    database: apsw.Connection, reactions: Mapping[tuple[ChatId, int, str, UserId], Message]
) -> None:
    """Write the reactions that count now."""
    rows = [
        (*key, message.sequence, int(message.amends.is_on))
        for key, message in reactions.items()
        if message.amends is not None
    ]
    execute_rows(database, _SET, rows)


def find_reactions(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, sequences: Sequence[int]
) -> dict[int, list[Reaction]]:
    """What a reader is shown of these messages, by emoji."""
    found: dict[int, list[Reaction]] = {}
    for first, last in _ranges(sequences):
        rows: Any = database.execute(_FIND, (chat_id, first, last)).get
        _read(_decode(rows), reader, found)
    wanted = set(sequences)
    return found if found.keys() <= wanted else {one: found[one] for one in found if one in wanted}


def _read(rows: list[_Row], reader: UserId, found: dict[int, list[Reaction]]) -> None:
    """The reactions of the rows, by message. A row must be cheap: a page has a thousand of them."""
    at, before = 0, ""
    users: list[UserId] = []
    last = own_sequence = is_own = 0
    rows.append(_END)
    for target, emoji, user_id, sequence, is_on in rows:
        if emoji != before or target != at:
            if at:
                some = tuple(users[:REACTION_USERS_MAX])
                reaction = Reaction(before, len(users), last, is_own == 1, own_sequence, some)
                if at in found:
                    found[at].append(reaction)
                else:
                    found[at] = [reaction]
            at, before, users = target, emoji, []
            last = own_sequence = is_own = 0
        if sequence > last:
            last = sequence
        if is_on:
            users.append(user_id)
        if user_id == reader:
            is_own, own_sequence = is_on, sequence


def _ranges(sequences: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last sequence of each group without a gap above `GAP_MAX`."""
    ordered = sorted(sequences)
    begin = 0
    for index in range(1, len(ordered) + 1):
        if index == len(ordered) or ordered[index] - ordered[index - 1] > GAP_MAX:
            yield ordered[begin], ordered[index - 1]
            begin = index
