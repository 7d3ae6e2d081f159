"""The routes of one gateway: those to be made known, those known, those not sure. PURE.

A route whose registration was not answered may be known or not, and a push may have missed it: its
connection syncs again once the route is asserted. The same is true of a route that was missing.
"""

from collections.abc import Callable, Collection, Sequence

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.ports.router import Route


class RouteBook:
    def __init__(self) -> None:
        # In the order in which they came. A route is in one of the first two, or under way.
        self._to_register: dict[ConnectionId, Route] = {}
        self._known: dict[ConnectionId, Route] = {}
        self._to_unregister: dict[ConnectionId, Route] = {}
        self._under_way: dict[ConnectionId, Route] = {}
        self._unsure: set[ConnectionId] = set()
        # Routes that are known for sure, and since when each user has one without interruption.
        self._sure: set[ConnectionId] = set()
        self._sure_by_user: dict[UserId, tuple[int, int]] = {}
        self._interrupted: dict[UserId, None] = {}

    def __len__(self) -> int:
        return len(self._to_register) + len(self._under_way) + len(self._known)

    @property
    def has_wishes(self) -> bool:
        return bool(self._to_register or self._to_unregister)

    def routed_at_ms(self, user_id: UserId) -> int | None:
        """Since when this user has a route that is known for sure; None: there is none."""
        found = self._sure_by_user.get(user_id)
        return None if found is None else found[1]

    def take_interrupted(self) -> list[UserId]:
        """The users who since the last call lost their last sure route, even for a moment."""
        interrupted, self._interrupted = list(self._interrupted), {}
        return interrupted

    def _is_sure(self, route: Route, now_ms: int) -> None:
        if route.connection_id in self._sure:
            return
        self._sure.add(route.connection_id)
        count, since_ms = self._sure_by_user.get(route.user_id, (0, now_ms))
        self._sure_by_user[route.user_id] = (count + 1, since_ms)

    def _is_unsure(self, route: Route) -> None:
        if route.connection_id not in self._sure:
            return
        self._sure.remove(route.connection_id)
        count, since_ms = self._sure_by_user.pop(route.user_id)
        if count > 1:
            self._sure_by_user[route.user_id] = (count - 1, since_ms)
        else:
            self._interrupted[route.user_id] = None

    def register(self, route: Route) -> None:
        self._to_register[route.connection_id] = route

    def unregister(self, route: Route) -> None:
        """Let go of a route, however far its registration has come."""
        connection_id = route.connection_id
        self._is_unsure(route)
        self._unsure.discard(connection_id)
        if self._to_register.pop(connection_id, None) is not None:
            return
        self._under_way.pop(connection_id, None)
        self._known.pop(connection_id, None)
        self._to_unregister[connection_id] = route

    def take_to_register(self, count_max: int) -> list[Route]:
        """The next routes to register. `registered` or `not_registered` has to follow."""
        taken = list(self._to_register.values())[:count_max]
        for route in taken:
            del self._to_register[route.connection_id]
            self._under_way[route.connection_id] = route
        return taken

    def registered(self, routes: Sequence[Route], now_ms: int) -> None:
        for route in routes:
            # It may have been unregistered meanwhile.
            if self._under_way.pop(route.connection_id, None) is not None:
                self._known[route.connection_id] = route
                if route.connection_id not in self._unsure:
                    self._is_sure(route, now_ms)

    def not_registered(self, routes: Sequence[Route]) -> None:
        """There was no answer: when they are asserted next, they are known, and sync again."""
        self._unsure |= {
            one.connection_id for one in routes if one.connection_id in self._under_way
        }
        self.registered(routes, 0)

    def not_asserted(self, routes: Sequence[Route]) -> None:
        """There was no answer: they sync again when they are asserted."""
        for route in routes:
            self.doubt(route)

    def doubt(self, route: Route) -> None:
        """Routers may not know the route: its connection syncs again when it is surely known."""
        connection_id = route.connection_id
        if any(connection_id in one for one in (self._to_register, self._under_way, self._known)):
            self._unsure.add(connection_id)
            self._is_unsure(route)

    def take_to_unregister(self, count_max: int) -> list[Route]:
        """The next routes to forget. If that fails, they expire by themselves."""
        taken = list(self._to_unregister.values())[:count_max]
        for route in taken:
            del self._to_unregister[route.connection_id]
        return taken

    def chunks(
        self, size: int, order: Callable[[UserId], int] | None = None
    ) -> list[list[ConnectionId]]:
        """All known routes, in chunks to be asserted; sorted by the `order` of their users."""
        known = list(self._known)
        if order is not None:
            known.sort(key=lambda one: order(self._known[one].user_id))
        return [known[start : start + size] for start in range(0, len(known), size)]

    def still_known(self, connection_ids: Sequence[ConnectionId]) -> list[Route]:
        """The routes of a chunk that are still known when its turn has come."""
        known = self._known
        return [known[one] for one in connection_ids if one in known]

    def asserted(
        self, routes: Sequence[Route], missing: Collection[ConnectionId], now_ms: int
    ) -> list[ConnectionId]:
        """These routes are known from here on; answers which connections have to sync again."""
        told = []
        for route in routes:
            connection_id = route.connection_id
            if connection_id in self._known:
                if connection_id in missing or connection_id in self._unsure:
                    told.append(connection_id)
                    self._is_unsure(route)
                self._is_sure(route, now_ms)
            self._unsure.discard(connection_id)
        return told
