"""The list of chats."""

import pytest

from tidewire.terminal.lines import Look
from tidewire.terminal.listing import Listed, activity, listed_line, ordered, unread_text


def text_of(chat: Listed, width: int = 14) -> str:
    return "".join(span.text for span in listed_line(chat, width, len))


def test_ordered_has_the_newest_first_and_the_same_instant_by_name() -> None:
    chats = [
        Listed(chat_id="1", name="zoe", active_at_ms=5),
        Listed(chat_id="2", name="Bob", active_at_ms=7),
        Listed(chat_id="3", name="Ann", active_at_ms=5),
        Listed(chat_id="4", name="ann", active_at_ms=5),
    ]
    assert [chat.chat_id for chat in ordered(chats)] == ["2", "3", "4", "1"]


def test_activity_puts_unknown_chats_between_their_neighbours() -> None:
    times = activity(["a", "b", "c", "d"], {"a": 900, "c": 500})
    assert times["a"] > times["b"] > times["c"] > times["d"]
    assert (times["a"], times["c"]) == (900, 500)


def test_activity_keeps_what_is_known_against_the_servers_order() -> None:
    # A message that came after the server was asked.
    assert activity(["a", "b"], {"b": 900, "z": 3}) == {"a": 901, "b": 900, "z": 3}


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (-1, ""), (1, "1"), (99, "99"), (100, "99+"), (5000, "99+")]
)
def test_unread_text_is_short(count: int, text: str) -> None:
    assert unread_text(count) == text


@pytest.mark.parametrize(
    ("chat", "text"),
    [
        (Listed(chat_id="1", name="Bob"), "  Bob         "),
        (Listed(chat_id="1", name="Bob", unread=3), "● Bob        3"),
        (Listed(chat_id="1", name="Team", is_group=True, unread=100), "● #Team    99+"),
        (Listed(chat_id="1", name="A long name it is"), "  A long name…"),
        (Listed(chat_id="1", name="A long name it is", unread=12), "● A long n… 12"),
        (Listed(chat_id="1", name="B\x1bb", has_failed=True, unread=1), "✗ B^[b       1"),
    ],
)
def test_listed_line_has_mark_name_and_count(chat: Listed, text: str) -> None:
    assert text_of(chat) == text


def test_unread_chat_stands_out_and_so_does_the_open_one() -> None:
    looks = {
        name: listed_line(chat, 14, len)[1].look
        for name, chat in {
            "unread": Listed(chat_id="1", name="a", unread=1, is_open=True),
            "open": Listed(chat_id="1", name="a", is_open=True),
            "other": Listed(chat_id="1", name="a"),
        }.items()
    }
    assert looks == {"unread": Look.UNREAD, "open": Look.OPEN, "other": Look.TEXT}
