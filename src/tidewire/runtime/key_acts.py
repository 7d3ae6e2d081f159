"""What `tidewire keys` does with the keys that tokens are signed with, beside a server or not."""

from typing import Final

from tidewire.accounts.keys import TokenKey, with_new_key, without_key
from tidewire.accounts.options import AccountOptions
from tidewire.ports.runtime import Clock
from tidewire.runtime.config import Config
from tidewire.runtime.control import Result
from tidewire.runtime.secret_files import KeyFile, new_secret
from tidewire.wire.timestamps import format_time_ms

MINUTE_MS: Final = 60_000
SIGNS_IN_CLUSTER_MS: Final = 10 * MINUTE_MS
"""How long the gateways of a cluster have to get a new key before it signs."""


class KeyActs:
    """Lists, rotates and drops keys. Each change is in the file before it holds."""

    def __init__(
        self, keys: KeyFile, *, options: AccountOptions, is_clustered: bool, clock: Clock
    ) -> None:
        self._keys = keys
        self._options = options
        self._is_clustered = is_clustered
        self._clock = clock

    def list(self) -> Result:
        self._keys.reread()
        return self._result()

    def rotate(self, minutes: int | None) -> Result:
        """Make a key that signs in so many minutes. Raises InvalidOperation, SecretUnusable."""
        # Another process, or a person, may have written it.
        self._keys.reread()
        now_ms = self._clock.wall_ms()
        wait_ms = SIGNS_IN_CLUSTER_MS if self._is_clustered else 0
        if minutes is not None:
            wait_ms = minutes * MINUTE_MS
        keys = with_new_key(
            self._keys.ring.keys,
            new_secret(),
            signs_from_ms=now_ms + wait_ms,
            life_ms=self._longest_life_ms(),
            now_ms=now_ms,
        )
        self._keys.write(keys)
        return {**self._result(), "key_id": keys[-1].key_id, "signs_in_ms": wait_ms}

    def drop(self, key_id: str) -> Result:
        """End a key together with its tokens. Raises InvalidOperation, SecretUnusable."""
        self._keys.reread()
        now_ms = self._clock.wall_ms()
        self._keys.write(without_key(self._keys.ring.keys, key_id, now_ms=now_ms))
        return self._result()

    def _longest_life_ms(self) -> int:
        options = self._options
        return max(options.access_token_ms, options.bot_token_ms) + options.leeway_ms

    def _result(self) -> dict[str, object]:
        now_ms = self._clock.wall_ms()
        ring = self._keys.ring
        signing = ring.signing(now_ms).key_id
        return {
            "file": str(self._keys.file),
            "is_clustered": self._is_clustered,
            "keys": [
                _shown(key, is_signing=key.key_id == signing)
                for key in ring.keys
                if key.is_good(now_ms)
            ],
        }


def _shown(key: TokenKey, *, is_signing: bool) -> dict[str, object]:
    """What may be told of a key: never the key."""
    until_ms = key.good_until_ms
    return {
        "key_id": key.key_id,
        "is_signing": is_signing,
        "signs_from": format_time_ms(key.signs_from_ms) if key.signs_from_ms else None,
        "good_until": None if until_ms is None else format_time_ms(until_ms),
    }


def key_acts(config: Config, keys: KeyFile, clock: Clock) -> KeyActs:
    return KeyActs(
        keys,
        options=config.accounts,
        is_clustered=config.cluster.role.is_clustered,
        clock=clock,
    )
