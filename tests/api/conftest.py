"""A fresh server for every test."""

from collections.abc import AsyncIterator

import pytest

from tests.api.stage import Stage, build_stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    built = build_stage()
    yield built
    await built.close()
