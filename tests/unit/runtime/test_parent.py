"""The parent of several processes, without any: what it does when things happen at once."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidewire.runtime.config import load
from tidewire.runtime.parent import Parent, Works, _Child


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    flags = {"server.port": "0"}
    config = load(data_dir=tmp_path, flags=flags, environ={}).config
    unused: Any = None
    made = Parent(config, 2, Works(unused, unused))
    yield made
    for one in (made._woken, made._waker, *made._listeners.values()):
        one.close()
    made._selector.close()


def child(parent: Parent, pid: int, gateway: int | None) -> tuple[_Child, socket.socket]:
    """One whose process is played, and its end of the leash."""
    ours, theirs = socket.socketpair()
    made = _Child(pid, ours, gateway)
    parent._children[pid] = made
    parent._selector.register(ours, 1, made)
    return made, theirs


def test_child_that_was_waited_for_is_not_heard_any_more(parent: Parent) -> None:
    """Two die together: the selector has told of the second one when it is waited for as well."""
    gone, theirs = child(parent, 1, 2)
    theirs.close()
    assert [key.data for key, _ in parent._selector.select(1)] == [gone]
    del parent._children[1]
    parent._let_go(gone)
    parent._heard(gone)


def test_gateway_whose_rest_ends_without_a_store_is_not_forgotten(parent: Parent) -> None:
    parent._rest(2)
    assert list(parent._listeners) == [1]
    del parent._due["rest 2"]
    parent._start_after_rest(2)
    assert list(parent._due) == ["rest 2"]
    # Nor while the store starts.
    _, theirs = child(parent, 1, None)
    parent._due.clear()
    parent._start_after_rest(2)
    assert parent._resting() == [2]
    parent._let_go(parent._children[1])
    theirs.close()


def test_last_socket_stays_open(parent: Parent) -> None:
    parent._rest(1)
    parent._rest(2)
    assert list(parent._listeners) == [2]
    assert sorted(parent._due) == ["rest 1", "rest 2"]


def test_gateway_that_follows_the_store_into_its_end_has_not_died_by_itself(parent: Parent) -> None:
    parent._is_up = True
    for pid in (1, 2, 3):
        gone, theirs = child(parent, pid, 1)
        gone.is_ready = True
        # Another is still there, so nothing is started anew.
        other, others = child(parent, 10 + pid, 2)
        del parent._children[pid]
        parent._let_go(gone)
        parent._ended(gone, -9)
        del parent._children[10 + pid]
        parent._let_go(other)
        theirs.close()
        others.close()
    assert parent._deaths == {}
    assert list(parent._listeners) == [1, 2]
