"""AWS's rules of request units, on items whose size is known."""

import pytest

from tidewire.engines.dynamodb import schema
from tidewire_bench.units import (
    Cause,
    Spent,
    Tally,
    cause_of,
    index_units,
    item_bytes,
    read_units,
    write_units,
)

MESSAGES = schema.BY_NAME[schema.MESSAGES]


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "four"}, 4),
        ({"S": "ü"}, 2),
        ({"N": "0"}, 2),
        ({"N": "12345"}, 4),
        ({"N": "-12345"}, 5),
        ({"B": "AAEC"}, 3),
        ({"B": "AA=="}, 1),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + 1 + 2 + 1 + 2),
        ({"M": {"k": {"S": "ab"}}}, 3 + 1 + 1 + 2),
    ],
)
def test_item_weighs_its_names_and_values(value: dict[str, object], size: int) -> None:
    assert item_bytes({"name": value}) == 4 + size


@pytest.mark.parametrize(
    ("sizes", "units"), [((), 1), ((1,), 1), ((1024,), 1), ((1025,), 2), ((100, 4000), 4)]
)
def test_write_counts_kilobytes_of_the_larger_image(sizes: tuple[int, ...], units: int) -> None:
    assert write_units(*sizes) == units


@pytest.mark.parametrize(
    ("size", "strong", "eventual"), [(0, 1, 0.5), (4096, 1, 0.5), (4097, 2, 1.0)]
)
def test_read_counts_four_kilobytes_and_half_if_not_strong(
    size: int, strong: float, eventual: float
) -> None:
    assert read_units(size, is_strong=True) == strong
    assert read_units(size, is_strong=False) == eventual


def test_index_entry_counts_when_it_comes_goes_and_moves() -> None:
    one, other = {"message_id": {"S": "one"}}, {"message_id": {"S": "other"}}
    assert index_units(MESSAGES, None, one) == 1
    assert index_units(MESSAGES, one, None) == 1
    assert index_units(MESSAGES, one, other) == 2
    assert index_units(MESSAGES, one, dict(one)) == 0
    assert index_units(schema.BY_NAME[schema.CHATS], None, one) == 0


@pytest.mark.parametrize(
    ("operation", "table", "tables", "cause"),
    [
        ("TransactWriteItems", schema.OUTBOX, [schema.OUTBOX, schema.MESSAGES], Cause.APPEND),
        ("BatchWriteItem", schema.OUTBOX, [schema.OUTBOX], Cause.OUTBOX),
        ("Query", schema.OUTBOX, [schema.OUTBOX], Cause.RELAYS),
        ("BatchGetItem", schema.CHATS, [schema.CHATS, schema.POSITIONS], Cause.POSITIONS),
        ("BatchGetItem", schema.CHATS, [schema.CHATS, schema.KEYS], Cause.APPEND),
        ("GetItem", schema.SESSIONS, [schema.SESSIONS], Cause.OTHER),
    ],
)
def test_cause_is_seen_by_the_tables_of_a_request(
    operation: str, table: str, tables: list[str], cause: str
) -> None:
    assert cause_of(operation, table, frozenset(tables)) == cause


def test_tally_sums_up_and_tells_what_was_added_since() -> None:
    tally = Tally()
    tally.add(Cause.APPEND, "messages", Spent(writes=3))
    before = tally.copy()
    tally.add(Cause.APPEND, "messages", Spent(writes=2, reads=1))
    tally.add(Cause.RELAYS, "Query", Spent(requests=1))
    since = tally.since(before)
    assert since.lines() == [
        (Cause.APPEND, "messages", Spent(writes=2, reads=1)),
        (Cause.RELAYS, "Query", Spent(requests=1)),
    ]
    assert since.total(without=frozenset({Cause.RELAYS})) == Spent(writes=2, reads=1)
    assert tally.total().writes == 5
    assert Spent(writes=8, reads=8).dollars == 6.0
