"""The loaded part of a history: bounded, in order, without a hole."""

import pytest
from msgspec.structs import replace

from tidewire.client.model import Message
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.terminal.window import CHANGES_MAX, Window


def message(sequence: int) -> Message:
    return Message(
        chat_id=ChatId("chat"),
        sequence=sequence,
        message_id=MessageId(f"msg {sequence}"),
        sender_id=UserId("bob"),
        client_message_id=ClientMessageId(f"id {sequence}"),
        text="",
        created_at_ms=0,
        is_own=False,
    )


def messages(*sequences: int) -> list[Message]:
    return [message(sequence) for sequence in sequences]


def held(window: Window) -> list[int]:
    return [one.sequence for one in window.messages]


@pytest.fixture
def window() -> Window:
    window = Window(messages_max=4)
    window.replace(messages(11, 12, 14), has_older=True)
    return window


def test_empty_window_has_no_ends() -> None:
    window = Window()
    assert (len(window), window.first, window.last) == (0, None, None)


def test_window_knows_its_ends(window: Window) -> None:
    assert (len(window), window.first, window.last) == (3, 11, 14)
    assert (window.has_older, window.has_newer) == (True, False)


def test_arrived_message_is_at_the_end_once(window: Window) -> None:
    assert window.arrived(message(15))
    assert window.arrived(message(15))
    assert held(window) == [11, 12, 14, 15]


def test_arrived_message_pushes_out_the_oldest_at_the_bound(window: Window) -> None:
    window.has_older = False
    for sequence in (15, 16):
        window.arrived(message(sequence))
    assert held(window) == [12, 14, 15, 16]
    assert window.has_older


def test_arrived_message_is_not_shown_if_the_end_is_not(window: Window) -> None:
    window.has_newer = True
    assert not window.arrived(message(15))
    assert held(window) == [11, 12, 14]


def test_older_page_pushes_out_the_newest_at_the_bound(window: Window) -> None:
    window.prepend(messages(8, 9), has_older=True)
    assert held(window) == [8, 9, 11, 12]
    assert (window.has_older, window.has_newer) == (True, True)


def test_older_page_within_the_bound_pushes_nothing_out(window: Window) -> None:
    window.prepend(messages(9), has_older=False)
    assert held(window) == [9, 11, 12, 14]
    assert (window.has_older, window.has_newer) == (False, False)


def test_newer_page_pushes_out_the_oldest_at_the_bound(window: Window) -> None:
    window.has_newer, window.has_older = True, False
    window.append(messages(15, 17), has_newer=False)
    assert held(window) == [12, 14, 15, 17]
    assert (window.has_older, window.has_newer) == (True, False)


def test_replaced_window_is_bounded_too() -> None:
    window = Window(messages_max=2)
    window.replace(messages(1, 2, 3), has_older=False, has_newer=True)
    assert held(window) == [2, 3]
    assert (window.has_older, window.has_newer) == (True, True)


def test_change_reaches_the_message_and_what_stands_of_it_in_replies(window: Window) -> None:
    first = replace(message(11), text="one")
    window.replace([first, replace(message(12), quoted=first)], has_older=False)
    window.changed(11, lambda one: replace(one, text="two"))
    changed, reply = window.messages
    assert (changed.text, reply.text) == ("two", "")
    assert reply.quoted is not None
    assert reply.quoted.text == "two"
    assert window.get(11) == changed
    # What is not loaded is no concern of this.
    window.changed(7, lambda one: replace(one, text="three"))
    assert window.get(7) is None
    assert held(window) == [11, 12]


def test_page_that_was_read_before_a_change_is_shown_with_it(window: Window) -> None:
    """Also a deletion that comes while older messages are fetched."""
    window.changed(10, lambda one: replace(one, text="changed"))
    answer = replace(message(9), quoted=message(10))
    window.prepend([answer, message(10)], has_older=True)
    first = window.get(9)
    assert first is not None
    assert first.quoted is not None
    assert (first.text, first.quoted.text) == ("", "changed")
    assert [one.text for one in window.messages] == ["", "changed", "", ""]


def test_so_many_changes_are_remembered(window: Window) -> None:
    window.changed(9, lambda one: replace(one, text="changed"))
    window.changed(10, lambda one: replace(one, text="changed"))
    for _ in range(CHANGES_MAX - 1):
        window.changed(14, lambda one: one)
    window.replace(messages(9, 10), has_older=True)
    assert [one.text for one in window.messages] == ["", "changed"]
