"""The command `tidewire schema`."""

from pathlib import Path
from typing import Annotated

from tidewire.runtime import cli_options as cli
from tidewire.runtime.console import print_json, tell

OutOption = Annotated[
    Path | None,
    cli.option("Write each to a file in this directory.", "--out", metavar="DIR"),
]


def schema(out: OutOption = None) -> None:
    """Describe the protocol for programs.

    JSON Schema of the frames of client and server and of the records of the event
    log, and OpenAPI of REST. Prints one JSON object; with --out, a file each.
    """
    import msgspec

    from tidewire.edge.rest.app import rest_description
    from tidewire.wire.schema import wire_schemas

    documents = {f"{name}.schema": schema for name, schema in wire_schemas().items()}
    documents["openapi"] = msgspec.json.decode(rest_description())
    if out is None:
        print_json(documents)
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        path = out / f"{name}.json"
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        path.write_bytes(text + b"\n")
        tell(str(path))
