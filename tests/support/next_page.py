"""`tests.support.every_option`, with the web chat as its next version would be: all files that have
a hash in their name have another hash, and none of the old files is there any more.

Run as a program, it is the `tidewire` command. Holds no test.
"""

import re
import sys
from importlib.resources import files
from typing import Final
from unittest.mock import patch

from tests.support.every_option import every_option
from tidewire import __main__
from tidewire.edge.web import _read
from tidewire.edge.web_files import WebFiles

_HASHED: Final = re.compile(rb"-([0-9A-Z]{7})[0-9A-Z]\.(js|css)")
_CACHE: Final = re.compile(rb"tidewire-[0-9a-f]{8}\b")


def next_files() -> WebFiles:
    found = _read(files("tidewire").joinpath("web", "static"), "")
    return WebFiles(
        {_next(name.encode()).decode(): _next(body)
         for name, body in found.items()
         if not name.endswith((".br", ".gz"))}
    )  # fmt: skip


def _next(text: bytes) -> bytes:
    return _CACHE.sub(b"tidewire-01234567", _HASHED.sub(rb"-\1_.\2", text))


if __name__ == "__main__":
    sys.argv[0] = __main__.__file__
    with every_option(), patch("tidewire.runtime.bootstrap.built_files", next_files):
        __main__.main()
