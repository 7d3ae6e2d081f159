"""The OpenAPI document as it goes out: what Litestar derives from the endpoints, made tidy."""

import tomllib
from importlib.resources import files
from typing import Any, Final

import msgspec

from tidewire.edge.rest.endpoints import REFUSALS
from tidewire.wire.error_table import ERROR_TABLE
from tidewire.wire.rest_requests import REQUEST_BODIES, TOLD_BESIDE

_UUID: Final = "6f1c2b5e-0d8a-4c56-9a3f-0c2f6a0b7a11"
_SUCCESSES: Final = {
    "200": "Done.",
    "201": "Made.",
    "204": "Done; the answer has no body.",
}
_EXAMPLES: Final = tomllib.loads(
    files("tidewire.edge.rest").joinpath("examples.toml").read_text("utf-8")
)
"""Example values by the name of a field."""


def openapi_document(schema: dict[str, Any]) -> bytes:
    """The document as JSON. Models have their own names, without those of their modules; an
    optional body is not shown as required, nor a text parameter as possibly null."""
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
    # Only generated names contain these words: no text of ours names a module.
    text = msgspec.json.encode(schema)
    for module in (b"tidewire.wire.rest_models.", b"tidewire.wire.server_frames."):
        text = text.replace(module, b"")
    return text


def _tell_plainly(operation: dict[str, Any]) -> None:
    """Make the first sentence of an endpoint's text its summary, and describe its answers."""
    sentence, stop, rest = operation["description"].partition(".")
    operation["summary"] = sentence + stop
    operation["description"] = rest.strip() or operation["summary"]
    for status, response in operation["responses"].items():
        response["description"] = _SUCCESSES.get(status, response["description"])
        if int(status) in REFUSALS:
            code, _ = REFUSALS[int(status)]
            error = {"code": code, "message": ERROR_TABLE[code].sentence, "request_id": _UUID}
            response["content"]["application/json"]["example"] = {"error": error}


def _show_examples(model: dict[str, Any]) -> None:
    """Add examples. Fields of the same name have the same kind of value in the whole document."""
    for name, field in model.get("properties", {}).items():
        if name in _EXAMPLES and "$ref" not in field:
            field["examples"] = [_EXAMPLES[name]]


def _bodies() -> dict[str, dict[str, Any]]:
    """The bodies of requests as msgspec decodes them; Litestar leaves out annotations of the items
    of a list."""
    _, described = msgspec.json.schema_components(
        REQUEST_BODIES, ref_template="#/components/schemas/{name}"
    )
    for model, beside in TOLD_BESIDE.items():
        described[model.__name__] |= beside
    return described


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter without null: a text is given or left out, but never null."""
    if schema.get("oneOf") != [{"type": "string"}, {"type": "null"}]:
        return schema
    return {name: value for name, value in schema.items() if name != "oneOf"} | {"type": "string"}


def _may_be_null(body: dict[str, Any]) -> bool:
    choices = body["content"]["application/json"]["schema"].get("oneOf", ())
    return {"type": "null"} in choices
