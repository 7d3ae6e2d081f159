"""Wishes go together when they can, and everybody gets his own answer."""

import asyncio
from collections.abc import Sequence

import pytest

from tidewire.engines.dynamodb.gathering import Gatherer


class Shop:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.orders: list[list[int]] = []
        self.gate = asyncio.Event()
        self.fault: Exception | None = None

    async def fetch(self, items: Sequence[int]) -> list[str]:
        self.orders.append(list(items))
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return [str(item) for item in items]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def gatherer(shop: Shop, *, at_once_max: int = 1) -> Gatherer[int, str]:
    return Gatherer(shop.fetch, items_max=4, at_once_max=at_once_max)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_asked_meanwhile_goes_together_up_to_the_bound(shop: Shop) -> None:
    desk = gatherer(shop)
    first = asyncio.create_task(desk.ask([1]))
    await turns()
    rest = [asyncio.create_task(desk.ask(items)) for items in ([2, 3], [4], [5, 6], [], [7])]
    await turns()
    assert shop.orders == [[1]]
    shop.gate.set()
    assert await first == ["1"]
    assert await asyncio.gather(*rest) == [["2", "3"], ["4"], ["5", "6"], [], ["7"]]
    assert shop.orders == [[1], [2, 3, 4], [5, 6, 7]]


async def test_so_many_are_under_way_at_once(shop: Shop) -> None:
    desk = gatherer(shop, at_once_max=2)
    asked = [asyncio.create_task(desk.ask([item])) for item in (1, 2, 3)]
    await turns()
    assert shop.orders == [[1], [2]]
    shop.gate.set()
    assert await asyncio.gather(*asked) == [["1"], ["2"], ["3"]]


async def test_fault_reaches_everybody_in_that_request_and_nobody_else(shop: Shop) -> None:
    desk = gatherer(shop)
    shop.fault = RuntimeError("broken")
    failing = [asyncio.create_task(desk.ask([1])), asyncio.create_task(desk.ask([2]))]
    await turns()
    shop.gate.set()
    for task in failing:
        with pytest.raises(RuntimeError, match="broken"):
            await task
    shop.fault = None
    assert await desk.ask([3]) == ["3"]


async def test_nothing_is_fetched_for_somebody_who_has_gone(shop: Shop) -> None:
    desk = gatherer(shop)
    first = asyncio.create_task(desk.ask([1]))
    await turns()
    gone = asyncio.create_task(desk.ask([2]))
    await turns()
    gone.cancel()
    await turns()
    last = asyncio.create_task(desk.ask([3]))
    shop.gate.set()
    assert (await first, await last) == (["1"], ["3"])
    assert shop.orders == [[1], [3]]
