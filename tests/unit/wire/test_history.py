"""A page of history is cut where its answer would be too large."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.strategies import plain_messages
from tidewire.domain.fold import MessageNow, Reaction
from tidewire.domain.ids import UserId
from tidewire.domain.messages import Message
from tidewire.wire.history import ESCAPED_BYTES_MAX, fitting

NOW = MessageNow(
    content="edited",
    edited_sequence=3,
    reactions=(Reaction(emoji="👍", count=1, sequence=4, users=(UserId("user_1"),)),),
)


@given(st.lists(plain_messages, max_size=3))
def test_page_of_unchanged_messages_is_as_it_was_read(messages: list[Message]) -> None:
    assert fitting(messages, {}, bytes_max=1) is messages


@given(st.lists(plain_messages, max_size=6), st.data())
def test_what_fits_is_a_beginning_and_the_longest(
    messages: list[Message], data: st.DataObject
) -> None:
    changed = {one.sequence: NOW for one in messages if data.draw(st.booleans())}
    bytes_max = data.draw(st.integers(1, 400))
    shown = fitting(messages, changed, bytes_max=bytes_max)
    assert list(shown) == messages[: len(shown)]

    def size(count: int) -> int:
        return sum(
            ESCAPED_BYTES_MAX * len(one.content.encode())
            + (len(msgspec.json.encode(NOW)) if one.sequence in changed else 0)
            for one in messages[:count]
        )

    if not changed:
        assert len(shown) == len(messages)
        return
    assert len(shown) >= min(1, len(messages))
    if len(shown) > 1:
        assert size(len(shown)) <= bytes_max
    if len(shown) < len(messages):
        assert size(len(shown) + 1) > bytes_max


def test_no_text_takes_more_than_it_is_counted_for() -> None:
    text = "".join(map(chr, range(1, 0x300))) + "😀"
    assert len(msgspec.json.encode(text)) - 2 <= ESCAPED_BYTES_MAX * len(text.encode())
