"""Features: what both sides know is on, and nothing else means anything."""

import pytest

from tidewire.wire.features import Feature, known_features


@pytest.mark.parametrize(
    ("offered", "on"),
    [
        ([], ()),
        (["batch"], (Feature.BATCH,)),
        (["batch", "batch"], (Feature.BATCH,)),
        (["entries", "batch"], (Feature.BATCH, Feature.ENTRIES)),
        (["entries-of-next-year", "batch", ""], (Feature.BATCH,)),
        (["Batch", " batch", "with.batch"], ()),
    ],
)
def test_known_names_are_on_once(offered: list[str], on: tuple[Feature, ...]) -> None:
    assert known_features(offered) == on
