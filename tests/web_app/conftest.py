"""Tests in Node and in a real Chromium: installed by the first test that needs them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import web

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.web_app.people import Street

collect_ignore_glob = ["test_*.py"] if web.IS_OFF else []


@pytest.fixture(scope="session")
def node() -> str:
    return web.ensure_node()


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """The engine without a window. Profiles on the disk (`Street.settled`), the times of
    `test_speed.py` and pictures have the whole browser."""
    from playwright.sync_api import expect, sync_playwright

    from tests.web_app.people import FLAGS, PATIENCE_MS

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=web.ensure_headless_shell(), args=list(FLAGS)
        )
        yield browser
        browser.close()


@pytest.fixture
def street(browser: "Browser", node: str, tmp_path: Path) -> "Iterator[Street]":
    """A server, and people who come to it."""
    from tests.web_app.people import street

    with street(browser, tmp_path) as place:
        yield place
