"""The server's own keys: one signs tokens, older ones still check the tokens they signed. PURE.

A token names its key, so keys can be changed while people are logged in: the new key signs from a
given instant on, when every process has it, and the old one goes when the last token that it may
have signed has expired. Refresh tokens are derived with the oldest key (`codes`), so a change of
keys does not touch sessions; when that key goes, the next one takes its place.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.domain.accounts import Secret
from tidewire.domain.errors import InvalidOperation

KEYS_MAX: Final = 8
"""How many keys there may be. If bots' tokens live for a year, old keys stay that long."""
SECRET_BYTES_MIN: Final = 32
"""A shorter HS256 secret can be guessed (RFC 7518, 3.2)."""

_KEY_ID_LETTERS: Final = 12


class TokenKey(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, and when it is used."""

    secret: Secret
    signs_from_ms: int = 0
    good_until_ms: int | None = None
    """When the last token that it signed has expired; None: it is the newest key."""

    @property
    def key_id(self) -> str:
        """The name of the key in tokens (`kid`)."""
        return self.mark[:_KEY_ID_LETTERS]

    @property
    def mark(self) -> str:
        """A hash that all processes of a cluster compare: it distinguishes keys, nothing else."""
        text = b"tidewire token key " + self.secret.reveal().encode()
        return hashlib.sha256(text).hexdigest()[:32]

    def is_good(self, now_ms: int) -> bool:
        return self.good_until_ms is None or self.good_until_ms > now_ms


class KeyRing:
    """The keys of this process, the oldest first. They may be replaced while it runs."""

    def __init__(self, keys: Sequence[TokenKey]) -> None:
        """Raises ValueError if there is none, or one that is too short."""
        self.replace(keys)

    @classmethod
    def of(cls, secret: Secret) -> "KeyRing":
        """A ring of one key. Raises ValueError if it is too short."""
        return cls([TokenKey(secret=secret)])

    @property
    def keys(self) -> tuple[TokenKey, ...]:
        return self._keys

    def replace(self, keys: Sequence[TokenKey]) -> None:
        if not keys:
            raise ValueError("at least one key is needed")
        if any(len(key.secret.reveal().encode()) < SECRET_BYTES_MIN for key in keys):
            raise ValueError(f"a secret has at least {SECRET_BYTES_MIN} bytes")
        self._keys = tuple(keys)
        self._by_id = {key.key_id: key for key in keys}

    def signing(self, now_ms: int) -> TokenKey:
        """The newest key that may sign already."""
        ready = [key for key in self._keys if key.signs_from_ms <= now_ms and key.is_good(now_ms)]
        return ready[-1] if ready else self._keys[-1]

    def checking(self, key_id: str | None, now_ms: int) -> list[TokenKey]:
        """The keys that may have signed a token which names this key, or which names none, as
        tokens of 0.1.0 do."""
        if key_id is None:
            return [key for key in self._keys if key.is_good(now_ms)]
        key = self._by_id.get(key_id)
        return [key] if key is not None and key.is_good(now_ms) else []

    def oldest(self, now_ms: int) -> TokenKey:
        """The oldest good key: refresh tokens are derived with it."""
        return next((key for key in self._keys if key.is_good(now_ms)), self._keys[-1])


def with_new_key(
    keys: Sequence[TokenKey], secret: Secret, *, signs_from_ms: int, life_ms: int, now_ms: int
) -> list[TokenKey]:
    """The keys with one more, which signs from `signs_from_ms` on. `life_ms` is the longest life of
    a token: the key before it checks for so long after that. Raises InvalidOperation (too many)."""
    left = [key for key in keys if key.is_good(now_ms)]
    if len(left) >= KEYS_MAX:
        raise InvalidOperation(
            f"there are {len(left)} keys already; 'tidewire keys list' shows them, and "
            "'tidewire keys drop' ends one together with its tokens"
        )
    ends_ms = signs_from_ms + life_ms
    older = [
        msgspec.structs.replace(key, good_until_ms=ends_ms) if key.good_until_ms is None else key
        for key in left
    ]
    return [*older, TokenKey(secret=secret, signs_from_ms=signs_from_ms)]


def without_key(keys: Sequence[TokenKey], key_id: str, *, now_ms: int) -> list[TokenKey]:
    """The keys without this one: its tokens are refused from now on. Raises InvalidOperation."""
    left = [key for key in keys if key.key_id != key_id and key.is_good(now_ms)]
    if all(key.key_id != key_id for key in keys):
        raise InvalidOperation(f"there is no key {key_id}; 'tidewire keys list' shows them all")
    if not any(key.signs_from_ms <= now_ms for key in left):
        raise InvalidOperation(f"{key_id} signs tokens now; 'tidewire keys rotate' makes another")
    left[-1] = msgspec.structs.replace(left[-1], good_until_ms=None)
    return left
