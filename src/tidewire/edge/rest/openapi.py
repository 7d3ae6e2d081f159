"""The OpenAPI document as it goes out: what Litestar derives from the endpoints, made tidy."""

from typing import Any, Final

import msgspec

from tidewire.domain.errors import ErrorCode
from tidewire.wire.error_table import ERROR_TABLE
from tidewire.wire.rest_requests import TOLD_BESIDE, RequestBody

_UUID: Final = "6f1c2b5e-0d8a-4c56-9a3f-0c2f6a0b7a11"
_TIME: Final = "2026-01-31T09:30:00.000Z"
_SUCCESSES: Final = {
    "200": "Done.",
    "201": "Made.",
    "204": "Done; the answer has no body.",
}
_TYPICAL_ERRORS: Final = {
    400: ErrorCode.VALIDATION_ERROR,
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    409: ErrorCode.CONFLICT,
    413: ErrorCode.PAYLOAD_TOO_LARGE,
    415: ErrorCode.INVALID_CONTENT_TYPE,
    422: ErrorCode.INVALID_SEQUENCE,
    429: ErrorCode.RATE_LIMITED,
    503: ErrorCode.SERVICE_UNAVAILABLE,
}
_EXAMPLES: Final[dict[str, object]] = {
    "access_token": "eyJhbGciOi…",
    "chat_id": "chat_01JAXW3V7E5S0Q4ZB1N8YH6K2M",
    "client_message_id": _UUID,
    "content": "Hello!",
    "content_type": "text/plain",
    "created_at": _TIME,
    "device_id": "0b54c1f2-6f0e-4a35-8d0a-2f6f3a1f9d77",
    "display_name": "Alice",
    "duration_hours": 8,
    "expires_at": _TIME,
    "invite": "the code you were given",
    "joined_at": _TIME,
    "last_acked_sequence": 42,
    "last_read_sequence": 42,
    "last_used_at": _TIME,
    "member_ids": ["user_01JAXW3V7E5S0Q4ZB1N8YH6K2N"],
    "message_id": "msg_01JAXW3V7E5S0Q4ZB1N8YH6K2P",
    "name": "Lunch",
    "current_password": "correct horse",
    "new_password": "a better password",
    "password": "correct horse",
    "refresh_token": "the refresh token of your login",
    "sender_id": "user_01JAXW3V7E5S0Q4ZB1N8YH6K2N",
    "sequence": 43,
    "prev_sequence": 42,
    "session_id": "sess_01JAXW3V7E5S0Q4ZB1N8YH6K2Q",
    "updated_at": _TIME,
    "user_id": "user_01JAXW3V7E5S0Q4ZB1N8YH6K2N",
    "username": "alice",
    "usernames": ["alice", "bob"],
}
"""By the name of a field, for people who read the page; the page itself puts fresh ids in."""


def openapi_document(schema: dict[str, Any]) -> bytes:
    """The document as JSON. Models are called by their own names, without their modules'; a body
    that may be left out is not said to be required, nor a text in a parameter to be null."""
    models = schema["components"]["schemas"]
    models |= _bodies()
    for model in models.values():
        _show_examples(model)
    for path_item in schema["paths"].values():
        for operation in path_item.values():
            _tell_plainly(operation)
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _without_null(parameter["schema"])
            body = operation.get("requestBody")
            if body is not None and _may_be_null(body):
                body["required"] = False
    # Only generated names hold these words: no text of ours names a module.
    text = msgspec.json.encode(schema)
    for module in (b"tidewire.wire.rest_models.", b"tidewire.wire.server_frames."):
        text = text.replace(module, b"")
    return text


def _tell_plainly(operation: dict[str, Any]) -> None:
    """The first sentence of an endpoint's text is its summary; answers say what they are."""
    sentence, stop, rest = operation["description"].partition(".")
    operation["summary"] = sentence + stop
    operation["description"] = rest.strip() or operation["summary"]
    for status, response in operation["responses"].items():
        response["description"] = _SUCCESSES.get(status, response["description"])
        code = _TYPICAL_ERRORS.get(int(status))
        if code is not None:
            error = {"code": code, "message": ERROR_TABLE[code].sentence, "request_id": _UUID}
            response["content"]["application/json"]["example"] = {"error": error}


def _show_examples(model: dict[str, Any]) -> None:
    """Fields of one name are of one kind in the whole document: each shows a value of that kind."""
    for name, field in model.get("properties", {}).items():
        if name in _EXAMPLES and "$ref" not in field:
            field["examples"] = [_EXAMPLES[name]]


def _bodies() -> dict[str, dict[str, Any]]:
    """The bodies of requests as msgspec decodes them; Litestar leaves out what it is told of the
    items of a list."""
    models = RequestBody.__subclasses__()
    _, described = msgspec.json.schema_components(
        models, ref_template="#/components/schemas/{name}"
    )
    for model, beside in TOLD_BESIDE.items():
        described[model.__name__] |= beside
    return described


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter. A text is there or it is left out; it is never null."""
    if schema.get("oneOf") != [{"type": "string"}, {"type": "null"}]:
        return schema
    return {name: value for name, value in schema.items() if name != "oneOf"} | {"type": "string"}


def _may_be_null(body: dict[str, Any]) -> bool:
    choices = body["content"]["application/json"]["schema"].get("oneOf", ())
    return {"type": "null"} in choices
