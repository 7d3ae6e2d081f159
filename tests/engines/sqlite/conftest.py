"""A store in a directory of its own, with options and a fatal handler that a test can look at."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.engines.sqlite.faulty_vfs import FaultyVfs
from tests.engines.sqlite.store import Stores


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    """Opens stores; those that are still open at the end of the test are closed."""
    opened = Stores(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    layer = FaultyVfs()
    yield layer
    layer.unregister()
