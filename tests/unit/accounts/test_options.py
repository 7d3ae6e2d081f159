"""The options' defaults fit together, and impossible values are refused."""

from typing import Any

import pytest

from tidewire.accounts.external import KEYS_CACHED_MS
from tidewire.accounts.options import (
    AccountOptions,
    IdentityOptions,
    PasswordOptions,
    ThrottleOptions,
)
from tidewire.accounts.service import REFRESH_GRACE_MS
from tidewire.domain.accounts import Secret

IDENTITY: dict[str, Any] = {"issuer": "them", "audience": "us", "secret": Secret("x" * 32)}


def test_options_defaults_are_those_of_the_contract() -> None:
    options = AccountOptions()
    assert options.access_token_ms == 3_600_000
    assert options.session_ms == 30 * 86_400_000
    assert (options.sessions_max, REFRESH_GRACE_MS) == (5, 30_000)
    assert (KEYS_CACHED_MS, IdentityOptions().keys_cooldown_ms) == (300_000, 30_000)


@pytest.mark.parametrize(
    ("kind", "impossible"),
    [
        (AccountOptions, {"access_token_ms": 999}),
        (AccountOptions, {"session_ms": 3_599_999}),
        (AccountOptions, {"session_ms_max": 1}),
        (AccountOptions, {"sessions_max": 0}),
        (AccountOptions, {"bot_token_ms": 0}),
        (AccountOptions, {"invite_ms": 0}),
        (PasswordOptions, {"memory_kib": 7}),
        (PasswordOptions, {"passes": 0}),
        (ThrottleOptions, {"login_name_burst": 0}),
        (ThrottleOptions, {"login_ip_burst": 0}),
        (ThrottleOptions, {"login_known_burst": 0}),
        (ThrottleOptions, {"register_ip_burst": 0}),
    ],
)
def test_options_refuse_what_is_impossible(kind: type[Any], impossible: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(impossible))):
        kind(**impossible)


@pytest.mark.parametrize(
    ("impossible", "sentence"),
    [
        ({"issuer": ""}, "need an issuer"),
        ({"audience": ""}, "audience"),
        ({"jwks_url": "https://id"}, "either a secret or a jwks_url"),
        ({"secret": None, "jwks_url": "file:///x"}, "begins with https://"),
        ({"secret": Secret("x" * 31)}, "32 bytes"),
        ({"leeway_ms": -1}, "leeway_ms"),
        ({"keys_cooldown_ms": 0}, "keys_cooldown_ms"),
    ],
)
def test_identity_options_refuse_what_is_impossible(
    impossible: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        IdentityOptions(**(IDENTITY | impossible))


def test_options_do_not_show_their_secret() -> None:
    assert "xxx" not in repr(IdentityOptions(**IDENTITY))
