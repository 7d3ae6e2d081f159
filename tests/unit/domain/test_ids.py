"""Ids say what they are, sort by time, and never repeat or go back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.ids import (
    CHAT_PREFIX,
    CONNECTION_PREFIX,
    MESSAGE_PREFIX,
    PLACE_MAX,
    RANDOM_BITS,
    SESSION_PREFIX,
    TIME_MS_MAX,
    ULID_LENGTH,
    USER_PREFIX,
    UlidSource,
    encode_ulid,
    has_form,
    is_safe_token,
    is_uuid,
    place_in,
    placed,
    ulid_time_ms,
)

RANDOM_MAX = (1 << RANDOM_BITS) - 1
# A millisecond below the end of time: an overflow of the random part has somewhere to go.
clocks = st.lists(st.integers(0, TIME_MS_MAX - 1), min_size=1, max_size=50)


def random_bits(values: list[int]) -> UlidSource:
    """A source whose random numbers are these, then the highest ones."""
    remaining = iter(values)
    return UlidSource(lambda _bits: next(remaining, RANDOM_MAX))


@pytest.mark.parametrize(
    ("value", "ulid"),
    [
        (0, "0" * 26),
        (31, "0" * 25 + "Z"),
        (32, "0" * 24 + "10"),
        ((1 << 128) - 1, "7" + "Z" * 25),
        (1469918176385 << 80, "01ARYZ6S41" + "0" * 16),
    ],
)
def test_ulid_is_written_as_its_specification_shows(value: int, ulid: str) -> None:
    assert encode_ulid(value) == ulid
    assert len(ulid) == ULID_LENGTH


@pytest.mark.parametrize("value", [-1, 1 << 128])
def test_number_beyond_128_bits_is_a_bug_of_the_caller(value: int) -> None:
    with pytest.raises(AssertionError):
        encode_ulid(value)


@given(st.integers(0, (1 << 128) - 1), st.integers(0, (1 << 128) - 1))
def test_ulids_sort_as_their_numbers_do(one: int, other: int) -> None:
    assert (one < other) == (encode_ulid(one) < encode_ulid(other))


@given(st.integers(0, TIME_MS_MAX), st.integers(0, RANDOM_MAX))
def test_ulid_tells_its_time(now_ms: int, bits: int) -> None:
    assert ulid_time_ms(random_bits([bits]).next_ulid(now_ms)) == now_ms


@pytest.mark.parametrize("text", ["", "0" * 25, "8" + "0" * 25, "I" * 26, "0" * 26 + "\n"])
def test_time_of_what_is_no_ulid_is_a_bug_of_the_caller(text: str) -> None:
    with pytest.raises(AssertionError):
        ulid_time_ms(text)


@given(clocks, st.lists(st.integers(0, RANDOM_MAX) | st.just(RANDOM_MAX)))
def test_ulids_strictly_increase_whatever_the_clock_does(clock: list[int], bits: list[int]) -> None:
    source = random_bits(bits)
    made = [source.next_ulid(now_ms) for now_ms in clock]
    assert made == sorted(set(made))


def test_ulids_go_on_from_the_last_one_when_the_clock_jumps_back() -> None:
    source = random_bits([5])
    first, second = source.next_ulid(1000), source.next_ulid(10)
    assert ulid_time_ms(second) == 1000
    assert second == encode_ulid(1000 << RANDOM_BITS | 6)
    assert first < second


def test_ulids_borrow_the_next_millisecond_when_one_is_used_up() -> None:
    source = random_bits([RANDOM_MAX, 0])
    assert ulid_time_ms(source.next_ulid(1000)) == 1000
    borrowed = source.next_ulid(1000)
    assert ulid_time_ms(borrowed) == 1001
    assert source.next_ulid(1001) > borrowed


@pytest.mark.parametrize("now_ms", [-1, TIME_MS_MAX + 1])
def test_time_outside_48_bits_is_a_bug_of_the_caller(now_ms: int) -> None:
    with pytest.raises(AssertionError):
        random_bits([0]).next_ulid(now_ms)


def test_every_id_has_its_prefix_and_its_form() -> None:
    source = random_bits([1])
    made = {
        CHAT_PREFIX: source.chat_id(7),
        MESSAGE_PREFIX: source.message_id(7),
        USER_PREFIX: source.user_id(7),
        SESSION_PREFIX: source.session_id(7),
        CONNECTION_PREFIX: source.connection_id(7),
    }
    for prefix, text in made.items():
        assert has_form(text, prefix)
        assert [other for other in made if has_form(text, other)] == [prefix]
        assert is_safe_token(text)


@pytest.mark.parametrize(
    "text", ["", "chat_", "chat_0", "chat_" + "0" * 27, "msg_" + "0" * 26, "chat_" + "u" * 26]
)
def test_has_form_refuses_what_is_no_such_id(text: str) -> None:
    assert not has_form(text, CHAT_PREFIX)


@given(st.uuids())
def test_every_uuid_is_one(uuid: object) -> None:
    assert is_uuid(str(uuid))
    assert is_uuid(str(uuid).upper())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c0a8f3d25b1e4f779a432d6e8b90c5f1",
        "c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f",
        "c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5fg",
        "{c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1}",
        "c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1\n",
        "urn:uuid:c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1",
    ],
)
def test_is_uuid_refuses_other_forms(text: str) -> None:
    assert not is_uuid(text)


@pytest.mark.parametrize("text", ["a", "hb-001", "req_1", "a.b:c", "x" * 64])
def test_safe_token_is_taken(text: str) -> None:
    assert is_safe_token(text)


@pytest.mark.parametrize("text", ["", "x" * 65, "a b", "a\n", "a/b", "é", '"', "a\x00", "a#b"])
def test_safe_token_refuses_what_would_hurt_a_log_or_a_key(text: str) -> None:
    assert not is_safe_token(text)


@given(st.integers(0, TIME_MS_MAX), st.integers(0, RANDOM_MAX), st.integers(0, PLACE_MAX))
def test_id_of_a_message_carries_its_place(now_ms: int, bits: int, sequence: int) -> None:
    message_id = placed(random_bits([bits]).message_id(now_ms), sequence)
    assert has_form(message_id, MESSAGE_PREFIX)
    assert place_in(message_id) == sequence
    assert ulid_time_ms(message_id.removeprefix(MESSAGE_PREFIX)) == now_ms


def test_ids_of_one_millisecond_differ_also_at_the_same_place() -> None:
    """The first messages of a thousand chats."""
    source = random_bits([7])
    made = {placed(source.message_id(1000), 1) for _ in range(1000)}
    assert len(made) == 1000


def test_place_that_does_not_fit_is_left_out() -> None:
    given_id = random_bits([7]).message_id(1000)
    assert place_in(placed(given_id, PLACE_MAX)) == PLACE_MAX
    assert placed(given_id, PLACE_MAX + 1) == given_id


@pytest.mark.parametrize("text", ["", "msg_", "msg_1", "chat_" + "0" * 26, "msg_" + "U" * 26])
def test_what_is_no_id_of_a_message_carries_no_place(text: str) -> None:
    assert place_in(text) == 0
