"""Endpoints of the server itself: what it can do, probes, metrics, and its description."""

from functools import cache
from importlib.resources import files
from typing import Final

from litestar import Request, Response, Router, get
from litestar.datastructures import State

from tidewire import __version__
from tidewire.accounts.options import Registration
from tidewire.domain.limits import CONTENT_BYTES_MAX, CONTENT_TYPES
from tidewire.edge.rest.endpoints import NO_TOKEN, endpoint
from tidewire.edge.rest.gate import INSIDE, PROBE, PUBLIC, Services
from tidewire.wire.rest_models import Capabilities, Envelope, HealthView, ServerView
from tidewire.wire.server_frames import PROTOCOL_VERSION
from tidewire.wire.timestamps import format_time_ms

API_VERSION: Final = "v1"
DOCUMENTATION_PATH: Final = "/api/v1/docs"
WEBSOCKET_PATH: Final = "/v1/ws"
_METRICS_TYPE: Final = "text/plain; version=0.0.4"
DESCRIBE: Final = "describe"
"""Key in the application's state: the function that returns the OpenAPI document."""


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
    # The first request for it takes a while.
    sync_to_thread=True,
)
def get_openapi(state: State) -> Response[bytes]:
    """This description."""
    return Response(state[DESCRIBE](), media_type="application/json")


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
    """The metrics, for Prometheus."""
    return Response(await services.metrics(), media_type=_METRICS_TYPE)


HANDLERS = (get_capabilities, get_health, get_openapi)
PROBES = (get_healthz, get_readyz, get_metrics)


CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"content-security-policy": CONTENT_SECURITY_POLICY}


@get("/", media_type="text/html", sync_to_thread=False)
def get_page() -> Response[bytes]:
    """Shows the OpenAPI document to people: static files of our own, nothing from elsewhere. The
    page's script reads the document."""
    return Response(_asset("docs.html"), headers=_HEADERS)


@get("/docs.js", media_type="text/javascript", sync_to_thread=False)
def get_script() -> Response[bytes]:
    return Response(_asset("docs.js"), headers=_HEADERS)


@get("/docs.css", media_type="text/css", sync_to_thread=False)
def get_style() -> Response[bytes]:
    return Response(_asset("docs.css"), headers=_HEADERS)


def docs_router() -> Router:
    """The page with its script and its style."""
    return Router(
        DOCUMENTATION_PATH,
        route_handlers=[get_page, get_script, get_style],
        include_in_schema=False,
        opt=PUBLIC,
        response_headers=_HEADERS,
        dto=None,
        return_dto=None,
    )


@cache
def _asset(name: str) -> bytes:
    return files("tidewire.edge.rest").joinpath("static", name).read_bytes()
