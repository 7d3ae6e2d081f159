"""The vectors that both languages run say what the Python core does now."""

import pytest

from tests.web.vectors import CASES, DIRECTORY, text_of


@pytest.mark.parametrize("name", [*CASES])
def test_vectors_are_those_of_the_core(name: str) -> None:
    path = DIRECTORY / f"{name}.json"
    assert path.read_text(encoding="utf-8") == text_of(name), (
        f"{path.name} is stale: python -m tests.web.vectors, and then npm test in web/"
    )
