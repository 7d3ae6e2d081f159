"""Our client as a program that speaks the kit's lines. `--command` of the kit can run it, and it
is an example of such a program."""

import asyncio
from pathlib import Path

from tidewire_conformance.adapter import Adapter
from tidewire_conformance.lines import serve_lines
from tidewire_conformance.sdk import SdkAdapter


def adapter_on(store: Path, url: str) -> Adapter:
    return SdkAdapter(directory=store, url=url)


if __name__ == "__main__":
    asyncio.run(serve_lines(adapter_on))
