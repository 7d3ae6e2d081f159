"""Builds the REST application from the services behind it."""

from collections.abc import Sequence
from functools import cache
from threading import Lock
from types import ModuleType
from typing import Any, Final

from litestar import Litestar, Request, Response, Router, route
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, License, SecurityScheme, Tag
from litestar.types import ASGIApp

from tidewire import __version__
from tidewire.domain.errors import TidewireError
from tidewire.edge.rest import accounts, chats, messages, server, writing
from tidewire.edge.rest.body import JsonBody
from tidewire.edge.rest.faults import fail, refuse, refuse_http
from tidewire.edge.rest.gate import Gate
from tidewire.edge.rest.openapi import openapi_document
from tidewire.edge.rest.options import RestOptions
from tidewire.edge.rest.services import RestServices
from tidewire.edge.rest.shell import RequestShell
from tidewire.edge.web import Web
from tidewire.edge.web_files import WebFiles
from tidewire.ports.services import Identity

API_PATH: Final = "/api/v1"

_TAGS: Final = {
    "auth": "Accounts, logging in and out.",
    "users": "People.",
    "chats": "Direct chats and groups.",
    "members": "Who is in a group.",
    "messages": "History and sending.",
    "delivery": "What has arrived, and what was read.",
    "sessions": "Where you are logged in.",
    "server": "The server itself.",
}
_DESCRIPTION: Final = """\
A success is `{"data": …}` where the operation does not say otherwise, lists add `pagination`; every
error is `{"error": …}` with a `code` for programs, a `message` for people and the `request_id` of
the request. Times are UTC in ISO 8601 with milliseconds. Log in, then send the access token as
`Authorization: Bearer …`.
"""

_describing: Final = Lock()


def build_rest_app(
    services: RestServices,
    options: RestOptions,
    *,
    web_files: WebFiles | None = None,
) -> ASGIApp:
    """An ASGI application for everything that is not a WebSocket. It needs no lifespan events.

    `web_files` are served beside REST, and counted as requests without a token.
    """
    gate = Gate(services, options)

    def provide_services() -> RestServices:
        return services

    app = Litestar(
        route_handlers=[_api(), server.docs_router(), *server.PROBES],
        dependencies={
            "services": Provide(provide_services, sync_to_thread=False),
            "caller": Provide(_provide_caller, sync_to_thread=False),
        },
        guards=[gate.admit],
        dto=JsonBody,
        return_dto=None,
        exception_handlers={
            TidewireError: refuse,
            HTTPException: refuse_http,
            Exception: fail,
        },
        request_max_body_size=options.body_bytes_max,
        # Litestar's own pages would build the OpenAPI document while all other requests wait.
        openapi_config=None,
        state=State({server.DESCRIBE: rest_description}),
        cors_config=_cors(options),
        logging_config=None,
        debug=False,
    )
    return RequestShell(app if web_files is None else Web(web_files, app), gate, services)


def rest_description() -> bytes:
    """The OpenAPI document, of no particular server: its endpoints have no services. The first
    call builds it, which takes as long as a hundred requests; calls meanwhile wait for it."""
    with _describing:
        return _described()


@cache
def _described() -> bytes:
    described = Litestar(
        route_handlers=[_api()],
        dependencies={
            "services": Provide(_provide_nothing, sync_to_thread=False),
            "caller": Provide(_provide_caller, sync_to_thread=False),
        },
        dto=JsonBody,
        return_dto=None,
        openapi_config=_openapi(),
        logging_config=None,
    )
    return openapi_document(described.openapi_schema.to_schema())


def _provide_nothing() -> None:
    raise AssertionError("a description answers no request")


def _api() -> Router:
    modules = (accounts, chats, messages, writing)
    handlers = [endpoint for module in modules for endpoint in endpoints_of(module)]
    handlers += server.HANDLERS
    return Router(API_PATH, route_handlers=[*_options(handlers), *handlers])


def endpoints_of(module: ModuleType) -> list[HTTPRouteHandler]:
    """The endpoints that a module defines."""
    return [each for each in vars(module).values() if isinstance(each, HTTPRouteHandler)]


def _options(handlers: Sequence[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """Handlers that answer OPTIONS with the methods of an address. Litestar's own answer knows only
    the method that was registered first; ours have to be registered before all others."""
    methods: dict[str, set[str]] = {}
    for handler in handlers:
        for path in handler.paths:
            methods.setdefault(path, {"OPTIONS"}).update(handler.http_methods)
    return [_options_of(path, ", ".join(sorted(names))) for path, names in methods.items()]


def _options_of(path: str, allowed: str) -> HTTPRouteHandler:
    @route(
        path,
        http_method="OPTIONS",
        status_code=204,
        include_in_schema=False,
        sync_to_thread=False,
    )
    def options() -> Response[None]:
        return Response(None, status_code=204, headers={"allow": allowed})

    return options


def _provide_caller(request: Request[Any, Any, Any]) -> Identity:
    identity = request.scope["state"]["identity"]
    assert isinstance(identity, Identity), "the gate refuses a request without one"
    return identity


def _openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Tidewire",
        version=__version__,
        description=_DESCRIPTION,
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        tags=[Tag(name=name, description=sentence) for name, sentence in _TAGS.items()],
        components=Components(
            security_schemes={
                "bearer": SecurityScheme(type="http", scheme="bearer", bearer_format="JWT")
            }
        ),
        security=[{"bearer": []}],
        use_handler_docstrings=True,
    )


def _cors(options: RestOptions) -> CORSConfig | None:
    """The CORS settings; None if pages of other origins may not call this API."""
    if not options.cors_origins:
        return None
    return CORSConfig(
        allow_origins=list(options.cors_origins),
        allow_headers=["authorization", "content-type", "idempotency-key", "x-device-id"],
        expose_headers=["x-request-id", "x-idempotent-replay", "retry-after"],
    )
