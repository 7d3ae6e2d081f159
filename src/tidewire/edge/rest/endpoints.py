"""What endpoints are made of: their parameters and refusals as the OpenAPI document describes them,
checks of single values, and requests that are carried out once."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec
from litestar import Response
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import HeaderParameter, QueryParameter

from tidewire.domain.accounts import (
    RequestClaimed,
    RequestKey,
    RequestMismatch,
    RequestPending,
    RequestReplayed,
)
from tidewire.domain.errors import (
    ErrorCode,
    InvalidOperation,
    NotAMember,
    Refused,
    RequestInProgress,
    RequestKeyReused,
    UserNotFound,
)
from tidewire.domain.ids import ChatId, UserId, is_safe_token, is_uuid
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import Tier
from tidewire.edge.rest.services import RestServices
from tidewire.wire import rest_cursors as cursors
from tidewire.wire.rest_models import ErrorBody, Pagination
from tidewire.wire.rest_requests import IDEMPOTENCY_FIELD
from tidewire.wire.timestamps import parse_time_ms

REFUSALS: Final = {
    400: (ErrorCode.VALIDATION_ERROR, "The request cannot be understood, or breaks a rule."),
    401: (ErrorCode.UNAUTHORIZED, "The token is missing, expired, revoked or not valid."),
    403: (ErrorCode.FORBIDDEN, "You may not do this, or you are not a member of this chat."),
    404: (ErrorCode.NOT_FOUND, "There is no such thing."),
    409: (ErrorCode.CONFLICT, "This conflicts with what is there."),
    413: (ErrorCode.PAYLOAD_TOO_LARGE, "The request or the content is too long."),
    415: (ErrorCode.INVALID_CONTENT_TYPE, "This content type is not supported."),
    422: (ErrorCode.INVALID_SEQUENCE, "The sequence is above the last message of the chat."),
    429: (ErrorCode.RATE_LIMITED, "Too many requests: wait for `Retry-After` seconds."),
    503: (ErrorCode.SERVICE_UNAVAILABLE, "The server cannot do this now; the same again later."),
}
"""By HTTP status: a code that is typical of it, and a sentence for the OpenAPI document."""
_AGAIN: Final = "It was there already; `X-Idempotent-Replay` is set."
_ALWAYS: Final = (400, 429, 503)
NO_TOKEN: Final[list[dict[str, list[str]]]] = [{}]
"""The security of an endpoint that needs no token, in the OpenAPI document."""


def endpoint(
    tag: str,
    address: str,
    *refused: int,
    status: int | None = None,
    opt: Mapping[str, Any] | None = None,
    tier: Tier | None = None,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declares a function as the endpoint at an address (`GET /chats`), described under a tag.

    `refused` are the statuses of its own refusals. Others follow from its kind: 401 where a token
    is needed, 403 in a chat, 413 with a body, and those that any request can get. Its success is
    204 if it returns nothing; if it returns a `Response`, it is 201, or 200 for a request that was
    carried out before; otherwise 200. A given `status` replaces these.
    """
    method, _, path = address.partition(" ")
    is_public = opt is not None and "public" in opt

    def declare(function: Callable[..., Any]) -> HTTPRouteHandler:
        hints = function.__annotations__
        returned: Any = hints["return"]
        again = get_args(returned)[0] if get_origin(returned) is Response else None
        statuses = {*refused, *_ALWAYS}
        statuses |= {401} if not is_public else set()
        statuses |= {403} if path.startswith("/chats/{chat_id") else set()
        statuses |= {413} if "data" in hints else set()
        return HTTPRouteHandler(
            path,
            http_method=HttpMethod(method),
            tags=[tag],
            status_code=status or (204 if returned is None else 200 if again is None else 201),
            opt=opt if tier is None else {"tier": tier},
            security=NO_TOKEN if is_public else None,
            responses=_refusals(statuses, again),
        )(function)

    return declare


def _refusals(statuses: Iterable[int], again: Any) -> dict[int, ResponseSpec]:
    """`again` is the answer to a request that was carried out before; None: there is none."""
    repeated = {} if again is None else {200: ResponseSpec(again, description=_AGAIN)}
    return repeated | {
        status: ResponseSpec(ErrorBody, description=REFUSALS[status][1], generate_examples=False)
        for status in sorted(statuses)
    }


def limited(default: int, most: int) -> str:
    return f"How many at most: 1 to {most}, {default} unless told."


# Only for the description: the endpoint refuses other forms with its own sentence.
_UUID: Final = {"format": "uuid"}

PAGE_DEFAULT: Final = 20
PAGE_MAX: Final = 100
PageLimit = Annotated[
    int, QueryParameter(ge=1, le=PAGE_MAX, description=limited(PAGE_DEFAULT, PAGE_MAX))
]
CursorText = Annotated[
    str | None,
    QueryParameter(
        max_length=cursors.CURSOR_CHARACTERS_MAX,
        description="`next_cursor` or `prev_cursor` of an earlier answer.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="A UUID. The same request with the same key is carried out once.",
        schema_extra=_UUID,
        examples=[Example(value="6f1c2b5e-0d8a-4c56-9a3f-0c2f6a0b7a11")],
    ),
]
DeviceId = Annotated[
    str | None,
    HeaderParameter(
        name="X-Device-ID",
        description="The UUID that the device made for itself.",
        schema_extra=_UUID,
    ),
]


Value = TypeVar("Value")
Id = TypeVar("Id", ChatId, UserId)
IdsCursor = TypeVar("IdsCursor", cursors.BlocksCursor, cursors.RefusedGroupsCursor)


def checked(field: str, check: Callable[[Value], Value], value: Value) -> Value:
    """The value as the domain's check returns it; a refusal becomes an error of the field."""
    try:
        return check(value)
    except InvalidOperation as refusal:
        raise invalid_field(field, str(refusal)) from refusal


def chat_id_of(text: str) -> ChatId:
    """A chat id. A text that cannot be one is refused like a chat that the user is not in."""
    if not is_safe_token(text):
        raise NotAMember
    return ChatId(text)


def user_id_of(text: str) -> UserId:
    if not is_safe_token(text):
        raise UserNotFound("the given id is none")
    return UserId(text)


def cursor_of(text: str, kind: type[cursors.RestCursor]) -> cursors.RestCursor:
    cursor = cursors.decode_cursor(text, kind)
    if cursor is None:
        raise invalid_field("cursor", "this is no cursor of this list")
    return cursor


async def read_page(
    read: Callable[..., Awaitable[Sequence[Id]]],
    kind: type[IdsCursor],
    reader: UserId,
    cursor: str | None,
    limit: int,
) -> tuple[Sequence[Id], Pagination]:
    """A page of ids after a cursor of this kind. It reads one more than it shows, to know whether
    there are more."""
    after = None if cursor is None else cursor_of(cursor, kind).after
    found = await read(reader, after=after, count_max=limit + 1)
    shown = found[:limit]
    # Ids are texts, those of chats and of users.
    more = cursors.encode_cursor(kind(shown[-1])) if len(found) > limit else None  # type: ignore[arg-type]
    return shown, Pagination(has_more=more is not None, next_cursor=more)


def instant_of(field: str, text: str) -> int:
    time_ms = parse_time_ms(text)
    if time_ms is None:
        raise invalid_field(field, "a time such as 2031-05-04T11:20:07.412Z is expected")
    return time_ms


REPLAYED: Final = {"x-idempotent-replay": "true"}

View = TypeVar("View")
Carry = Callable[[RequestClaimed], Awaitable[tuple[Response[View], str]]]
"""Carries out a request; returns the answer, and the id of the created thing."""
Replay = Callable[[str], Awaitable[View]]
"""Returns the current view of the thing with that id."""


async def carry_out_once(
    services: RestServices,
    user_id: UserId,
    *,
    endpoint: str,
    key: str | None,
    request: Any,
    new_id: str | None,
    carry: Carry[View],
    replay: Replay[View],
) -> Response[View]:
    """Carry a request out once, however often it comes with the same Idempotency-Key (A-05).

    A key names one request of one user to one endpoint, for a day. A repetition is answered from
    the current state, with 200 and `X-Idempotent-Replay`; the same key for something else is
    refused. Without a key the request is simply carried out.

    Two requests are the same if `request` is equal. `new_id` is the id for the thing to create; a
    request that resumes an earlier try gets the id of that try. A refused request has created
    nothing, and its key is free again. If the outcome is unknown, the key stays taken for
    REQUEST_PENDING_MS_MAX.
    """
    if key is None:
        return (await carry(RequestClaimed(new_id)))[0]
    if not is_uuid(key):
        raise invalid_field(IDEMPOTENCY_FIELD, "a UUID is expected")
    request_key = RequestKey(user_id=user_id, endpoint=endpoint, key=key.lower())
    claim = await services.store.claim_request(
        request_key,
        hashlib.sha256(msgspec.json.encode(request)).digest(),
        resource_id=new_id,
        now_ms=services.clock.wall_ms(),
    )
    match claim:
        case RequestMismatch():
            raise RequestKeyReused
        case RequestPending():
            raise RequestInProgress
        case RequestReplayed(resource_id=made_id):
            return Response(await replay(made_id or ""), status_code=200, headers=REPLAYED)
        case RequestClaimed():
            pass
    try:
        answer, made_id = await carry(claim)
    except Refused:
        await services.store.release_request(request_key)
        raise
    await services.store.finish_request(
        request_key, http_status=answer.status_code or 200, resource_id=made_id
    )
    return answer
