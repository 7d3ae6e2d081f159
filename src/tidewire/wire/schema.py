"""The wire described for programs: JSON Schemas of the frames of each side and of the log. PURE.

The schemas are made from the structs that decode and encode, so they cannot differ from them. A
rule that a schema cannot express, such as the form of an id, is checked by `codec` and described in
docs/protocol.md.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidewire.wire.client_frames import ClientFrame
from tidewire.wire.event_records import EventRecord
from tidewire.wire.server_frames import ServerFrame

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

UNIONS: Final[Mapping[str, tuple[str, Any]]] = {
    "client-frames": ("ClientFrame", ClientFrame),
    "server-frames": ("ServerFrame", ServerFrame),
    "event-records": ("EventRecord", EventRecord),
}
"""By the name of a document: the name of the union, and the union."""


def wire_schemas() -> dict[str, dict[str, Any]]:
    """The documents by their names: each a union, told apart by its tag, and the structs in it."""
    return {
        name: {"$schema": DIALECT, "title": title, **_document(union)}
        for name, (title, union) in UNIONS.items()
    }


def _document(union: Any) -> dict[str, Any]:
    (root,), structs = msgspec.json.schema_components(
        [union], schema_hook=_anything, ref_template="#/$defs/{name}"
    )
    return {**root, "$defs": {name: structs[name] for name in sorted(structs)}}


def _anything(kind: type) -> dict[str, Any]:
    """The schema of what may be anything: the details of an error."""
    assert kind is object, kind
    return {"description": "Any value."}
