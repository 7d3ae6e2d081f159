"""Where connections are, and which of a device stays."""

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.ports.router import Route
from tidewire.processes.registry import Place, Registry

ANN, BOB, CLEO = UserId("ann"), UserId("bob"), UserId("cleo")


def route(connection: str, user_id: UserId = ANN, device: str = "phone") -> Route:
    return Route(ConnectionId(connection), user_id, device)


def test_users_are_found_at_the_gateways_that_have_them() -> None:
    registry = Registry()
    for gateway, one in (
        (1, route("a1")),
        (1, route("a2", device="desk")),
        (2, route("a3", device="pad")),
        (2, route("b1", BOB)),
    ):
        registry.register(gateway, one)
    assert registry.split([BOB, ANN, CLEO]) == {1: [ANN], 2: [BOB, ANN]}
    assert registry.presence([ANN, BOB, CLEO]) == {ANN: 3, BOB: 1}


def test_connections_on_other_devices_at_other_gateways_are_counted() -> None:
    registry = Registry()
    assert registry.register(1, route("a1")) == (0, [])
    # The gateway itself counts its own.
    assert registry.register(1, route("a2", device="desk")) == (0, [])
    assert registry.register(2, route("a3", device="pad")) == (2, [])


def test_older_connection_of_a_device_at_another_gateway_has_to_go() -> None:
    registry = Registry()
    registry.register(1, route("a1"))
    registry.register(1, route("b1", BOB))
    assert registry.register(2, route("a2")) == (0, [Place(1, route("a1"))])
    assert registry.split([ANN]) == {2: [ANN]}
    # Its own gateway says so a moment later.
    registry.unregister(route("a1"))
    assert registry.presence([ANN]) == {ANN: 1}


def test_older_connection_of_a_device_at_the_same_gateway_is_that_ones_business() -> None:
    registry = Registry()
    registry.register(1, route("a1"))
    assert registry.register(1, route("a2")) == (0, [])
    registry.unregister(route("a1"))
    assert registry.split([ANN]) == {1: [ANN]}


def test_nothing_is_left_of_those_who_went() -> None:
    registry = Registry()
    registry.register(1, route("a1"))
    registry.unregister(route("a1"))
    registry.unregister(route("a1"))
    registry.unregister(route("b1", BOB))
    assert registry.split([ANN, BOB]) == {}
    assert registry.presence([ANN]) == {}


def test_gateway_that_is_lost_takes_its_connections_along() -> None:
    registry = Registry()
    registry.register(1, route("a1"))
    registry.register(2, route("a2", device="desk"))
    registry.register(1, route("b1", BOB))
    registry.lose(1)
    assert registry.split([ANN, BOB]) == {2: [ANN]}
