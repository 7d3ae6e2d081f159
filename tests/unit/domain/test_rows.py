"""Entries as rows: what goes in comes out, and plain messages have nothing more."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.domain.entries import CHAT, NOW_MS, a_deletion, a_reaction, a_send, an_edit
from tidewire.domain.append import message_of
from tidewire.domain.ids import UserId
from tidewire.domain.messages import Message, SendMessage
from tidewire.domain.rows import (
    NOT_PLAIN,
    PLAIN_FIELDS,
    ROW_FIELDS,
    entry_of_row,
    extra_of,
    row_of,
)

SENDS: list[tuple[SendMessage, str | None]] = [
    (a_send(), None),
    (a_send(reply_to=3), '{"reply_to":3}'),
    (a_send(mentions=(UserId("user_2"),)), '{"mentions":["user_2"]}'),
    (an_edit(), '{"kind":"edit"}'),
    (a_deletion(), '{"kind":"delete"}'),
    (a_deletion(reason="a mistake"), '{"kind":"delete","reason":"a mistake"}'),
    (a_reaction(), '{"kind":"react","emoji":"👍","count":4}'),
    (a_reaction(is_on=False), '{"kind":"react","emoji":"👍","is_on":false,"count":4}'),
]


def stored(send: SendMessage) -> Message:
    count = 4 if send.amends is not None and send.amends.emoji is not None else 0
    return message_of(send, 5, 4, NOW_MS, count)


@pytest.mark.parametrize(("send", "extra"), SENDS)
@pytest.mark.parametrize("deleted_by", [None, 9])
def test_entry_is_what_its_row_says(
    send: SendMessage, extra: str | None, deleted_by: int | None
) -> None:
    message = msgspec.structs.replace(stored(send), deleted_by=deleted_by)
    row = row_of(message)
    assert len(row) == len(ROW_FIELDS)
    assert row[:NOT_PLAIN] == msgspec.structs.astuple(message)[:NOT_PLAIN]
    # Written down: rows that are stored must be read for ever.
    assert row[NOT_PLAIN:] == (send.amends and send.amends.target, extra, deleted_by)
    assert extra_of(message) == extra
    assert entry_of_row(row) == message


@given(st.sampled_from(SENDS), st.text(max_size=40), st.integers(1, 1 << 50))
def test_whatever_is_said_comes_back(
    send: tuple[SendMessage, str | None], text: str, number: int
) -> None:
    message = msgspec.structs.replace(
        stored(send[0]), content=text, sequence=number + 1, prev_sequence=number
    )
    if message.amends is not None and message.amends.reason is not None:
        amends = msgspec.structs.replace(message.amends, reason=text, target=number)
        message = msgspec.structs.replace(message, amends=amends)
    assert entry_of_row(row_of(message)) == message


def test_plain_fields_are_the_first_ones() -> None:
    assert Message.__struct_fields__[:NOT_PLAIN] == PLAIN_FIELDS
    assert ROW_FIELDS[:NOT_PLAIN] == PLAIN_FIELDS


@pytest.mark.parametrize(
    ("target", "extra"),
    [
        (1, None),
        (1, '{"reply_to":3}'),
        (None, '{"kind":"edit"}'),
        (None, "{"),
        (None, ""),
        (None, "[]"),
        (None, '{"colour":"red"}'),
        (None, '{"reply_to":"3"}'),
        (1, '{"kind":"message that is not known"}'),
        ("1", '{"kind":"edit"}'),
    ],
)
def test_row_that_is_no_entry_is_refused(target: object, extra: str | None) -> None:
    row = (*row_of(stored(a_send()))[:NOT_PLAIN], target, extra, None)
    if isinstance(target, str):
        # Types are the table's affair; what is read is read.
        assert entry_of_row(row).chat_id == CHAT
        return
    with pytest.raises(ValueError, match=r".+"):
        entry_of_row(row)
