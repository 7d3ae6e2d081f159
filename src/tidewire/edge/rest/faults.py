"""Errors in the answers of REST: one shape for all of them, and no internal details.

Litestar's own exceptions are translated here, most specific first.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import (
    ClientException,
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from tidewire.domain.errors import (
    ErrorCode,
    Refused,
    Throttled,
    TidewireError,
    Unauthorized,
    Unavailable,
)
from tidewire.ports.runtime import FLOOD_KEY, RequestKind
from tidewire.wire.error_table import ERROR_TABLE, error_payload
from tidewire.wire.forms import form_of
from tidewire.wire.rest_faults import field_error
from tidewire.wire.rest_models import ErrorBody, ErrorDetail, FieldError

RETRY_UNAVAILABLE_SECONDS: Final = 1
ROUTE_CHARACTERS_MAX: Final = 200
"""How many characters of a path go into the log."""

_GONE: Final = "client disconnected prematurely"
"""Litestar's text for a client that leaves, or is cut off, in the middle of a body."""

_logger: Final = logging.getLogger(__name__)


class BadRequest(Refused):
    """The request cannot be understood; the sentence says why."""

    code = ErrorCode.BAD_REQUEST


class NotFound(Refused):
    code = ErrorCode.NOT_FOUND
    sentence = "there is nothing at this address"


class PayloadTooLarge(Refused):
    code = ErrorCode.PAYLOAD_TOO_LARGE

    def __init__(self, *, bytes_max: int, received: int | None) -> None:
        told = {} if received is None else {"received_bytes": received}
        super().__init__(f"a request has at most {bytes_max} bytes", max_bytes=bytes_max, **told)


class MethodNotAllowed(Refused):
    """There is something at this address, but not for this method; `Allow` lists those it has."""

    code = ErrorCode.METHOD_NOT_ALLOWED
    sentence = "this method is not possible at this address"


class InvalidFields(Refused):
    """Fields of the request are not valid; each says what is wrong with it."""

    code = ErrorCode.VALIDATION_ERROR

    def __init__(self, faults: Sequence[FieldError]) -> None:
        sentence = "; ".join(f"{fault.field}: {fault.message}" for fault in faults)
        super().__init__(sentence, field_errors=tuple(faults))


def invalid_field(field: str, message: str, code: str = "INVALID_VALUE") -> InvalidFields:
    return InvalidFields((FieldError(field=field, code=code, message=message),))


AnyRequest = Request[Any, Any, Any]


def request_id_of(request: AnyRequest) -> str:
    return str(request.scope["state"]["request_id"])


def refuse(request: AnyRequest, error: TidewireError) -> Response[ErrorBody]:
    """The answer to a request that ended with one of our own errors."""
    if error.code is ErrorCode.INTERNAL_ERROR:
        return fail(request, error)
    return _answer(request, error, ERROR_TABLE[error.code].http_status)


def refuse_http(request: AnyRequest, exception: HTTPException) -> Response[ErrorBody]:
    """The answer to a request that Litestar has refused."""
    if exception.status_code >= 500:
        if exception.detail == _GONE:
            # The client has left and does not read this. It is not logged as a fault of ours.
            return _answer(request, BadRequest("the request ended before its body did"), 400)
        return fail(request, exception)
    match exception:
        case RequestEntityTooLarge():
            received = request.headers.get("content-length", "")
            error: TidewireError = PayloadTooLarge(
                bytes_max=request.route_handler.resolve_request_max_body_size() or 0,
                received=int(received) if received.isdecimal() else None,
            )
            # The rest of the body is not read, so the connection is of no further use.
            answer = _answer(request, error, 413)
            answer.headers["connection"] = "close"
            return answer
        case MethodNotAllowedException():
            answer = _answer(request, MethodNotAllowed(), 405)
            answer.headers.update(exception.headers or {})
            return answer
        case NotFoundException():
            return _answer(request, NotFound(), 404)
        case ValidationException():
            return _answer(request, _invalid(exception), 400)
        case ClientException():
            return _answer(request, BadRequest(exception.detail), exception.status_code)
        case _:
            return _answer(request, BadRequest("this is not possible here"), exception.status_code)


def fail(request: AnyRequest, exception: Exception) -> Response[ErrorBody]:
    """The answer when the fault is ours. The log has the reason, the client a request id."""
    names = {"request_id": request_id_of(request), "route": _route(request)}
    request.scope["state"]["tasks"].request_failed(RequestKind.REST, exception, names)
    error = TidewireError()
    return _answer(request, error, ERROR_TABLE[error.code].http_status)


def error_body(error: TidewireError, request_id: str) -> ErrorBody:
    """What a client is told of an error."""
    return ErrorBody(error=form_of(ErrorDetail, error_payload(error), request_id=request_id))


def _answer(request: AnyRequest, error: TidewireError, http_status: int) -> Response[ErrorBody]:
    request_id = request_id_of(request)
    request.scope["state"]["counters"].sent(error.code)
    if error.code is not ErrorCode.INTERNAL_ERROR:
        _logger.info(
            "request refused",
            extra={
                "request_id": request_id,
                "route": _route(request),
                "code": str(error.code),
                "client_ip": request.scope["state"]["address"],
                FLOOD_KEY: request.scope["state"]["address"],
            },
        )
    return Response(
        error_body(error, request_id),
        status_code=http_status,
        headers=_headers(error),
        media_type="application/json",
    )


def _headers(error: TidewireError) -> dict[str, str]:
    match error:
        case Throttled():
            return {"retry-after": str(error.details["retry_after_seconds"])}
        case Unavailable():
            return {"retry-after": str(RETRY_UNAVAILABLE_SECONDS)}
        case Unauthorized():
            return {"www-authenticate": "Bearer"}
        case _:
            return {}


def _invalid(exception: ValidationException) -> TidewireError:
    """Litestar reports each parameter by name and with msgspec's sentence."""
    complaints = exception.extra
    if complaints == [{"key": "data", "message": "'data'", "source": "body"}]:
        return BadRequest("this request needs a body")
    if not isinstance(complaints, list) or not complaints:
        return BadRequest(exception.detail)
    return InvalidFields(
        [
            field_error(str(each.get("message", "")), str(each.get("key", "")))
            for each in complaints
            if isinstance(each, dict)
        ]
    )


def _route(request: AnyRequest) -> str:
    """Method and path, cut; never the query, which may hold secrets."""
    return f"{request.scope['method']} {request.scope['path'][:ROUTE_CHARACTERS_MAX]}"
