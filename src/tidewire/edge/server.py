"""The port: uvicorn serves HTTP to the REST app and hands WebSockets to the gateway.

Signals are the lifecycle's business, so uvicorn's own handling of them is switched off. The
limits of a connection are in `edge.http` and `edge.websocket`.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import uvicorn

from tidewire.domain.errors import TidewireError
from tidewire.domain.rates import SharedView
from tidewire.edge.budgets import Doors, InboundRates
from tidewire.edge.http import HttpProtocol
from tidewire.edge.options import EdgeOptions
from tidewire.edge.peers import TrustedProxies
from tidewire.edge.websocket import Port, UpgradeProtocol
from tidewire.ports.runtime import Tasks
from tidewire.ports.transport import SocketGateway

RECEIVE_BUFFER_BYTES: Final = 32 * 1024
"""The size that we ask the kernel for; it doubles it. One read can return at most this buffer, so
no callback parses more before the event loop has a turn."""


class PortUnavailable(TidewireError):
    """The address cannot be listened on; the sentence says why and what to do."""


class EdgeServer:
    """One port for REST and WebSocket."""

    def __init__(
        self, app: Any, *, gateway: SocketGateway, tasks: Tasks, options: EdgeOptions
    ) -> None:
        """`app` is an ASGI application for everything that is not a WebSocket."""
        self._options = options
        self._tasks = tasks
        self._doors = Doors(options)
        port = Port(
            options=options,
            gateway=gateway,
            tasks=tasks,
            proxies=TrustedProxies(options.trusted_proxies),
            doors=self._doors,
            rates=InboundRates(options),
        )
        config = uvicorn.Config(
            app,
            # uvicorn calls what it is given here; its type hints only know classes.
            http=cast("Any", partial(HttpProtocol, port)),
            # Set, because otherwise uvicorn does not recognise upgrades; `HttpProtocol` uses it.
            ws=cast("Any", UpgradeProtocol),
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=max(1, options.keep_alive_ms // 1000),
            backlog=options.backlog,
            ssl_certfile=None if options.tls_cert is None else str(options.tls_cert),
            ssl_keyfile=None if options.tls_key is None else str(options.tls_key),
        )
        self._config = config
        self._server = _Server(config, options.tls_handshake_timeout_ms / 1000)
        self._socket: socket.socket | None = None
        self._stopped = asyncio.Event()

    @property
    def port(self) -> int:
        """The listening port; the one that the kernel chose if the option is 0."""
        assert self._socket is not None, "not started"
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        assert self._socket is not None, "not started"
        return url_of(self._options, self._socket)

    def share_limits(self) -> dict[str, SharedView]:
        """Count malformed requests over all processes together."""
        return self._doors.share_limits()

    def listen_on(self, reserved: socket.socket) -> None:
        """Use this socket of `reserve_port`; otherwise `start` takes the port itself."""
        self._socket = reserved

    async def start(self) -> None:
        """Listen and serve from now on. Raises PortUnavailable."""
        if self._socket is None:
            self._socket = reserve_port(self._options)
        self._config.load()
        self._tasks.start_service("edge-server", self._serve())
        await self._server.is_up.wait()

    async def stop_accepting(self) -> None:
        """Take no new connections; those that are open go on."""
        for listener in self._server.servers:
            listener.close()
        if self._socket is not None:
            self._socket.close()

    async def stop(self) -> None:
        """Let open HTTP requests finish, then stop. The gateway closes the WebSockets."""
        self._server.should_exit = True
        await self._stopped.wait()

    async def _serve(self) -> None:
        assert self._socket is not None
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._stopped.set()


class _Server(uvicorn.Server):
    """uvicorn's server with a timeout for TLS handshakes, which uvicorn does not have."""

    def __init__(self, config: uvicorn.Config, tls_handshake_timeout_s: float) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._tls_handshake_timeout_s = tls_handshake_timeout_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config = self.config

        def protocol() -> asyncio.Protocol:
            make = cast("Any", config.http_protocol_class)
            made: asyncio.Protocol = make(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        is_secure = config.ssl is not None
        self.servers = [
            await asyncio.get_running_loop().create_server(
                protocol,
                sock=listener,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=self._tls_handshake_timeout_s if is_secure else None,
            )
            for listener in sockets or ()
        ]
        self.started = True
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def reserve_port(options: EdgeOptions) -> socket.socket:
    """Bind the address, not shared, without listening on it yet. Raises PortUnavailable."""
    return _bind(options, options.port, is_shared=False)


def sharing_sockets(options: EdgeOptions, count: int) -> list[socket.socket]:
    """Listening sockets that share the address (`SO_REUSEPORT`): the kernel spreads connections
    over them. Raises PortUnavailable.

    One socket listens alone first, so that no other server shares the address: binding alone is
    not enough, because several servers can bind as long as none of them listens. That socket stays
    as the first of the list: closing it would reset the clients that have connected by then.
    """
    alone = reserve_port(options)
    _listen(options, alone)
    alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port = alone.getsockname()[1]
    return [alone, *(sharing_socket(options, port) for _ in range(count - 1))]


def sharing_socket(options: EdgeOptions, port: int) -> socket.socket:
    """One more socket that shares the address. Raises PortUnavailable."""
    listener = _bind(options, port, is_shared=True)
    _listen(options, listener)
    return listener


def url_of(options: EdgeOptions, listener: socket.socket) -> str:
    scheme = "http" if options.tls_cert is None else "https"
    return f"{scheme}://{_in_url(options.host)}:{listener.getsockname()[1]}"


def _bind(options: EdgeOptions, port: int, *, is_shared: bool) -> socket.socket:
    listener: socket.socket | None = None
    try:
        family = socket.getaddrinfo(options.host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Accepted connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        listener.bind((options.host, port))
    except OSError as error:
        if listener is not None:
            listener.close()
        raise _unavailable(options, port, error) from error
    listener.setblocking(False)
    return listener


def _listen(options: EdgeOptions, listener: socket.socket) -> None:
    try:
        listener.listen(options.backlog)
    except OSError as error:
        port = listener.getsockname()[1]
        listener.close()
        raise _unavailable(options, port, error) from error


def _unavailable(options: EdgeOptions, port: int, error: OSError) -> PortUnavailable:
    return PortUnavailable(
        f"cannot listen on {_in_url(options.host)}:{port}: {error.strerror}; "
        "another server may be running there, or name another --host or --port"
    )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
