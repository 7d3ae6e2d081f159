"""A server whose clock is set goes on: tokens hold, and stamps follow it again (B4)."""

from datetime import datetime
from pathlib import Path

import pytest

from tests.wired.site import wired
from tidewire.ingest.service import HELD_MS_MAX
from tidewire.runtime.clock import SystemClock

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000


class WrongClock(SystemClock):
    """The real one, set by the test."""

    ahead_ms = 0
    passed_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + WrongClock.ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + WrongClock.passed_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[WrongClock]:
    monkeypatch.setattr(WrongClock, "ahead_ms", 0)
    monkeypatch.setattr(WrongClock, "passed_ms", 0)
    monkeypatch.setattr("tidewire.runtime.wiring.SystemClock", WrongClock)
    return WrongClock


def instant_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


async def test_clock_that_was_ahead_and_is_set_right_locks_nobody_out_and_leaves_no_mark(
    tmp_path: Path, clock: type[WrongClock]
) -> None:
    async with wired(tmp_path) as site:
        clock.ahead_ms = 30 * MINUTE_MS
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as phone:
            wrong_ms = instant_ms((await phone.say(chat_id, "ahead"))["created_at"])
            clock.ahead_ms = 0
            held_ms = instant_ms((await phone.say(chat_id, "held"))["created_at"])
            assert held_ms == wrong_ms
            clock.passed_ms += HELD_MS_MAX
            now_ms = WrongClock().wall_ms()
            true_ms = instant_ms((await phone.say(chat_id, "true"))["created_at"])
            assert now_ms <= true_ms < now_ms + 10 * MINUTE_MS
        # The tokens were issued half an hour from now.
        assert (await site.call("GET", "/api/v1/users/me", by=ann)).status_code == 200
        async with site.phone(ben) as phone:
            await phone.caught_up()
            texts = [one["content"] for one in await phone.sync(chat_id)]
        assert texts == ["ahead", "held", "true"]
