"""Decodes the bodies of requests: strictly, once, straight into their model.

Litestar by itself would decode a body into plain values and then convert these with all the
leniency that query parameters need ("5" for 5). The hook to replace this is a DTO.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from litestar.dto import AbstractDTO

from tidewire.edge.rest.faults import BadRequest, InvalidFields
from tidewire.wire.rest_faults import field_error

if TYPE_CHECKING:
    from collections.abc import Generator

    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.dto.data_structures import DTOFieldDefinition
    from litestar.openapi.spec import Reference, Schema
    from litestar.typing import FieldDefinition


class JsonBody(AbstractDTO[Any]):
    """Decodes JSON bytes into any model."""

    def decode_bytes(self, value: bytes) -> Any:
        handler: Any = self.asgi_connection.route_handler
        return decode_body(value, handler.parsed_data_field.annotation)

    @classmethod
    def is_supported_model_type_field(cls, field_definition: "FieldDefinition") -> bool:
        return True

    @classmethod
    def create_for_field_definition(
        cls, field_definition: "FieldDefinition", handler_id: str, backend_cls: Any = None
    ) -> None:
        """Create nothing for a handler: its model is used as it is."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: "FieldDefinition", handler_id: str, schema_creator: "SchemaCreator"
    ) -> "Reference | Schema":
        return schema_creator.for_field_definition(field_definition)

    @classmethod
    def generate_field_definitions(
        cls, model_type: type[Any]
    ) -> "Generator[DTOFieldDefinition, None, None]":
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: "FieldDefinition") -> bool:
        return False


def decode_body(body: bytes, model: Any) -> Any:
    """Decode a body into its model. Raises BadRequest (no JSON at all), InvalidFields."""
    try:
        return _decoder(model).decode(body)
    except msgspec.ValidationError as error:
        raise InvalidFields((field_error(str(error)),)) from error
    except UnicodeDecodeError as error:
        raise BadRequest("the body is not valid UTF-8") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error


@lru_cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(model)
