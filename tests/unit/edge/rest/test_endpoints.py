"""What an endpoint is declared with follows from what it is."""

from typing import Any

import pytest
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from tidewire.edge.rest.endpoints import endpoint
from tidewire.edge.rest.gate import PUBLIC, Tier
from tidewire.wire.rest_models import Envelope, HealthView

ANY = {400, 429, 503}


async def tells() -> Envelope[HealthView]:
    raise NotImplementedError


async def does() -> None:
    raise NotImplementedError


async def takes_a_body(data: object) -> None:
    raise NotImplementedError


async def makes() -> Response[Envelope[HealthView]]:
    raise NotImplementedError


def declared(function: Any, address: str, *refused: int, **told: Any) -> HTTPRouteHandler:
    return endpoint("tag", address, *refused, **told)(function)


def statuses(handler: HTTPRouteHandler) -> set[int]:
    assert handler.responses is not None
    return set(handler.responses)


@pytest.mark.parametrize(
    ("handler", "success", "others"),
    [
        (declared(tells, "GET /chats"), 200, {401, *ANY}),
        (declared(tells, "GET /chats", 404), 200, {401, 404, *ANY}),
        (declared(tells, "GET /chats/{chat_id:str}"), 200, {401, 403, *ANY}),
        (declared(tells, "POST /auth/register", opt=PUBLIC, status=201), 201, ANY),
        (declared(does, "POST /sessions"), 204, {401, *ANY}),
        (declared(takes_a_body, "POST /sessions"), 204, {401, 413, *ANY}),
        (declared(makes, "POST /chats"), 201, {200, 401, *ANY}),
    ],
)
def test_statuses_follow_from_the_endpoint(
    handler: HTTPRouteHandler, success: int, others: set[int]
) -> None:
    assert handler.status_code == success
    assert statuses(handler) == others


def test_token_is_needed_unless_it_is_said_otherwise() -> None:
    assert declared(tells, "GET /chats").security is None
    public = declared(tells, "GET /", opt=PUBLIC)
    assert (public.security, dict(public.opt)) == ([{}], PUBLIC)


def test_request_counts_as_its_tier() -> None:
    assert dict(declared(does, "POST /users/lookup", tier=Tier.LOOKUP).opt) == {"tier": Tier.LOOKUP}
