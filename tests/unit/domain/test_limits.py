"""The bounds fit together."""

from dataclasses import dataclass

import pytest

from tidewire.domain import limits
from tidewire.domain.ids import UlidSource, is_safe_token


def test_every_bound_is_positive() -> None:
    bounds = {name: value for name, value in vars(limits).items() if name.isupper()}
    for name, value in bounds.items():
        assert not isinstance(value, int) or value > 0, name
    assert len(bounds) > 20


def test_sequences_stay_exact_in_a_double() -> None:
    assert int(float(limits.SEQUENCE_MAX)) == limits.SEQUENCE_MAX
    assert float(limits.SEQUENCE_MAX + 1) == float(limits.SEQUENCE_MAX + 2)


def test_jumps_leave_room_for_sequences() -> None:
    for jump in (limits.RESTORE_SEQUENCE_JUMP, limits.RECOVERY_SEQUENCE_JUMP):
        assert jump * 1_000_000 < limits.SEQUENCE_MAX


def test_default_content_type_is_allowed() -> None:
    assert limits.CONTENT_TYPE_DEFAULT in limits.CONTENT_TYPES


def test_request_id_may_be_as_long_as_a_safe_token() -> None:
    assert is_safe_token("r" * limits.REQUEST_ID_CHARACTERS_MAX)
    assert not is_safe_token("r" * (limits.REQUEST_ID_CHARACTERS_MAX + 1))
    assert is_safe_token(UlidSource(lambda _bits: 0).session_id(0))


@dataclass(frozen=True)
class Options:
    count: int = 1
    grace_ms: int = 0
    bound: int | None = None
    is_on: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        limits.check_numbers(self, may_be_zero=("grace_ms",))


def test_numbers_of_options_are_at_least_one_or_zero_where_that_is_said() -> None:
    Options()
    for field in ("count", "bound"):
        with pytest.raises(ValueError, match=f"{field} is at least 1"):
            Options(**{field: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="grace_ms is not negative"):
        Options(grace_ms=-1)
