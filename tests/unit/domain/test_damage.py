"""Checksums of stored messages, and what becomes of rows that fail theirs."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.damage import (
    CHECKSUM_VERSION,
    FoundRow,
    find_nothing,
    mend,
    message_checksum,
    row_checksum,
)
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import SEQUENCE_MAX, TIME_MS_MAX
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.domain.rows import NOT_PLAIN, row_of

CHAT = ChatId("chat_1")


def stored(sequence: int, prev_sequence: int, content: str = "hello") -> Message:
    return Message(
        CHAT,
        sequence,
        prev_sequence,
        MessageId(f"msg_{sequence}"),
        UserId("user_1"),
        ClientMessageId(f"key-{sequence}"),
        content,
        "text/plain",
        1_800_000_000_000 + sequence,
    )


def checksum(message: Message) -> int:
    return message_checksum(message)


def row(message: Message, **changes: Any) -> FoundRow:
    fields: dict[str, Any] = {
        "position": message.sequence * 10,
        "indexed_sequence": message.sequence,
        "sequence": message.sequence,
        "prev_sequence": message.prev_sequence,
        "message_id": message.message_id.encode(),
        "sender_id": message.sender_id.encode(),
        "client_message_id": message.client_message_id.encode(),
        "content": message.content.encode(),
        "content_type": message.content_type.encode(),
        "created_at_ms": message.created_at_ms,
        "checksum": checksum(message),
    }
    target, extra, deleted_by = row_of(message)[NOT_PLAIN:]
    fields |= {
        "target": target,
        "extra": None if extra is None else extra.encode(),
        "deleted_by": deleted_by,
    }
    return FoundRow(**{**fields, **changes})


def with_fields(message: Message, **fields: Any) -> Message:
    return msgspec.structs.replace(message, **fields)


CHAIN = [stored(1, 0), stored(2, 1, "Grüße 🌊"), stored(7, 2), stored(8, 7)]
ROWS = [row(message) for message in CHAIN]


def mended(rows: list[FoundRow], **given: Any) -> list[Message]:
    return [message for _, message in mend(CHAT, rows, **{"begins_chat": True, **given})]


# The checksum.


def test_checksum_is_that_of_the_canonical_bytes() -> None:
    # Written down: stored checksums must hold for ever, whatever this program becomes.
    assert checksum(CHAIN[1]) == 6_676_979_266
    assert checksum(CHAIN[1]) >> 32 == CHECKSUM_VERSION


def test_checksums_of_plain_messages_are_those_of_before() -> None:
    """Those that the version before messages could change has stored, byte for byte."""
    assert [checksum(message) for message in CHAIN] == [
        5_584_732_523,
        6_676_979_266,
        8_169_148_763,
        5_310_644_066,
    ]


AMENDED = [
    stored(1, 0),
    with_fields(stored(2, 1), reply_to=1),
    with_fields(stored(3, 2), mentions=(UserId("user_2"), UserId("user_3"))),
    with_fields(stored(4, 3), amends=Amendment(kind=EntryKind.EDIT, target=1)),
    with_fields(
        stored(5, 4, ""),
        amends=Amendment(kind=EntryKind.REACT, target=1, emoji="👍", is_on=False),
        count=3,
    ),
    with_fields(
        stored(6, 5, ""), amends=Amendment(kind=EntryKind.DELETE, target=2, reason="a mistake")
    ),
    with_fields(stored(7, 6, ""), deleted_by=9),
]


def test_checksums_of_entries_are_written_down() -> None:
    assert [checksum(message) for message in AMENDED[1:]] == [
        5_664_330_906,
        5_399_730_934,
        8_555_306_063,
        8_356_420_207,
        4_953_223_454,
        7_658_281_109,
    ]


def test_whole_rows_of_entries_are_their_entries() -> None:
    rows = [row(message) for message in AMENDED]
    assert mended(rows) == AMENDED
    assert [row_checksum(CHAT, one) for one in rows] == [checksum(one) for one in AMENDED]


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        (1, {"extra": b'{"reply_to":3}'}),
        (1, {"extra": None}),
        (1, {"extra": b"\xff"}),
        (1, {"extra": 5}),
        (2, {"extra": b'{"mentions":["user_2"]}'}),
        (3, {"target": 2}),
        (3, {"target": None}),
        (3, {"target": None, "extra": None}),
        (3, {"extra": b'{"kind":"delete"}'}),
        (4, {"extra": b'{"kind":"react","emoji":"\xf0\x9f\x91\x8d","is_on":false,"count":4}'}),
        (4, {"extra": b'{"kind":"react","emoji":"\xf0\x9f\x91\x8d","count":3}'}),
        (5, {"extra": b'{"kind":"delete"}'}),
        (6, {"deleted_by": None}),
        (6, {"deleted_by": 8}),
        (0, {"deleted_by": 8}),
        (0, {"target": 8}),
        (0, {"extra": b'{"reply_to":3}'}),
    ],
)
def test_change_of_what_only_some_entries_have_is_seen(index: int, changes: dict[str, Any]) -> None:
    rows = [row(message) for message in AMENDED]
    rows[index] = row(AMENDED[index], **changes)
    messages = mended(rows)
    assert [one.is_damaged for one in messages] == [number == index for number in range(7)]
    assert [one.sequence for one in messages] == [1, 2, 3, 4, 5, 6, 7]


@given(
    st.sampled_from(["message_id", "sender_id", "client_message_id", "content", "content_type"]),
    st.randoms(use_true_random=False),
)
def test_every_flipped_bit_of_a_text_is_seen(field: str, random: Random) -> None:
    whole = ROWS[1]
    value = bytearray(getattr(whole, field))
    value[random.randrange(len(value))] ^= 1 << random.randrange(8)
    [_, message, *_] = mended([ROWS[0], msgspec.structs.replace(whole, **{field: bytes(value)})])
    assert message.is_damaged
    assert message.content == ""
    assert (message.sequence, message.prev_sequence) == (2, 1)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_other_time_is_seen(created_at_ms: int) -> None:
    if created_at_ms == CHAIN[0].created_at_ms:
        return
    [message] = mended([row(CHAIN[0], created_at_ms=created_at_ms)])
    assert message.is_damaged
    assert 0 <= message.created_at_ms <= TIME_MS_MAX


def test_checksum_of_a_row_is_that_of_its_message() -> None:
    assert row_checksum(CHAT, row(CHAIN[1], checksum=None)) == checksum(CHAIN[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"content": b"\xff\xfe"},
        {"content": None},
        {"content_type": 7},
        {"message_id": None},
        {"sender_id": None},
        {"client_message_id": b"\x80"},
        {"sequence": None},
        {"sequence": 0},
        {"prev_sequence": SEQUENCE_MAX + 1},
        {"created_at_ms": -1},
    ],
)
def test_row_that_is_no_message_has_no_checksum(changes: dict[str, Any]) -> None:
    assert row_checksum(CHAT, row(CHAIN[0], **changes)) is None


# Rows that fail.


def test_whole_rows_are_their_messages() -> None:
    assert mend(CHAT, ROWS, begins_chat=True) == [
        (found.position, message) for found, message in zip(ROWS, CHAIN, strict=True)
    ]


@pytest.mark.parametrize("content", [b"\xff", b"other", None, 5])
@pytest.mark.parametrize("index", range(4))
def test_damaged_content_keeps_its_place(index: int, content: object) -> None:
    rows = [*ROWS]
    rows[index] = row(CHAIN[index], content=content)
    messages = mended(rows, counter=8)
    assert [m.is_damaged for m in messages] == [number == index for number in range(4)]
    assert [(m.sequence, m.prev_sequence) for m in messages] == [(1, 0), (2, 1), (7, 2), (8, 7)]
    assert messages[index].content == ""
    assert messages[index].message_id == CHAIN[index].message_id


def test_message_without_a_checksum_is_damaged() -> None:
    assert mended([row(CHAIN[0], checksum=None)])[0].is_damaged


def test_ids_that_cannot_be_shown_are_empty() -> None:
    [message] = mended([row(CHAIN[0], message_id=b"\xff", sender_id=b"a\x07", content_type=None)])
    assert (message.message_id, message.sender_id, message.content_type) == ("", "", "")
    [message] = mended([row(CHAIN[0], client_message_id=b"x" * 129)])
    assert message.client_message_id == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": 1030},
        {"sequence": None},
        {"indexed_sequence": 1030},
        {"indexed_sequence": None},
        {"sequence": 3, "indexed_sequence": 3},
        {"prev_sequence": 66},
        {"prev_sequence": None, "sequence": None},
    ],
)
@pytest.mark.parametrize("index", range(4))
def test_numbers_are_rebuilt_from_the_chain_and_the_content_is_whole(
    index: int, changes: dict[str, Any]
) -> None:
    rows = [*ROWS]
    rows[index] = row(CHAIN[index], **changes)
    assert mended(rows, counter=8) == CHAIN


def test_last_message_with_other_numbers_and_content_needs_two_that_agree() -> None:
    last = row(CHAIN[3], sequence=99, content=b"other")
    assert mended([*ROWS[:3], last], counter=8)[-1].sequence == 8
    with pytest.raises(StoreDamaged) as error:
        mended([*ROWS[:3], last])
    assert "the numbers of a message after 7 are lost (index 8, row 99)" in error.value.reason
    gone = FoundRow(position=80, indexed_sequence=8)
    assert mended([*ROWS[:3], gone], counter=8)[-1].is_damaged
    with pytest.raises(StoreDamaged, match="is damaged"):
        mended([*ROWS[:3], FoundRow(position=80, indexed_sequence=None)], counter=8)


def test_row_before_the_page_gives_its_own_number() -> None:
    rows = [row(CHAIN[1], content=b"other"), ROWS[2]]
    first, second = mended(rows, begins_chat=False)
    assert (first.sequence, first.prev_sequence, first.is_damaged) == (2, 1, True)
    assert second == CHAIN[2]


def test_two_damaged_neighbours_keep_their_places() -> None:
    rows = [ROWS[0], row(CHAIN[1], content=b"x"), row(CHAIN[2], content=b"x"), ROWS[3]]
    messages = mended(rows)
    assert [(m.sequence, m.prev_sequence) for m in messages] == [(1, 0), (2, 1), (7, 2), (8, 7)]


def test_message_without_a_row_stands_there_as_damaged() -> None:
    found = mend(CHAT, [ROWS[0], ROWS[2], ROWS[3]], begins_chat=True)
    assert [position for position, _ in found] == [10, None, 70, 80]
    message = found[1][1]
    assert (message.sequence, message.prev_sequence, message.is_damaged) == (2, 1, True)
    assert (message.message_id, message.sender_id, message.content) == ("", "", "")


def test_message_without_a_row_among_these_is_found_elsewhere() -> None:
    rows = {2: row(CHAIN[1], indexed_sequence=None), 7: row(CHAIN[2], indexed_sequence=None)}
    assert mended([ROWS[0], ROWS[3]], find=rows.get) == CHAIN
    assert find_nothing(2) is None


def test_row_in_the_wrong_place_of_the_index_is_taken_from_its_own() -> None:
    by_sequence = {message.sequence: found for message, found in zip(CHAIN, ROWS, strict=True)}
    wrong = row(CHAIN[1], indexed_sequence=99)
    assert mended([ROWS[0], *ROWS[2:], wrong], find=by_sequence.get) == CHAIN
    assert mended([wrong, ROWS[0], *ROWS[2:]], find=by_sequence.get, begins_chat=False) == CHAIN


def test_first_row_follows_what_the_reader_has() -> None:
    by_sequence = {message.sequence: found for message, found in zip(CHAIN, ROWS, strict=True)}
    given: dict[str, Any] = {"begins_chat": False, "find": by_sequence.get}
    assert mended(ROWS[3:], after=1, **given) == CHAIN[1:]
    assert mended(ROWS[3:], after=7, **given) == CHAIN[3:]
    # A reader may stand between two messages.
    assert mended(ROWS[3:], after=5, **given) == CHAIN[2:]


def test_end_that_no_row_leads_to_is_found_by_the_counter() -> None:
    by_sequence = {message.sequence: found for message, found in zip(CHAIN, ROWS, strict=True)}
    assert mended(ROWS[:2], counter=8, find=by_sequence.get) == CHAIN
    assert mended([], counter=8, find=by_sequence.get) == CHAIN
    assert mended(ROWS[:2], counter=8) == CHAIN[:2]
    # A counter far ahead was moved there: nothing is missing.
    asked: list[int] = []
    assert mended(ROWS, counter=2_000_000, find=lambda sequence: asked.append(sequence)) == CHAIN
    assert asked == []


def test_rows_that_are_not_in_order_cannot_be_told() -> None:
    with pytest.raises(StoreDamaged) as error:
        mended([ROWS[0], ROWS[2], ROWS[1]])
    assert "follows 1, but stands after" in error.value.reason
