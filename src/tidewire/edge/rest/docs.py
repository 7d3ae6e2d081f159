"""The page that shows the API to people: a few static files of our own, nothing from elsewhere."""

from functools import cache
from importlib.resources import files
from typing import Any, Final

from litestar import Request, Response, Router, get
from litestar.openapi.plugins import OpenAPIRenderPlugin

from tidewire.edge.rest.gate import PUBLIC
from tidewire.edge.rest.server import DOCUMENTATION_PATH

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"content-security-policy": CONTENT_SECURITY_POLICY}


class DocsPage(OpenAPIRenderPlugin):
    """Shows the OpenAPI document, which the page's script reads."""

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
