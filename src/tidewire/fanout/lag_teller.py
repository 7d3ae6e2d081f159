"""Has clients told to sync while pushes are late: a gateway watches its own commits.

A dead fan-out worker, or a log that is unavailable, cannot report that it is late. The gateway that
committed knows it, as long as it lives: the log has not got its commit, or the readers of the log
have not handled it. The shell around the PURE notices.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.lag import Behind, merged
from tidewire.domain.resync import ResyncReason
from tidewire.fanout.lag import BEHIND_MS, CHATS_MAX, LagNotices
from tidewire.ports.runtime import Clock, pause

LOOK_MS: Final = 1_000


class Members(Protocol):
    """Reaches the members of chats (`fanout.worker.FanoutWorker`)."""

    def behind(self, chat_id: ChatId, former: Sequence[UserId]) -> None: ...


class Everybody(Protocol):
    """`ports.router.Router`."""

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None: ...


@dataclass(kw_only=True, eq=False)
class LagTeller:
    """`run` is a task that lasts as long as the process."""

    unlogged: Callable[[int], Behind | None]
    """The chats of commits that wait for the log since this instant or longer; None: any chat."""
    late: Callable[[int], Awaitable[Behind | None]]
    """`ports.event_log.LateLog.late`."""
    members: Members
    everybody: Everybody
    clock: Clock
    chats_behind: int = field(default=0, init=False)
    """In how many chats commits of this process are late, `CHATS_MAX` at most."""

    def __post_init__(self) -> None:
        self._notices = LagNotices()

    async def run(self) -> None:
        while True:
            await self.step()
            await pause(LOOK_MS)

    async def step(self) -> None:
        """Look once, and send the notices that are due."""
        unread = await self.late(BEHIND_MS)
        now_ms = self.clock.monotonic_ms()
        behind = merged(self.unlogged(now_ms - BEHIND_MS), unread)
        self.chats_behind = CHATS_MAX if behind is None else min(len(behind), CHATS_MAX)
        due = self._notices.due(behind, now_ms)
        if due is None:
            self.everybody.resync(None, ResyncReason.LOG_BEHIND)
            return
        for chat_id in due:
            self.members.behind(chat_id, () if behind is None else behind[chat_id])
