"""HTTP of a process that serves no clients: health, readiness, metrics, and 404 for all else."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tidewire.domain.errors import Unavailable
from tidewire.edge.peers import Insiders
from tidewire.ports import transport as sockets

_JSON: Final = b"application/json"
_METRICS: Final = b"text/plain; version=0.0.4"
_NOT_HERE: Final = "this process serves no clients; they connect to a gateway"


@dataclass(eq=False, kw_only=True)
class Probes:
    """An ASGI application."""

    check_ready: Callable[[], Awaitable[None]]
    metrics: Callable[[], bytes]
    insiders: Insiders
    """These peers may see readiness and metrics; all others get 404."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        peer_ip = (scope["client"] or ("", 0))[0]
        if path != "/healthz" and not self.insiders.includes(peer_ip, scope["headers"]):
            path = ""
        status, kind, body = await self._answer(path)
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        match path:
            case "/healthz":
                return 200, _JSON, b'{"status":"ok"}'
            case "/metrics":
                return 200, _METRICS, self.metrics()
            case "/readyz":
                try:
                    await self.check_ready()
                except Unavailable:
                    return 503, _JSON, b'{"status":"not ready"}'
                return 200, _JSON, b'{"status":"ready"}'
            case _:
                return 404, _JSON, b'{"error":"not_found","message":"%s"}' % _NOT_HERE.encode()


class NoGateway:
    """Refuses every WebSocket."""

    async def authorise(
        self, request: sockets.UpgradeRequest
    ) -> sockets.Admission | sockets.HandshakeRefusal:
        return sockets.HandshakeRefusal(http_status=404, error="not_found", message=_NOT_HERE)

    def connected(
        self, admission: sockets.Admission, transport: sockets.SocketTransport
    ) -> sockets.SocketListener:
        raise AssertionError("no client is admitted here")


_CONFORMS: type[sockets.SocketGateway] = NoGateway
