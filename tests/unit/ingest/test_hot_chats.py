"""Who appends to a chat that several gateways write to."""

import pytest

from tidewire.domain.ids import ChatId
from tidewire.ingest.hot_chats import ASK_MS, IN_USE_MS, LEASE_MS, HotChats

CHAT = ChatId("chat_1")
OWN, OTHER, THIRD = "gateway_1", "gateway_2", "gateway_3"
WISH = [(CHAT, "")]


@pytest.fixture
def hot() -> HotChats:
    """A gateway that was overtaken, and has just asked."""
    chats = HotChats(OWN)
    assert chats.overtaken(CHAT, 0)
    assert chats.wishes(0) == WISH
    return chats


def test_lease_is_asked_for_when_a_commit_came_too_late() -> None:
    chats = HotChats(OWN)
    assert chats.wishes(0) == []
    assert chats.overtaken(CHAT, 0)
    assert not chats.overtaken(CHAT, 0), "it is asked for already"
    assert chats.wishes(0) == WISH


def test_chat_without_a_lease_is_appended_here(hot: HotChats) -> None:
    assert hot.way(CHAT, 0) is None
    assert hot.way(ChatId("chat_2"), 0) is None


def test_chat_is_forwarded_to_whoever_has_its_lease(hot: HotChats) -> None:
    hot.told(CHAT, OTHER, 0)
    assert hot.way(CHAT, LEASE_MS - 1) == OTHER
    assert hot.held_count == 0
    # It may have ended since.
    assert hot.way(CHAT, LEASE_MS) is None
    hot.told(CHAT, THIRD, LEASE_MS)
    assert hot.way(CHAT, LEASE_MS) == THIRD


def test_own_lease_means_appending_here(hot: HotChats) -> None:
    hot.told(CHAT, OWN, 0)
    assert hot.way(CHAT, 0) is None
    assert hot.held_count == 1


def test_lease_is_asked_for_while_there_is_something_to_forward(hot: HotChats) -> None:
    now_ms = 0
    for now_ms in range(0, 3 * IN_USE_MS, ASK_MS):
        assert hot.wishes(now_ms) == WISH
        hot.told(CHAT, OTHER, now_ms)
        assert hot.way(CHAT, now_ms) == OTHER
    assert hot.wishes(now_ms + IN_USE_MS) == WISH
    assert hot.wishes(now_ms + IN_USE_MS + 1) == []
    assert len(hot) == 0


@pytest.mark.parametrize("lacks", ["own", "foreign"])
def test_holder_keeps_the_lease_only_while_it_and_others_write(hot: HotChats, lacks: str) -> None:
    hot.told(CHAT, OWN, 0)
    now_ms = 0
    for now_ms in range(0, 2 * IN_USE_MS, ASK_MS):
        hot.way(CHAT, now_ms)
        hot.foreign(CHAT, now_ms)
        assert hot.wishes(now_ms) == WISH
        hot.told(CHAT, OWN, now_ms)
    later_ms = now_ms + IN_USE_MS + 1
    if lacks == "own":
        hot.foreign(CHAT, later_ms)
    else:
        hot.way(CHAT, later_ms)
    assert hot.wishes(later_ms) == []
    assert hot.way(CHAT, later_ms) is None


def test_new_holder_has_time_until_others_find_it(hot: HotChats) -> None:
    hot.told(CHAT, OTHER, 0)
    hot.told(CHAT, OWN, 1_000)
    assert hot.wishes(1_000 + IN_USE_MS) == WISH
    assert hot.wishes(1_001 + IN_USE_MS) == []


def test_lease_is_taken_from_a_holder_that_fails(hot: HotChats) -> None:
    hot.told(CHAT, OTHER, 0)
    assert hot.failed(CHAT, OTHER)
    assert hot.way(CHAT, 0) is None, "appended here meanwhile"
    assert hot.wishes(0) == [(CHAT, OTHER)]
    hot.told(CHAT, OWN, 0)
    assert hot.wishes(0) == WISH
    # That it has failed is known by now.
    assert not hot.failed(CHAT, OTHER)
    assert hot.held_count == 1


def test_failure_of_who_is_not_the_holder_means_nothing(hot: HotChats) -> None:
    hot.told(CHAT, THIRD, 0)
    assert not hot.failed(CHAT, OTHER)
    assert not hot.failed(ChatId("chat_2"), OTHER)
    assert hot.way(CHAT, 0) == THIRD


def test_nothing_is_known_any_more_when_nobody_can_be_asked(hot: HotChats) -> None:
    hot.told(CHAT, OTHER, 0)
    hot.forget()
    assert hot.way(CHAT, 0) is None
    # An answer that was under way comes too late.
    hot.told(CHAT, OTHER, 0)
    hot.foreign(CHAT, 0)
    assert len(hot) == 0


def test_so_many_hot_chats_are_known_and_the_first_is_forgotten() -> None:
    chats = HotChats(OWN, chats_max=2)
    for number in range(3):
        chats.overtaken(ChatId(f"chat_{number}"), 0)
    assert len(chats) == 2
    assert [chat_id for chat_id, _ in chats.wishes(0)] == ["chat_1", "chat_2"]
