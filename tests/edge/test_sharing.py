"""A port that several processes of one server share, and no other server."""

import socket
from collections.abc import Iterator

import pytest

from tidewire.edge import server
from tidewire.edge.options import EdgeOptions
from tidewire.edge.server import PortUnavailable, reserve_port, sharing_socket, sharing_sockets


def test_port_is_shared_with_no_other_server_from_the_first_instant() -> None:
    """Before any gateway has started: binding alone would let a second server in."""
    listeners = sharing_sockets(EdgeOptions(port=0), 3)
    port = listeners[0].getsockname()[1]
    try:
        assert {one.getsockname()[1] for one in listeners} == {port}
        with pytest.raises(PortUnavailable):
            sharing_sockets(EdgeOptions(port=port), 3)
        with pytest.raises(PortUnavailable):
            reserve_port(EdgeOptions(port=port))
        # One of ours that has rested comes back.
        listeners.pop().close()
        listeners.append(sharing_socket(EdgeOptions(port=port), port))
    finally:
        for one in listeners:
            one.close()


def test_every_connection_is_for_one_of_the_sharing_sockets() -> None:
    listeners = sharing_sockets(EdgeOptions(port=0), 3)
    address = listeners[0].getsockname()
    peers = [socket.create_connection(address, timeout=5) for _ in range(60)]
    accepted = accept_all(listeners)
    close(*peers, *listeners)
    assert sum(accepted) == len(peers)
    # By chance one of them would get none once in ten billion times.
    assert min(accepted) > 0


def test_connection_that_comes_while_the_sockets_are_made_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A socket that was listened on and is closed resets those who wait in its queue."""
    peers: list[socket.socket] = []

    def connect_first(options: EdgeOptions, port: int) -> socket.socket:
        peers.extend(socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(10))
        return sharing_socket(options, port)

    monkeypatch.setattr(server, "sharing_socket", connect_first)
    listeners = sharing_sockets(EdgeOptions(port=0), 3)
    accepted = accept_all(listeners)
    close(*peers, *listeners)
    assert sum(accepted) == len(peers) > 0


def accept_all(listeners: list[socket.socket]) -> list[int]:
    """How many connections wait at each of them."""
    return [sum(1 for _ in accepted_by(listener)) for listener in listeners]


def accepted_by(listener: socket.socket) -> Iterator[None]:
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        connection.close()
        yield


def close(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()


def test_port_that_another_has_bound_but_does_not_listen_on_goes_to_the_first_who_does() -> None:
    with reserve_port(EdgeOptions(port=0)) as bound:
        port = bound.getsockname()[1]
        for one in (listeners := sharing_sockets(EdgeOptions(port=port), 2)):
            assert one.getsockname()[1] == port
        with pytest.raises(OSError, match="in use"):
            bound.listen(1)
        for one in listeners:
            one.close()
