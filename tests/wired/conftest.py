"""Fixtures of servers as they are wired."""

import pytest

from tests.wired.site import HandClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[HandClock]:
    """The server's clock for lengths stands still until the test moves it."""
    monkeypatch.setattr(HandClock, "now_ms", HandClock.now_ms)
    monkeypatch.setattr("tidewire.runtime.wiring.SystemClock", HandClock)
    return HandClock
