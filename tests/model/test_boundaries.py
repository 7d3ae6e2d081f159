"""Ticks never go back: no joining, leaving, removal or return lets a boundary fall (decision 0006).

A boundary is how far all others have got, as one member is shown it: the digest's others_delivered
and others_read. It may not fall for anybody who stays, nor for who was away and came back.
"""

import asyncio
from pathlib import Path
from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.engines import ENGINES, IN_PROCESS_ENGINES, EngineHarness
from tests.support.world import World
from tidewire.domain.chats import Role
from tidewire.domain.delivery import Tick, tick
from tidewire.domain.errors import Refused
from tidewire.domain.ids import ChatId, UserId

PEOPLE: Final = 4
TICKS: Final = (Tick.SENT, Tick.DELIVERED, Tick.READ)

acts = st.tuples(
    st.sampled_from(["send", "send", "ack", "read", "read", "add", "add", "remove", "leave"]),
    st.integers(0, PEOPLE - 1),
    # How far back from the head a position is.
    st.integers(0, 4),
)


class Watch:
    """A group, and the highest that each of its members was ever shown."""

    def __init__(self, world: World, people: list[UserId], chat: ChatId) -> None:
        self.world = world
        self.people = people
        self.chat = chat
        self.shown: dict[UserId, tuple[int, int]] = {}
        self.ticks: dict[tuple[UserId, int], int] = {}

    async def do(self, act: str, person: int, back: int) -> None:
        world, chat, owner, user = self.world, self.chat, self.people[0], self.people[person]
        head = (await world.chat(owner, chat)).head
        match act:
            case "send":
                await world.try_send(chat, user, seen=max(0, head - back))
            case "ack":
                await world.try_ack(user, chat, max(0, head - back))
            case "read":
                await world.try_read(user, chat, max(0, head - back))
            case "add":
                await world.add(owner, chat, user, Role.ADMIN if back == 0 else Role.MEMBER)
            case "remove":
                await world.remove(owner, chat, user)
            case _:
                await world.leave(user, chat)

    async def look(self) -> None:
        floors = (await self.world.storage.floors([self.chat]))[0]
        assert floors is not None
        for user in await self.world.members(self.people[0], self.chat):
            entry = await self.world.entry(user, self.chat)
            shown = entry.others_delivered, entry.others_read
            assert shown == (
                floors.delivered.boundary(user, floors.head),
                floors.read.boundary(user, floors.head),
            )
            assert entry.others_read <= entry.others_delivered <= entry.head
            before = self.shown.get(user, (0, 0))
            assert shown[0] >= before[0], f"delivered fell from {before[0]} to {shown[0]}"
            assert shown[1] >= before[1], f"read fell from {before[1]} to {shown[1]}"
            self.shown[user] = shown
            self._look_at_ticks(user, entry.head, *shown)

    def _look_at_ticks(self, user: UserId, head: int, delivered: int, read: int) -> None:
        for sequence in range(1, head + 1):
            mark = tick(sequence, others_delivered=delivered, others_read=read)
            rank = TICKS.index(mark)
            assert rank >= self.ticks.get((user, sequence), 0)
            self.ticks[user, sequence] = rank


# Some hundred histories of a group, looked at from everybody's side after every act.
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda harness: harness.name)
def test_boundary_never_falls_whoever_comes_and_goes(
    engine: type[EngineHarness], tmp_path: Path
) -> None:
    """One store for all examples, a new group for each."""
    is_quick = engine in IN_PROCESS_ENGINES
    # Shrinking would take longer than the test may.
    phases = [one for one in Phase if one is not Phase.shrink or is_quick]
    harness = engine(tmp_path)
    world = World(harness)
    with asyncio.Runner() as runner:
        runner.run(harness.open())
        people = runner.run(world.people(PEOPLE))

        @settings(max_examples=100 if is_quick else 8, phases=phases)
        @given(st.lists(acts, min_size=5, max_size=25))
        def live(history: list[tuple[str, int, int]]) -> None:
            runner.run(watch(history))

        async def watch(history: list[tuple[str, int, int]]) -> None:
            watch = Watch(world, people, await world.group(people[0], people[1]))
            for act, person, back in history:
                try:
                    await watch.do(act, person, back)
                except Refused:
                    continue
                await watch.look()

        try:
            live()
        finally:
            runner.run(harness.close())
