"""Endpoints of the server itself: what it can do, probes, metrics, and its description."""

from functools import cache
from importlib.resources import files
from typing import Any, Final

from litestar import Litestar, Request, Response, Router, get
from litestar.datastructures import State
from litestar.openapi.plugins import OpenAPIRenderPlugin

from tidewire import __version__
from tidewire.accounts.options import Registration
from tidewire.domain.limits import CONTENT_BYTES_MAX, CONTENT_TYPES
from tidewire.edge.rest.endpoints import NO_TOKEN, endpoint
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


@endpoint("server", "GET /", opt=PUBLIC)
async def get_capabilities(
    request: Request[None, None, State], services: Services
) -> Envelope[ServerView]:
    """Show what this server is and can do."""
    registration = services.accounts.registration
    is_new = (
        registration is Registration.OPEN
        and services.insiders.includes(_peer_ip(request), request.scope["headers"])
        and not await services.people.has_anybody()
    )
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
            registration=registration,
            is_without_accounts=is_new,
            documentation_url=DOCUMENTATION_PATH,
        )
    )


def _peer_ip(request: Request[None, None, State]) -> str:
    return (request.scope["client"] or ("", 0))[0]


@endpoint("server", "GET /health", opt=PROBE)
async def get_health(services: Services) -> Envelope[HealthView]:
    """Say that the server is there."""
    now = format_time_ms(services.clock.wall_ms())
    return Envelope(HealthView(status="ok", timestamp=now))


@get(
    "/openapi.json",
    tags=["server"],
    opt=PUBLIC,
    security=NO_TOKEN,
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


@get("/metrics", opt=INSIDE, include_in_schema=False)
async def get_metrics(services: Services) -> Response[bytes]:
    """What is counted, for Prometheus."""
    return Response(await services.metrics(), media_type=_METRICS_TYPE)


HANDLERS = (get_capabilities, get_health, get_openapi)
PROBES = (get_healthz, get_readyz, get_metrics)


CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"content-security-policy": CONTENT_SECURITY_POLICY}


class DocsPage(OpenAPIRenderPlugin):
    """Shows the OpenAPI document to people: static files of our own, nothing from elsewhere. The
    page's script reads the document."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return _asset("docs.html")


@get("/docs.js", media_type="text/javascript", sync_to_thread=False)
def get_script() -> Response[bytes]:
    return Response(_asset("docs.js"), headers=_HEADERS)


@get("/docs.css", media_type="text/css", sync_to_thread=False)
def get_style() -> Response[bytes]:
    return Response(_asset("docs.css"), headers=_HEADERS)


def docs_router() -> Router:
    """Where Litestar puts the page."""
    return Router(
        DOCUMENTATION_PATH,
        route_handlers=[get_script, get_style],
        include_in_schema=False,
        opt=PUBLIC,
        response_headers=_HEADERS,
        dto=None,
        return_dto=None,
    )


@cache
def _asset(name: str) -> bytes:
    return files("tidewire.edge.rest").joinpath("static", name).read_bytes()
