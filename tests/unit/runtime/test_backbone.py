"""How long a process that starts waits for its database."""

import pytest

from tests.unit.gateway.fakes import ManualClock
from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.runtime import backbone
from tidewire.runtime.backbone import START_MS_MAX, START_PAUSE_MS, await_database

AWAY = StoreUnavailable("connection refused")


class Database:
    """Each question takes a fifth of the patience there is."""

    def __init__(self, *outcomes: Exception) -> None:
        self.clock = ManualClock()
        self.asked = 0
        self._outcomes = list(outcomes)

    async def ask(self) -> str:
        self.asked += 1
        self.clock.forward(START_MS_MAX // 5)
        if self._outcomes:
            raise self._outcomes.pop(0)
        return "an answer"


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long it would have waited each time."""
    waited: list[int] = []

    async def note(delay_ms: int) -> None:
        waited.append(delay_ms)

    monkeypatch.setattr(backbone, "pause", note)
    return waited


async def test_database_that_comes_late_is_awaited(
    caplog: pytest.LogCaptureFixture, pauses: list[int]
) -> None:
    database = Database(AWAY, AWAY)
    assert await await_database(database.clock, database.ask) == "an answer"
    assert [one.getMessage() for one in caplog.records] == [
        "waiting for the database: connection refused"
    ] * 2
    assert pauses == [START_PAUSE_MS] * 2


async def test_patience_has_an_end() -> None:
    database = Database(*[AWAY] * 100)
    with pytest.raises(StoreUnavailable, match="connection refused"):
        await await_database(database.clock, database.ask)
    assert database.asked == 5


async def test_what_waiting_does_not_mend_is_told_at_once() -> None:
    database = Database(StoreUnusable("a table is missing"))
    with pytest.raises(StoreUnusable):
        await await_database(database.clock, database.ask)
    assert database.asked == 1
