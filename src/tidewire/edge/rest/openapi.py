"""The OpenAPI document as it goes out: what Litestar derives from the endpoints, made tidy."""

from typing import Any

import msgspec


def openapi_document(schema: dict[str, Any]) -> bytes:
    """The document as JSON. Models are called by their own names, without their modules', and a
    body that may be left out is not said to be required."""
    for path_item in schema["paths"].values():
        for operation in path_item.values():
            body = operation.get("requestBody")
            if body is not None and _may_be_null(body):
                body["required"] = False
    # Only generated names hold these words: no text of ours names a module.
    text = msgspec.json.encode(schema)
    for module in (b"tidewire.wire.rest_models.", b"tidewire.wire.server_frames."):
        text = text.replace(module, b"")
    return text


def _may_be_null(body: dict[str, Any]) -> bool:
    choices = body["content"]["application/json"]["schema"].get("oneOf", ())
    return {"type": "null"} in choices
