"""A real server for all tests of this folder, one a worker."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.client.people import People
from tests.e2e.chatting import Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
async def people(site: Site, tmp_path: Path) -> AsyncIterator[People]:
    """Makes clients; they are closed at the end."""
    async with AsyncExitStack() as stack:
        yield People(site, tmp_path, stack)
