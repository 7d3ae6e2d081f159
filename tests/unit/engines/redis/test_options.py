"""Options that cannot work are refused."""

from typing import Any

import pytest

from tidewire.engines.redis.options import RedisOptions


def test_defaults_are_those_of_the_design() -> None:
    options = RedisOptions()
    assert (options.assert_ms, options.life_ms, options.drain_ms) == (5_000, 15_000, 2_000)
    assert options.url is None


@pytest.mark.parametrize(
    "changed",
    [
        {"key_prefix": ""},
        {"key_prefix": "a b"},
        {"key_prefix": "{a}"},
        {"assert_ms": 0},
        {"drain_ms": 5_001},
        {"life_ms": 9_999},
    ],
)
def test_impossible_option_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed))):
        RedisOptions(**changed)
