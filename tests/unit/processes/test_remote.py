"""Things of which a server has one, used from another process: each method is a call."""

import asyncio
import socket

import pytest

from tidewire.domain.errors import RateLimited
from tidewire.ports.audit import NOWHERE, ORIGIN, Origin, origin_noted
from tidewire.ports.runtime import pause
from tidewire.processes.link import Link
from tidewire.processes.remote import offer, reach
from tidewire.runtime.supervise import TaskSupervisor

BYTES_MAX = 1_000_000


class Door:
    """Counts all who come, and keeps where they came from."""

    def __init__(self) -> None:
        self.came: list[tuple[str, str | None]] = []

    async def enter(self, name: str, *, is_late: bool = False) -> int:
        await pause(0)
        self.came.append((name, ORIGIN.get().address))
        if is_late:
            raise RateLimited("later", retry_after_ms=len(self.came))
        return len(self.came)

    @property
    def width(self) -> int:
        raise AssertionError("it cannot be asked for from elsewhere")

    async def _locked(self) -> None:
        raise AssertionError("it is its own")


async def test_thing_is_used_from_elsewhere_as_if_it_were_here() -> None:
    door, tasks = Door(), TaskSupervisor()
    acts = offer("door", door)
    assert list(acts) == ["door.enter"]
    ends = [Link(one, tasks=tasks, on_lost=lambda: None, bytes_max=BYTES_MAX) for one in ({}, acts)]
    for end, ours in zip(ends, socket.socketpair(), strict=True):
        await end.connect(ours)
    far = reach("door", Door, ends[0], width=3)
    assert far.width == 3
    assert not hasattr(far, "_locked")

    async def enter(name: str, address: str) -> int:
        with origin_noted(Origin(address)):
            return await far.enter(name)

    # Side by side: each has its own origin, and what came before has none.
    assert sorted(await asyncio.gather(enter("ann", "10.0.0.1"), enter("bob", "10.0.0.2"))) == [
        1,
        2,
    ]
    with pytest.raises(RateLimited) as refused:
        await far.enter("eve", is_late=True)
    assert refused.value.retry_after_ms == 3
    assert sorted(door.came) == [("ann", "10.0.0.1"), ("bob", "10.0.0.2"), ("eve", None)]
    assert ORIGIN.get() == NOWHERE
    for end in ends:
        end.cut()
    await tasks.close()
