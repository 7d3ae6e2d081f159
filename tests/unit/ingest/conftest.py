"""Houses for the tests of the ingest service."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.ingest.fake_store import CallbackStore, FakeStore
from tests.unit.ingest.house import House


@pytest.fixture
async def houses() -> AsyncIterator[list[House]]:
    """The houses that a test builds, closed at its end."""
    made: list[House] = []
    yield made
    for house in made:
        await house.tasks.close()
        if isinstance(house.store, CallbackStore):
            house.store.close()


@pytest.fixture(params=[FakeStore, CallbackStore])
def store_class(request: pytest.FixtureRequest) -> type[FakeStore]:
    """Every rule holds for stores that are awaited and for those that answer by callback."""
    made: type[FakeStore] = request.param
    return made


@pytest.fixture
async def house(houses: list[House], store_class: type[FakeStore]) -> House:
    """A house whose store answers at once."""
    houses.append(House(store_class()))
    return houses[-1]


@pytest.fixture
async def held(houses: list[House], store_class: type[FakeStore]) -> House:
    """A house whose store waits to be told what to do with each append."""
    houses.append(House(store_class(is_holding=True)))
    return houses[-1]
