"""Houses for the tests of the ingest service."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.ingest.fake_store import FakeStore
from tests.unit.ingest.house import House


@pytest.fixture
async def houses() -> AsyncIterator[list[House]]:
    """The houses that a test builds, closed at its end."""
    made: list[House] = []
    yield made
    for house in made:
        await house.tasks.close()


@pytest.fixture
async def house(houses: list[House]) -> House:
    """A house whose store answers at once."""
    houses.append(House(FakeStore()))
    return houses[-1]


@pytest.fixture
async def held(houses: list[House]) -> House:
    """A house whose store waits to be told what to do with each append."""
    houses.append(House(FakeStore(is_holding=True)))
    return houses[-1]
