"""What a conversation looks like, and where one is in it."""

from datetime import UTC
from typing import Any

import msgspec
import pytest

from tidewire.domain.delivery import Tick
from tidewire.terminal.lines import (
    MARKS,
    NEW_KEY,
    Anchor,
    Line,
    Listed,
    Look,
    Mark,
    Row,
    Span,
    activity,
    anchor_at,
    conversation,
    count_below,
    last_seen,
    listed_line,
    mark_of,
    ordered,
    top_of,
    unread_text,
)

NOON_MS = 1_794_830_400_000  # Monday 16 November 2026, 12:00 UTC
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def said(
    sequence: int, text: str = "hello", *, name: str = "Bob", at_ms: int | None = NOON_MS
) -> Row:
    return Row(
        key=str(sequence), sequence=sequence, name=name, is_own=False, text=text, at_ms=at_ms
    )


def own(text: str, tick: Tick, *, sequence: int = 0, note: str | None = None) -> Row:
    return Row(
        key=f"own {text}",
        sequence=sequence,
        name="you",
        is_own=True,
        text=text,
        at_ms=NOON_MS if sequence else None,
        tick=tick,
        note=note,
    )


def lines_of(*rows: Row, width: int = 40, new_after: int | None = None) -> list[Line]:
    return conversation(rows, width=width, measure=len, zone=UTC, new_after=new_after)


def texts(lines: list[Line]) -> list[str]:
    return [line.text.rstrip() for line in lines]


def test_every_tick_has_a_mark_of_its_own() -> None:
    assert set(MARKS) == set(Tick)
    assert len(set(MARKS.values())) == len(Tick)


@pytest.mark.parametrize("tick", Tick)
def test_mark_has_a_look_of_its_own_and_two_cells(tick: Tick) -> None:
    span = mark_of(tick)
    assert (len(span.text), span.look) == (2, Look(tick.value))


def test_messages_of_others_have_no_mark() -> None:
    assert mark_of(None).text == "  "


def test_conversation_shows_day_time_name_text_and_mark() -> None:
    lines = lines_of(said(1), own("hi", Tick.READ, sequence=2))
    assert texts(lines) == [
        "─────── Monday 16 November 2026 ────────",
        "12:00 Bob hello",
        "12:00 you hi" + " " * 26 + "✔✔",
    ]
    assert {len(line.text) for line in lines} == {40}


def test_conversation_names_somebody_once_until_another_speaks() -> None:
    lines = lines_of(said(1), said(2), said(3, name="Eve"), said(4))
    assert texts(lines)[1:] == [
        "12:00 Bob hello",
        "12:00     hello",
        "12:00 Eve hello",
        "12:00 Bob hello",
    ]


def test_conversation_names_again_on_another_day() -> None:
    lines = lines_of(said(1), said(2, at_ms=NOON_MS + DAY_MS))
    assert texts(lines)[2:] == ["─────── Tuesday 17 November 2026 ───────", "12:00 Bob hello"]


def test_conversation_wraps_under_the_beginning_of_the_text() -> None:
    lines = lines_of(said(1, "a text that is longer than one line is"), width=30)
    assert texts(lines)[1:] == [
        "12:00 Bob a text that is",
        "          longer than one",
        "          line is",
    ]
    assert [line.sequence for line in lines] == [0, 1, 1, 1]


def test_conversation_keeps_a_line_of_another_out_of_the_margin() -> None:
    lines = lines_of(said(1, "x\n12:01 Eve I am not Eve"))
    assert texts(lines)[2] == "          12:01 Eve I am not Eve"


def test_conversation_spells_out_controls_in_names_and_texts() -> None:
    lines = lines_of(said(1, "\x1b[2J", name="B\x1bb"))
    assert texts(lines)[1] == "12:00 B^[b ^[[2J"


def test_conversation_cuts_long_names() -> None:
    assert texts(lines_of(said(1, name="N" * 30)))[1] == "12:00 " + "N" * 11 + "… hello"


def test_conversation_leaves_room_for_text_on_a_narrow_screen() -> None:
    assert texts(lines_of(said(1, name="N" * 30), width=24))[1] == "12:00 NNN… hello"
    assert texts(lines_of(said(1, "漢", name="N"), width=8))[1] == "12:00 N 漢"


def test_pending_message_has_no_time_and_stays_on_the_day() -> None:
    lines = lines_of(said(1), own("soon", Tick.SENDING))
    assert texts(lines)[2] == "      you soon" + " " * 25 + "○"


def test_failed_message_says_why_below() -> None:
    lines = lines_of(own("no", Tick.FAILED, note="not sent: you are not\x07 in this chat"))
    assert texts(lines)[0].endswith("✗")
    assert texts(lines)[1:] == ["          not sent: you are not^G in", "          this chat"]
    assert lines[1].spans[-1].look is Look.FAILED


def test_new_messages_begin_with_a_line() -> None:
    lines = lines_of(said(1), own("mine", Tick.SENT, sequence=2), said(3), said(4), new_after=1)
    assert [line.key for line in lines] == ["day 1", "1", "own mine", NEW_KEY, "3", "4"]
    assert "new" in lines[3].text


def test_nothing_new_has_no_line() -> None:
    assert NEW_KEY not in [line.key for line in lines_of(said(1), new_after=1)]


def test_found_message_stands_out() -> None:
    row = Row(key="1", sequence=1, name="Bob", is_own=False, text="x", at_ms=None, is_found=True)
    assert lines_of(row)[0].spans[2].look is Look.FOUND


def test_line_above_everything_says_whether_there_is_more() -> None:
    lines = conversation([said(1)], width=20, measure=len, zone=UTC, older="There is a longer past")
    assert lines[0].text == "There is a longer p…"
    assert lines[0].key == "older"


# What has become of a message.


def changed(text: str = "hello", **fields: Any) -> Row:
    return msgspec.structs.replace(said(1, text), **fields)


def test_reply_says_above_its_text_whom_it_answers_and_what() -> None:
    row = changed(quote="Al\x1bice: a question that does not fit at all")
    lines = lines_of(msgspec.structs.replace(row, is_own=True, tick=Tick.SENT))
    assert texts(lines)[1:] == [
        "12:00 Bob ↪ Al^[ice: a question that…",
        "          hello" + " " * 23 + " ✓",
    ]
    assert lines[1].spans[2].look is Look.QUIET
    assert {len(line.text) for line in lines} == {40}


def test_edited_message_says_so_where_there_is_room() -> None:
    assert texts(lines_of(changed(is_edited=True)))[1] == "12:00 Bob hello (edited)"
    lines = lines_of(changed("a text that just fills it", is_edited=True))
    assert texts(lines)[1:] == ["12:00 Bob a text that just fills it", "          (edited)"]
    assert lines[2].spans[1].look is Look.QUIET


def test_what_stands_in_place_of_a_text_is_quiet() -> None:
    line = lines_of(changed("[deleted]", is_gone=True))[1]
    assert line.spans[2] == Span("[deleted]", Look.QUIET)


def test_reactions_stand_below_with_their_counts_and_own_ones_in_brackets() -> None:
    marks = (Mark("+", "2"), Mark("!", "1", is_own=True), *(Mark("x" * 9, "12"),) * 2)
    lines = lines_of(changed(reactions=marks))
    assert texts(lines)[2:] == ["          + 2  [! 1]  xxxxxxxxx 12", "          xxxxxxxxx 12"]
    assert Look.OWN_REACTION in [span.look for span in lines[2].spans]
    assert {len(line.text) for line in lines} == {40}
    assert [line.sequence for line in lines] == [0, 1, 1, 1]
    narrow = lines_of(changed(reactions=(Mark("x" * 30, "1"),)), width=20)
    assert {len(line.text) for line in narrow} == {20}


def test_those_who_are_meant_stand_out_and_so_does_the_message_to_them() -> None:
    row = changed("hi @BOB, @Bob Smith, @eve", mentions=("Bob", "Bob Smith"), is_mention=True)
    line = lines_of(row)[1]
    meant = [span.text for span in line.spans if span.look is Look.MENTION]
    assert meant == ["@BOB", "@Bob Smith", " @"]
    assert line.text == "12:00 Bob hi @BOB, @Bob Smith, @eve    @"
    own = msgspec.structs.replace(row, is_own=True, is_mention=False, tick=Tick.SENT)
    assert lines_of(own)[1].text.endswith(" ✓")
    # A letter that has more letters in small is no trouble.
    assert lines_of(changed("ẞ\u0130 @bob", mentions=("bob",)))[1].text.count("@bob") == 1


def test_chosen_message_has_a_mark_beside_its_time() -> None:
    line = lines_of(changed(is_chosen=True))[1]
    assert line.text.startswith("12:00▸Bob hello")
    assert line.spans[1].look is Look.CHOSEN


# Where one is.


def test_anchor_finds_the_same_line_when_older_ones_come() -> None:
    before = lines_of(said(5, "five " * 20), said(6))
    top = 3  # The third line of message five.
    anchor = anchor_at(before, top)
    assert anchor == Anchor("5", 2)
    after = lines_of(said(4), said(5, "five " * 20), said(6))
    assert top_of(after, anchor) == 4
    assert after[4].text == before[3].text


def test_anchor_passes_over_lines_that_may_go_away() -> None:
    lines = lines_of(said(5), said(6))
    assert anchor_at(lines, 0) == Anchor("5", -1)
    assert top_of(lines, Anchor("5", -1)) == 0
    assert top_of(lines[1:], Anchor("5", -1)) == 0


def test_anchor_is_none_if_there_is_nothing() -> None:
    assert anchor_at([], 0) is None
    assert anchor_at(lines_of(said(1))[:1], 0) is None


def test_anchor_that_is_gone_is_nowhere() -> None:
    assert top_of(lines_of(said(1)), Anchor("7", 0)) is None


def test_pending_message_can_be_an_anchor() -> None:
    assert anchor_at(lines_of(own("soon", Tick.SENDING)), 0) == Anchor("own soon", 0)


def test_last_seen_is_the_newest_that_is_shown_to_its_end() -> None:
    lines = lines_of(said(1), said(2, "long " * 20), said(3), own("soon", Tick.SENDING))
    # Day, message one, three lines of message two, message three, the pending one.
    assert [line.sequence for line in lines] == [0, 1, 2, 2, 2, 2, 3, 0]
    assert last_seen(lines, 0, 8) == 3
    assert last_seen(lines, 0, 7) == 3
    assert last_seen(lines, 0, 6) == 2
    assert last_seen(lines, 0, 4) == 2
    assert last_seen(lines, 0, 1) == 0
    assert last_seen([], 0, 5) == 0


def test_count_below_counts_messages_that_begin_below() -> None:
    lines = lines_of(said(1), said(2, "long " * 20), said(3), own("soon", Tick.SENDING))
    assert count_below(lines, 2, lambda line: True) == 2
    assert count_below(lines, 4, lambda line: True) == 1
    assert count_below(lines, 4, lambda line: False) == 0
    assert count_below(lines, 8, lambda line: True) == 0


# The list of chats.


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


def test_chat_in_which_one_is_mentioned_says_so_in_the_list() -> None:
    chat = Listed(chat_id="1", name="Bob", unread=3, mentions=1)
    spans = listed_line(chat, 14, len)
    assert "".join(span.text for span in spans) == "@ Bob        3"
    assert spans[0].look is Look.MENTION
    failed = msgspec.structs.replace(chat, has_failed=True)
    assert listed_line(failed, 14, len)[0].text == "✗ "
