"""What is said in words."""

import pytest

from tidewire.client.effects import ConnectionState, Status
from tidewire.terminal.words import LOGIN_ENDED, Typists, state_words, typing_words


@pytest.mark.parametrize("state", ConnectionState)
def test_every_state_has_words(state: ConnectionState) -> None:
    assert state_words(Status(state))


@pytest.mark.parametrize(
    ("status", "waiting", "words"),
    [
        (Status(ConnectionState.READY), 2, "connected"),
        (Status(ConnectionState.SYNCING), 0, "connected, catching up"),
        (Status(ConnectionState.OFFLINE, "unreachable"), 0, "offline: no server there"),
        (Status(ConnectionState.OFFLINE, "unreachable"), 2, "offline: no server there · 2 to send"),
        (Status(ConnectionState.OFFLINE, "SOMETHING_NEW"), 0, "offline"),
        (Status(ConnectionState.CLOSED), 0, "ended: closed"),
        (Status(ConnectionState.CLOSED, "code_4999"), 0, "ended: code_4999"),
        (Status(ConnectionState.CLOSED, "session_revoked"), 0, "ended: this device was logged out"),
    ],
)
def test_state_words_say_why(status: Status, waiting: int, words: str) -> None:
    assert state_words(status, waiting) == words


@pytest.mark.parametrize("reason", sorted(LOGIN_ENDED))
def test_every_end_of_a_login_has_words(reason: str) -> None:
    assert reason not in state_words(Status(ConnectionState.CLOSED, reason))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["Bob"], "Bob is typing…"),
        (["B\x1bb", "Eve"], "B^[b and Eve are typing…"),
        (["Bob", "Eve", "Mallory"], "3 people are typing…"),
    ],
)
def test_typing_words(names: list[str], words: str) -> None:
    assert typing_words(names) == words


def test_typists_are_forgotten_after_their_time() -> None:
    typists = Typists(keep_ms=100, typists_max=10)
    typists.typed("chat", "bob", True, now_ms=0)
    typists.typed("chat", "eve", True, now_ms=50)
    typists.typed("other", "bob", True, now_ms=50)
    assert typists.typing_in("chat") == ["bob", "eve"]
    assert not typists.forget(99)
    assert typists.forget(100)
    assert typists.typing_in("chat") == ["eve"]


def test_typist_who_goes_on_is_kept_and_one_who_stops_is_not() -> None:
    typists = Typists(keep_ms=100, typists_max=10)
    typists.typed("chat", "bob", True, now_ms=0)
    typists.typed("chat", "bob", True, now_ms=90)
    assert not typists.forget(150)
    typists.typed("chat", "bob", False, now_ms=160)
    typists.typed("chat", "bob", False, now_ms=160)
    assert typists.typing_in("chat") == []


def test_typists_are_bounded() -> None:
    typists = Typists(keep_ms=100, typists_max=2)
    for name in ("bob", "eve", "zoe"):
        typists.typed("chat", name, True, now_ms=0)
    assert typists.typing_in("chat") == ["eve", "zoe"]
    assert len(typists) == 2
