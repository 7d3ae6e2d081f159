"""Endpoints of the server itself: what it can do, whether it lives, what it counts."""

from typing import Any, Final

from litestar import Litestar, Request, Response, get

from tidewire import __version__
from tidewire.domain.limits import CONTENT_BYTES_MAX, CONTENT_TYPES
from tidewire.edge.rest.described import refusals
from tidewire.edge.rest.gate import INSIDE, PROBE, PUBLIC, Services
from tidewire.edge.rest.openapi import openapi_document
from tidewire.wire.rest_models import Capabilities, Envelope, HealthView, ServerView
from tidewire.wire.server_frames import PROTOCOL_VERSION
from tidewire.wire.timestamps import format_time_ms

API_VERSION: Final = "v1"
DOCUMENTATION_PATH: Final = "/api/v1/docs"
WEBSOCKET_PATH: Final = "/v1/ws"
_METRICS_TYPE: Final = "text/plain; version=0.0.4"
_DOCUMENT: Final = "openapi_document"
_ANYBODY: Final[list[dict[str, list[str]]]] = [{}]


@get("/", tags=["server"], opt=PUBLIC, security=_ANYBODY, responses=refusals(public=True))
async def get_capabilities(services: Services) -> Envelope[ServerView]:
    """Show what this server is and can do."""
    return Envelope(
        ServerView(
            version=__version__,
            api_version=API_VERSION,
            capabilities=Capabilities(
                max_message_size_bytes=CONTENT_BYTES_MAX,
                max_chat_members=services.group_members_max,
                supported_content_types=sorted(CONTENT_TYPES),
                auth_methods=["password", "bearer"],
                websocket_protocol_version=PROTOCOL_VERSION,
                websocket_path=WEBSOCKET_PATH,
            ),
            documentation_url=DOCUMENTATION_PATH,
        )
    )


@get("/health", tags=["server"], opt=PROBE, security=_ANYBODY, responses=refusals(public=True))
async def get_health(services: Services) -> Envelope[HealthView]:
    """Say that the server is there."""
    now = format_time_ms(services.clock.wall_ms())
    return Envelope(HealthView(status="ok", timestamp=now))


@get(
    "/openapi.json",
    tags=["server"],
    opt=PUBLIC,
    security=_ANYBODY,
    include_in_schema=False,
    sync_to_thread=False,
)
def get_openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """This description."""
    return Response(description_of(request.app), media_type="application/json")


def description_of(app: Litestar) -> bytes:
    """The OpenAPI document as JSON. Made once: it takes as long as a hundred requests."""
    document = app.state.get(_DOCUMENT)
    if document is None:
        document = app.state[_DOCUMENT] = openapi_document(app.openapi_schema.to_schema())
    assert isinstance(document, bytes)
    return document


@get("/healthz", opt=PROBE, include_in_schema=False, sync_to_thread=False)
def get_healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@get("/readyz", opt=INSIDE, include_in_schema=False)
async def get_readyz(services: Services) -> dict[str, str]:
    """The store answers; 503 if it does not."""
    await services.check_ready()
    return {"status": "ready"}


@get("/metrics", opt=INSIDE, include_in_schema=False, sync_to_thread=False)
def get_metrics(services: Services) -> Response[bytes]:
    """What is counted, for Prometheus."""
    return Response(services.metrics(), media_type=_METRICS_TYPE)


HANDLERS = (get_capabilities, get_health, get_openapi)
PROBES = (get_healthz, get_readyz, get_metrics)
