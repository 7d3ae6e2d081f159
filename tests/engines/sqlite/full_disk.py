"""What happens on a disk that fills up and is emptied again, told in a few lines.

Holds no test: one story, told by disks of different make.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tests.support.engines import EngineHarness
from tests.support.outcomes import chained
from tests.support.world import World
from tidewire.domain.messages import Appended

SENDS_MAX: Final = 2_000

EXPECTED: Final = [
    "when it is full, a send gets StoreFull SERVICE_UNAVAILABLE",
    "three at once get StoreFull, StoreFull, StoreFull",
    "an acknowledgement gets StoreFull",
    "a reader still gets everything",
    "the listener heard of nothing else",
    "when there is room, the three are stored right behind",
    "after a restart the chain is whole and has them all",
]


async def full_disk_story(
    store: EngineHarness, fill: Callable[[], None], make_room: Callable[[], None]
) -> Sequence[str]:
    """Send until nothing goes any more, look around, make room, send the same again."""
    world = World(store)
    await store.open()
    one, other = await world.people(2)
    chat = await world.direct(one, other)
    head = await world.send_many(chat, one, 3)
    fill()
    story = []
    for _ in range(SENDS_MAX):
        outcome = await attempt(world.send(chat, one, "x" * 4_000))
        if isinstance(outcome, Exception):
            code = getattr(outcome, "code", None)
            story.append(f"when it is full, a send gets {name(outcome)} {code}")
            break
        head += 1
    world.new_commits()
    drafts = [world.draft(chat, one, f"{number}" * 4_000) for number in range(3)]
    outcomes = await asyncio.gather(*(attempt(world.append(draft)) for draft in drafts))
    story.append("three at once get " + ", ".join(name(outcome) for outcome in outcomes))
    story.append(f"an acknowledgement gets {name(await attempt(world.ack(other, chat, head)))}")
    sequences = [message.sequence for message in await world.messages(other, chat)]
    if sequences == list(range(1, head + 1)):
        story.append("a reader still gets everything")
    if world.new_commits() == []:
        story.append("the listener heard of nothing else")
    make_room()
    answers = [(await world.append(draft))[0] for draft in drafts]
    if [answer.sequence for answer in answers if isinstance(answer, Appended)] == [
        head + 1,
        head + 2,
        head + 3,
    ]:
        story.append("when there is room, the three are stored right behind")
    await store.reopen()
    found = await store.messages(chat)
    if chained(found) and [message.sequence for message in found] == list(range(1, head + 4)):
        story.append("after a restart the chain is whole and has them all")
    await store.close()
    return story


async def attempt(work: Awaitable[object]) -> object:
    """The result, or the error that came instead."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - that is what is asked for
        return error


def name(outcome: object) -> str:
    return type(outcome).__name__
