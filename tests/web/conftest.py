"""A real server for all tests of this folder, one a worker, and what is built for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chatting import Site
from tests.support import web
from tests.web.scenes import Scene
from tests.web.tooling import build_drivers, made_once

collect_ignore_glob = ["test_*.py"] if web.IS_OFF else []


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """node.mjs and page.js for the kit, talk.mjs and tabs/ for people."""
    return made_once(tmp_path_factory, "drivers", build_drivers)


@pytest.fixture
def scene(site: Site, drivers: Path, tmp_path: Path) -> Scene:
    return Scene(drivers, tmp_path, ann_at=site.url, bob_at=site.url)
