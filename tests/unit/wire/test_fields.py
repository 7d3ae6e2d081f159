"""Numbers are bounded where they are decoded."""

import msgspec
import pytest

from tidewire.domain.limits import PAGE_MESSAGES_MAX, SEQUENCE_MAX
from tidewire.wire.fields import Count, Cursor, PageLimit, SequenceNumber, tags_of


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [
        (SequenceNumber, 1, SEQUENCE_MAX),
        (Cursor, 0, SEQUENCE_MAX),
        (PageLimit, 1, PAGE_MESSAGES_MAX),
    ],
)
def test_number_is_taken_within_its_bounds_only(kind: object, lowest: int, highest: int) -> None:
    decode = msgspec.json.Decoder[object](kind).decode
    assert decode(str(lowest)) == lowest
    assert decode(str(highest)) == highest
    for outside in (lowest - 1, highest + 1):
        with pytest.raises(msgspec.ValidationError):
            decode(str(outside))


@pytest.mark.parametrize("text", ["true", "1.0", '"1"', "null", "1e3"])
def test_number_is_never_anything_but_an_integer(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Count)


def test_tags_of_a_union_are_those_of_its_structs() -> None:
    class One(msgspec.Struct, tag="one"):
        pass

    class Two(msgspec.Struct, tag="two"):
        pass

    assert tags_of(One | Two) == {"one", "two"}
