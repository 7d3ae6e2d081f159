"""The keys that tokens are signed with: their file, which only the server's own user can read, what
`tidewire keys` does with them, and what happens when one is gone."""

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidewire.accounts.keys import KeyRing, TokenKey, with_new_key, without_key
from tidewire.accounts.tokens import LEEWAY_MS
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import TidewireError
from tidewire.ports.runtime import Clock, sync_file
from tidewire.runtime.config import Config
from tidewire.runtime.control import Result
from tidewire.wire.timestamps import format_time_ms, parse_time_ms

SECRETS_NAME: Final = "secrets"
TOKEN_KEY_NAME: Final = "token.key"  # noqa: S105 - the name of a file
KEY_BYTES: Final = 48
MINUTE_MS: Final = 60_000
SIGNS_IN_CLUSTER_MS: Final = 10 * MINUTE_MS
"""How long the gateways of a cluster have to get a new key before it signs."""


class SecretUnusable(TidewireError):
    """A secret's file cannot be used; the message says what to do."""


def token_key(data_dir: Path, file: Path | None = None) -> Secret:
    """The key that a new server signs tokens with; made if it is missing. Raises SecretUnusable."""
    return KeyFile(data_dir, file).ring.keys[-1].secret


class KeyFile:
    """The keys that this server's tokens are signed with; the first is made at its first start.

    One key a line, the newest last: the key, and then `signs_from=` and `good_until=` with times,
    where they are set. The settings of a cluster name a file that all its gateways have.
    """

    def __init__(self, data_dir: Path, file: Path | None = None) -> None:
        """Raises SecretUnusable."""
        folder = data_dir / SECRETS_NAME if file is None else file.parent
        self.file = folder / TOKEN_KEY_NAME if file is None else file
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.file.exists():
                _make(self.file)
        except OSError as error:
            raise SecretUnusable(f"cannot use {self.file}: {error.strerror}") from error
        self._text, keys = self._read()
        self.ring = KeyRing(keys)

    def reread(self) -> bool:
        """Read the file again; True if it has changed, then its keys replace the current ones.
        Raises SecretUnusable; then the keys stay as they are."""
        text, keys = self._read()
        if text == self._text:
            return False
        self.ring.replace(keys)
        self._text = text
        return True

    def write(self, keys: Sequence[TokenKey]) -> None:
        """Replace the keys, first in the file, then in memory. Raises SecretUnusable."""
        text = "".join(f"{_line(key)}\n" for key in keys)
        draft = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        try:
            _write(draft, text)
            draft.replace(self.file)
            sync_file(self.file.parent)
        except OSError as error:
            raise SecretUnusable(f"cannot write {self.file}: {error.strerror}") from error
        self.ring.replace(keys)
        self._text = text

    def _read(self) -> tuple[str, list[TokenKey]]:
        file = self.file
        try:
            if file.stat().st_mode & 0o077:
                raise SecretUnusable(
                    f"{file} can be read by others; run 'chmod 600 {file}', and delete it instead "
                    "if others may have read it: everybody then has to log in again"
                )
            text = file.read_text(encoding="ascii")
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise SecretUnusable(f"cannot use {file}: {error.strerror}") from error
        keys = [_key(line) for line in text.splitlines() if line.strip()]
        found = [key for key in keys if key is not None]
        if not found or len(found) < len(keys):
            raise SecretUnusable(
                f"{file} holds no key, or a line that is not a key. Delete it, and the server "
                "makes a new key; all users then have to log in again"
            )
        return text, found


def new_secret() -> Secret:
    return Secret(secrets.token_urlsafe(KEY_BYTES))


def _line(key: TokenKey) -> str:
    parts = [key.secret.reveal()]
    if key.signs_from_ms:
        parts.append(f"signs_from={format_time_ms(key.signs_from_ms)}")
    if key.good_until_ms is not None:
        parts.append(f"good_until={format_time_ms(key.good_until_ms)}")
    return " ".join(parts)


def _key(line: str) -> TokenKey | None:
    """The key in a line; None if the line is not a key."""
    secret, *fields = line.split()
    times: dict[str, int] = {}
    for field in fields:
        name, _, text = field.partition("=")
        time_ms = parse_time_ms(text)
        if name not in ("signs_from", "good_until") or time_ms is None:
            return None
        times[name] = time_ms
    if len(secret) < KEY_BYTES:
        return None
    return TokenKey(
        secret=Secret(secret),
        signs_from_ms=times.get("signs_from", 0),
        good_until_ms=times.get("good_until"),
    )


def _make(file: Path) -> None:
    """Write a new key to a draft, sync it, then link it: the file is complete or does not exist,
    and the first key stays."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    _write(draft, new_secret().reveal() + "\n")
    try:
        os.link(draft, file)
    except FileExistsError:
        # Another process was quicker: its key is used.
        pass
    finally:
        draft.unlink()
    sync_file(file.parent)


def _write(file: Path, text: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, text.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


class KeyActs:
    """Lists, rotates and drops keys. Each change is in the file before it takes effect."""

    def __init__(self, keys: KeyFile, config: Config, clock: Clock) -> None:
        self._keys = keys
        self._options = config.accounts
        self._is_clustered = config.cluster.role.is_clustered
        self._clock = clock

    def list(self) -> Result:
        self._keys.reread()
        return self._result()

    def rotate(self, minutes: int | None) -> Result:
        """Make a key that signs in so many minutes. Raises InvalidOperation, SecretUnusable."""
        # Another process, or a person, may have written the file.
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
        return max(options.access_token_ms, options.bot_token_ms) + LEEWAY_MS

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
    """What may be shown of a key: never the key itself."""
    until_ms = key.good_until_ms
    return {
        "key_id": key.key_id,
        "is_signing": is_signing,
        "signs_from": format_time_ms(key.signs_from_ms) if key.signs_from_ms else None,
        "good_until": None if until_ms is None else format_time_ms(until_ms),
    }


class KeyWatch:
    """Ends the connections when a key that signed tokens is gone. `look` has to be called on the
    event loop, each time after the keys may have been replaced.

    A connection does not remember which key its token was signed with, so all of them end: apps
    refresh their tokens and come back, bots with a token of another key come back with it.
    """

    def __init__(self, ring: KeyRing, *, end_tokens: Callable[[], None], clock: Clock) -> None:
        self._ring = ring
        self._end_tokens = end_tokens
        self._clock = clock
        self._seen = ring.keys

    def look(self) -> None:
        """End all if a key that was still good is gone; not if all its tokens have expired."""
        seen, self._seen = self._seen, self._ring.keys
        now_ms = self._clock.wall_ms()
        here = {key.mark for key in self._seen if key.is_good(now_ms)}
        if any(key.is_good(now_ms) and key.mark not in here for key in seen):
            self._end_tokens()
