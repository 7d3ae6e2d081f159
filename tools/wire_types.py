"""Write web/client/src/wire/types.gen.ts from the code: `make types`.

The structs of the wire become JSON Schema and OpenAPI (`tidewire schema`), and these become
TypeScript. A test compares the file with the code, so that it cannot go stale.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from tidewire.edge.rest.app import rest_description
from tidewire.wire.error_table import ERROR_TABLE, CloseReason
from tidewire.wire.schema import wire_schemas

TYPES = Path(__file__).resolve().parent.parent / "web/client/src/wire/types.gen.ts"

HEAD = """\
// Made from the server's code by tools/wire_types.py (`make types`): do not edit.
//
// A field with `?` may be missing. A newer server may send more: ignore what you do not know.
"""
GENERICS = """\
/** A success of REST. */
export interface Envelope<Item> {
  data: Item;
}

/** A page of a list of REST. */
export interface Page<Item> {
  data: Item[];
  pagination: Pagination;
}
"""
_LITERALS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}

Schema = Mapping[str, Any]


def types() -> str:
    """The whole file."""
    documents = wire_schemas()
    rest = json.loads(rest_description())["components"]["schemas"]
    named: dict[str, Schema] = {}
    for document in documents.values():
        named |= document["$defs"]
    # A frame's own schema says more than REST's schema of the same struct.
    named = {name: rest[name] for name in sorted(rest) if not _is_generic(name)} | named
    parts = [HEAD]
    parts += [named_type(name, named[name]) for name in sorted(named)]
    parts.append(GENERICS)
    parts += [_alias(document["title"], document) for document in documents.values()]
    parts.append(
        _words("ErrorCode", "What an error may say; a newer server has more.", ERROR_TABLE)
    )
    parts.append(_words("CloseReason", "What `connection_closing` may say.", CloseReason))
    return "\n".join(parts)


def _is_generic(name: str) -> bool:
    """True for names such as `Envelope_ChatView_`, which the generic types replace."""
    return name.startswith(("Envelope_", "Page_"))


def named_type(name: str, schema: Schema) -> str:
    if schema.get("type") != "object":
        return _alias(name, schema)
    lines = [*_comment(schema.get("description", "")), f"export interface {name} {{"]
    required = set(schema.get("required", ()))
    for field, kind in schema.get("properties", {}).items():
        mark = "" if field in required else "?"
        lines += [f"  {line}" for line in _comment(kind.get("description", ""))]
        lines.append(f"  {field}{mark}: {type_of(kind)};")
    return "\n".join([*lines, "}", ""])


def _alias(name: str, schema: Schema) -> str:
    lines = [*_comment(schema.get("description", "")), f"export type {name} ="]
    return "\n".join([*lines, *_choices(schema), ""])


def _words(name: str, told: str, words: Any) -> str:
    return _alias(name, {"description": told, "enum": [str(word) for word in words]})


def _choices(schema: Schema) -> Iterator[str]:
    choices = type_of(schema).split(" | ")
    for number, choice in enumerate(choices, 1):
        yield f"  | {choice}{';' if number == len(choices) else ''}"


def type_of(schema: Schema) -> str:
    """The TypeScript type that a schema describes."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " | ".join(dict.fromkeys(type_of(choice) for choice in choices))
    match schema.get("type"):
        case "null":
            return "null"
        case "array":
            item = type_of(schema["items"])
            return f"({item})[]" if " " in item else f"{item}[]"
        case "object":
            return f"Record<string, {type_of(schema.get('additionalProperties') or {})}>"
        case None:
            return "unknown"
        case name:
            return _LITERALS[name]


def _comment(text: str) -> list[str]:
    lines = cleandoc(text).splitlines()
    if len(lines) < 2:
        return [f"/** {line} */" for line in lines]
    return ["/**", *(f" * {line}".rstrip() for line in lines), " */"]


def main() -> None:
    TYPES.parent.mkdir(parents=True, exist_ok=True)
    TYPES.write_text(types(), encoding="utf-8")
    sys.stdout.write(f"{TYPES.name}: {len(types().splitlines())} lines\n")


if __name__ == "__main__":
    main()
