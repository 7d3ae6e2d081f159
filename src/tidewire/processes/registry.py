"""The one registry of connections, by gateway; it keeps the last one of a device. PURE."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.ports.router import Route


class Place(NamedTuple):
    """The gateway and the route of a connection."""

    gateway: int
    route: Route


class Registry:
    """Routes by user. Each gateway has a number, which is never used again."""

    def __init__(self) -> None:
        self._by_user: dict[UserId, dict[ConnectionId, Place]] = {}

    def register(self, gateway: int, route: Route) -> tuple[int, list[Place]]:
        """Add a route. Returns how many connections the user has on other devices at other
        gateways, and this device's older ones at other gateways, which have to be closed."""
        places = self._by_user.setdefault(route.user_id, {})
        elsewhere = [one for one in places.values() if one.gateway != gateway]
        older = [one for one in elsewhere if one.route.device_id == route.device_id]
        for one in older:
            del places[one.route.connection_id]
        places[route.connection_id] = Place(gateway, route)
        return len(elsewhere) - len(older), older

    def unregister(self, route: Route) -> None:
        """Remove a route. Safe for one that was removed already."""
        places = self._by_user.get(route.user_id)
        if places is not None:
            places.pop(route.connection_id, None)
            if not places:
                del self._by_user[route.user_id]

    def lose(self, gateway: int) -> None:
        """Remove all connections of a gateway that is gone."""
        routes = [
            one.route
            for places in self._by_user.values()
            for one in places.values()
            if one.gateway == gateway
        ]
        for route in routes:
            self.unregister(route)

    def split(self, user_ids: Iterable[UserId]) -> dict[int, list[UserId]]:
        """The connected ones of these users, by gateway, in the given order."""
        found: dict[int, list[UserId]] = {}
        by_user = self._by_user
        for user_id in user_ids:
            places = by_user.get(user_id)
            if places is None:
                continue
            for gateway in {one.gateway for one in places.values()}:
                found.setdefault(gateway, []).append(user_id)
        return found

    def presence(self, user_ids: Sequence[UserId]) -> dict[UserId, int]:
        """The number of connections of each of these users who is connected."""
        by_user = self._by_user
        return {one: len(by_user[one]) for one in user_ids if one in by_user}
