"""docs/scaling.md: its tables follow from its inputs, and some of these from the code."""

import pytest

from tests.tidy import scaling
from tests.tidy.scaling import PAGE, Load, read_inputs, shown
from tidewire.domain.chats import Roster
from tidewire.domain.events import MessageAppended
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Message
from tidewire.fanout.plan import push_of
from tidewire.wire.event_records import encode_record, record_of

TEXT = PAGE.read_text(encoding="utf-8")
NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize("table", scaling.tables(TEXT), ids=["load", "limits"])
def test_page_has_the_tables_that_follow_from_its_inputs(table: str) -> None:
    assert table in TEXT, f"docs/scaling.md does not have this table:\n{table}"


def test_sizes_are_those_of_the_code() -> None:
    number = f"{1:026d}"
    chat_id, user_id = ChatId(f"chat_{number}"), UserId(f"user_{number}")
    message = Message(
        chat_id=chat_id,
        sequence=100_000,
        prev_sequence=99_999,
        message_id=MessageId(f"msg_{number}"),
        sender_id=user_id,
        client_message_id=ClientMessageId("00000000-0000-4000-8000-000000000001"),
        content="x" * 84,
        content_type="text",
        created_at_ms=NOW_MS,
    )
    event = MessageAppended(message, 3, ConnectionId(f"conn_{number}"))
    record = record_of(
        event, event_id=f"evt_{number}", now_ms=NOW_MS, producer_id="gateway-1", trace_id="0" * 16
    )
    roster = Roster(chat_id, 3, [user_id], has_block=False)
    given = read_inputs(TEXT)
    assert len(encode_record(record)) == pytest.approx(given["record_bytes"], rel=0.05)
    push = push_of(event, roster, now_ms=NOW_MS)
    assert push is not None
    assert len(push.framed) == pytest.approx(given["frame_bytes"], rel=0.05)


def test_load_counts_units_as_the_page_on_aws_does() -> None:
    """Alone in its commit, and as `bench units` counts a message between two people."""
    alone = Load(read_inputs(TEXT) | {"batch": 1, "moves": 0}, 1e6)
    assert alone.write_units / alone.messages == pytest.approx(9)
    assert alone.gateway_calls / alone.messages == pytest.approx(2)
    pair = Load(read_inputs(TEXT) | {"batch": 1, "moves": 2}, 1e6)
    assert pair.write_units / pair.messages == pytest.approx(11)
    assert pair.read_units / pair.messages == pytest.approx(1)
    assert pair.gateway_calls / pair.messages == pytest.approx(4)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.0456, "0.046"), (9.99, "10"), (138_889, "140 000")]
)
def test_shown_keeps_two_digits(number: float, text: str) -> None:
    assert shown(number) == text
