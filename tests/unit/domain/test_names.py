"""Names: what may stand in one line, in every script."""

import pytest

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.names import check_shown_name


@pytest.mark.parametrize(
    "name", ["x", "x" * 10, "Zoë", "👩\u200d💻", "\u0645\u06cc\u200c\u062e\u0648\u0631", "a b"]
)
def test_name_is_taken_in_every_script(name: str) -> None:
    assert check_shown_name(name, "a name", 10) == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 11, " x", "x ", "a\tb", "a\x00b", "a\nb", "a\u2028b", "a\u2029b", "a\ud800b"],
)
def test_name_is_refused_when_it_does_not_fit_a_line(name: str) -> None:
    with pytest.raises(InvalidOperation, match=r"^a name has "):
        check_shown_name(name, "a name", 10)
