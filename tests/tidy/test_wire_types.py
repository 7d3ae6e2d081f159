"""The TypeScript types are what the server's code says."""

import pytest

from tools.wire_types import TYPES, named_type, type_of, types


def test_types_are_as_the_code_is() -> None:
    assert TYPES.read_text(encoding="utf-8") == types(), "it is out of date; run 'make types'"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer", "minimum": 1}, "number"),
        ({"$ref": "#/$defs/Role"}, "Role"),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        (
            {"type": "object", "additionalProperties": {"type": "boolean"}},
            "Record<string, boolean>",
        ),
        ({"type": "object"}, "Record<string, unknown>"),
        ({}, "unknown"),
    ],
)
def test_schema_becomes_its_type(schema: dict[str, object], told: str) -> None:
    assert type_of(schema) == told


def test_struct_becomes_an_interface() -> None:
    fields = {"name": {"type": "string", "description": "What it is called."}, "head": {}}
    schema = {
        "type": "object",
        "description": "A thing.",
        "properties": fields,
        "required": ["name"],
    }
    assert named_type("Thing", schema).splitlines() == [
        "/** A thing. */",
        "export interface Thing {",
        "  /** What it is called. */",
        "  name: string;",
        "  head?: unknown;",
        "}",
    ]
