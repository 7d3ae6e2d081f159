"""Checks whether the sessions of all connections are still valid.

For a process of a cluster that may have missed the news of a revocation: it reads the sessions from
the store again, and closes those that have ended. While the store is unavailable, it retries. A
session whose read fails unexpectedly counts as ended: nothing shows that it is valid.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewire.domain.accounts import external_session_id
from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import SessionId, UserId
from tidewire.ports.runtime import Clock, RequestKind, Tasks, pause
from tidewire.ports.storage import Storage

SESSIONS_AT_ONCE: Final = 50
RETRY_MS: Final = 1_000

Connected = tuple[UserId, SessionId]


@dataclass(eq=False, kw_only=True)
class SessionRecheck:
    """Runs one check at a time, however often it is called."""

    store: Storage
    clock: Clock
    tasks: Tasks
    connected: Callable[[], Sequence[Connected]]
    """Names the sessions of all connections."""
    on_ended: Callable[[Sequence[SessionId]], None]
    """Closes those connections."""

    def __post_init__(self) -> None:
        self._is_due = False
        self._is_running = False

    def __call__(self) -> None:
        """Check soon all sessions that are connected when the check begins."""
        self._is_due = True
        if not self._is_running:
            self._is_running = True
            self.tasks.start_service("sessions-recheck", self._run())

    async def _run(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                connected = list(self.connected())
                for start in range(0, len(connected), SESSIONS_AT_ONCE):
                    await self._check(connected[start : start + SESSIONS_AT_ONCE])
        finally:
            self._is_running = False

    async def _check(self, connected: Sequence[Connected]) -> None:
        while True:
            try:
                lives = await asyncio.gather(*(self._lives(*one) for one in connected))
            except Unavailable:
                await pause(RETRY_MS)
                continue
            ended = [one[1] for one, is_live in zip(connected, lives, strict=True) if not is_live]
            if ended:
                self.on_ended(ended)
            return

    async def _lives(self, user_id: UserId, session_id: SessionId) -> bool:
        try:
            return await self._is_live(user_id, session_id)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - it concerns this session alone
            names = {"user_id": user_id, "session_id": session_id}
            self.tasks.request_failed(RequestKind.SESSION, error, names)
            return False

    async def _is_live(self, user_id: UserId, session_id: SessionId) -> bool:
        found = await self.store.session(session_id)
        if found is not None:
            return found.expires_at_ms > self.clock.wall_ms()
        return any(
            user.disabled_at_ms is None and external_session_id(user) == session_id
            for user in await self.store.users([user_id])
        )
