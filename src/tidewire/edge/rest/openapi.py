"""The OpenAPI document as it goes out: what Litestar derives from the endpoints, made tidy."""

from typing import Any

import msgspec

from tidewire.wire.rest_requests import TOLD_BESIDE, RequestBody


def openapi_document(schema: dict[str, Any]) -> bytes:
    """The document as JSON. Models are called by their own names, without their modules'; a body
    that may be left out is not said to be required, nor a text in a parameter to be null."""
    schema["components"]["schemas"] |= _bodies()
    for path_item in schema["paths"].values():
        for operation in path_item.values():
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
