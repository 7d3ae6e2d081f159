"""A gateway process's end of its link: its routes, its calls to the fan-out, shared limits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidewire.domain.audit import AuditRecord
from tidewire.domain.events import LoggedEvent, PositionsAdvanced, StatusMissed
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.rates import SharedView
from tidewire.ports.router import Registrar, Route
from tidewire.ports.runtime import Clock, Tasks, pause
from tidewire.processes.link import Link

EXCHANGE_MS: Final = 20
"""The interval at which the use of shared limits is exchanged."""
KEYS_MAX: Final = 2_000
"""How many keys of a limit are exchanged at once, at most."""


class GatewayEnd:
    """A `ports.router.Registrar`, and a proxy for the fan-out, which is at the other end."""

    def __init__(self, *, tasks: Tasks, on_lost: Callable[[], None], bytes_max: int) -> None:
        """`on_lost` is called if the store process is gone, or does not read its link."""
        self.acts: dict[str, Callable[..., Any]] = {}
        """Functions that the store process may call here; filled before any route is known."""
        self.link = Link(self.acts, tasks=tasks, on_lost=on_lost, bytes_max=bytes_max)

    # `ports.router.Registrar`.

    async def register(self, route: Route) -> int:
        elsewhere: int = await self.link.call("add_route", route)
        return elsewhere

    def unregister(self, route: Route) -> None:
        self.link.tell("drop_route", route)

    # For the fan-out.

    def typing(
        self, user_id: UserId, chat_id: ChatId, *, is_typing: bool, origin: ConnectionId
    ) -> None:
        self.link.tell("typing", user_id, chat_id, is_typing=is_typing, origin=origin)

    def roster_changed(self, chat_id: ChatId) -> None:
        self.link.tell("roster_changed", chat_id)

    def status_missed(self, events: Sequence[StatusMissed]) -> None:
        self.link.tell("status_missed", list(events))

    def committed(self, events: Sequence[LoggedEvent]) -> None:
        """Does nothing: the store process tells its own fan-out."""

    def positions_advanced(self, events: Sequence[PositionsAdvanced]) -> None:
        """Does nothing, as `committed`."""

    # For the others.

    def keep_record(self, record: AuditRecord) -> None:
        """Have the store process write it to the audit trail's files."""
        self.link.tell("audit", record)

    async def metrics(self) -> bytes:
        """The metrics of all processes, summed."""
        page: bytes = await self.link.call("metrics")
        return page

    def share_limits(self, views: Mapping[str, SharedView], *, clock: Clock, tasks: Tasks) -> None:
        """Share these limits with the other gateways, from now on."""
        self.link.tell("share_limits", {name: view.rate for name, view in views.items()})

        def learn(name: str, left: Sequence[tuple[str, int]]) -> None:
            now_ms = clock.monotonic_ms()
            for key, left_us in left:
                views[name].learn(key, left_us, now_ms)

        self.acts["used"] = learn
        tasks.start_service("link-limits", self._exchange(views, learn))

    async def _exchange(
        self,
        views: Mapping[str, SharedView],
        learn: Callable[[str, Sequence[tuple[str, int]]], None],
    ) -> None:
        while True:
            await pause(EXCHANGE_MS)
            used = {name: view.take_used(KEYS_MAX) for name, view in views.items()}
            used = {name: pairs for name, pairs in used.items() if pairs}
            if not used:
                continue
            left: dict[str, list[int]] = await self.link.call("limits", used)
            for name, pairs in used.items():
                keys = (key for key, _ in pairs)
                learn(name, list(zip(keys, left[name], strict=True)))


_CONFORMS: type[Registrar] = GatewayEnd
