"""How endpoints describe themselves: what the OpenAPI document says beside their signatures."""

from typing import Annotated, Any, Final

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import HeaderParameter, QueryParameter

from tidewire.wire.rest_cursors import CURSOR_CHARACTERS_MAX
from tidewire.wire.rest_models import ErrorBody

_SENTENCES: Final = {
    400: "The request cannot be understood, or breaks a rule.",
    401: "The token is missing, expired, revoked or not valid.",
    403: "You may not do this, or you are not a member of this chat.",
    404: "There is no such thing.",
    409: "This conflicts with what is there.",
    413: "The request or the content is too long.",
    415: "This content type is not supported.",
    422: "The sequence is above the last message of the chat.",
    429: "Too many requests: wait for `Retry-After` seconds.",
    503: "The server cannot do this now; the same again later.",
}
_AGAIN: Final = "It was there already; `X-Idempotent-Replay` is set."
_ALWAYS: Final = (400, 429, 503)


def refusals(*statuses: int, public: bool = False, again: Any = None) -> dict[int, ResponseSpec]:
    """The refusals of an endpoint, for `responses`; those that any request can meet included.

    `again` is the answer to a request that was carried out before.
    """
    expected = sorted({*statuses, *_ALWAYS, *(() if public else (401,))})
    repeated = {} if again is None else {200: ResponseSpec(again, description=_AGAIN)}
    return repeated | {
        status: ResponseSpec(ErrorBody, description=_SENTENCES[status], generate_examples=False)
        for status in expected
    }


def limited(default: int, most: int) -> str:
    return f"How many at most: 1 to {most}, {default} unless told."


# Described only: a value of another form is told with the endpoint's own sentence.
_UUID: Final = {"format": "uuid"}

CursorText = Annotated[
    str | None,
    QueryParameter(
        max_length=CURSOR_CHARACTERS_MAX,
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
