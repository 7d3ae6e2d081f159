"""The options' defaults fit together, and impossible values are refused."""

from typing import Any

import pytest

from tidewire.accounts.options import (
    AccountOptions,
    ExternalOptions,
    PasswordOptions,
    ThrottleOptions,
)
from tidewire.domain.accounts import Secret

EXTERNAL: dict[str, Any] = {"issuer": "them", "audience": "us", "secret": Secret("x" * 32)}


async def no_keys() -> bytes:
    return b""


def test_options_defaults_are_those_of_the_contract() -> None:
    options = AccountOptions()
    assert options.access_token_ms == 3_600_000
    assert options.session_ms == 30 * 86_400_000
    assert (options.sessions_max, options.refresh_grace_ms) == (5, 30_000)
    external = ExternalOptions(**EXTERNAL)
    assert (external.keys_cached_ms, external.keys_cooldown_ms) == (300_000, 30_000)


@pytest.mark.parametrize(
    ("kind", "impossible"),
    [
        (AccountOptions, {"issuer": ""}),
        (AccountOptions, {"audience": ""}),
        (AccountOptions, {"access_token_ms": 999}),
        (AccountOptions, {"session_ms": 3_599_999}),
        (AccountOptions, {"session_ms_max": 1}),
        (AccountOptions, {"sessions_max": 0}),
        (AccountOptions, {"refresh_grace_ms": -1}),
        (AccountOptions, {"leeway_ms": 600_001}),
        (AccountOptions, {"bot_token_ms": 0}),
        (AccountOptions, {"invite_ms": 0}),
        (AccountOptions, {"touch_ms": 0}),
        (AccountOptions, {"sessions_cached_max": 0}),
        (AccountOptions, {"session_cached_ms": -1}),
        (PasswordOptions, {"memory_kib": 7}),
        (PasswordOptions, {"passes": 0}),
        (PasswordOptions, {"lanes": 0}),
        (PasswordOptions, {"running_max": -1}),
        (PasswordOptions, {"waiting_ms_max": 0}),
        (PasswordOptions, {"waiting_max": -1}),
        (ThrottleOptions, {"login_name_burst": 0}),
        (ThrottleOptions, {"login_ip_interval_ms": 0}),
        (ThrottleOptions, {"login_known_burst": 0}),
        (ThrottleOptions, {"login_device_interval_ms": 0}),
        (ThrottleOptions, {"effort_interval_ms": 0}),
        (ThrottleOptions, {"register_ip_burst": 0}),
        (ThrottleOptions, {"refresh_burst": 0}),
        (ThrottleOptions, {"keys_max": 0}),
    ],
)
def test_options_refuse_what_is_impossible(kind: type[Any], impossible: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(impossible))):
        kind(**impossible)


@pytest.mark.parametrize(
    ("impossible", "sentence"),
    [
        ({"issuer": ""}, "issuer"),
        ({"audience": ""}, "audience"),
        ({"secret": None}, "either a secret or keys"),
        ({"fetch_keys": no_keys}, "either a secret or keys"),
        ({"secret": Secret("x" * 31)}, "32 bytes"),
        ({"leeway_ms": -1}, "leeway_ms"),
        ({"keys_cached_ms": 0}, "keys_cached_ms"),
        ({"keys_cooldown_ms": 0}, "keys_cooldown_ms"),
        ({"keys_stale_ms_max": 1}, "keys_stale_ms_max"),
    ],
)
def test_external_options_refuse_what_is_impossible(
    impossible: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ExternalOptions(**(EXTERNAL | impossible))


def test_options_do_not_show_their_secret() -> None:
    assert "xxx" not in repr(ExternalOptions(**EXTERNAL))
