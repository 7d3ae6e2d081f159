"""Secrets that the server makes for itself: files that only its own user can read."""

import os
import secrets
from pathlib import Path
from typing import Final

from tidewire.domain.accounts import Secret
from tidewire.domain.errors import TidewireError

SECRETS_NAME: Final = "secrets"
TOKEN_KEY_NAME: Final = "token.key"  # noqa: S105 - the name of a file
KEY_BYTES: Final = 48


class SecretUnusable(TidewireError):
    """A secret's file cannot be used; the sentence says what to do."""


def token_key(data_dir: Path, file: Path | None = None) -> Secret:
    """What this server's tokens are signed with; made at its first start. Raises SecretUnusable.

    A cluster names a file that all its gateways have.
    """
    folder = data_dir / SECRETS_NAME if file is None else file.parent
    file = folder / TOKEN_KEY_NAME if file is None else file
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            _make(file)
        if file.stat().st_mode & 0o077:
            raise SecretUnusable(
                f"{file} can be read by others; run 'chmod 600 {file}', and delete it instead if "
                "others may have read it: everybody then has to log in again"
            )
        text = file.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise SecretUnusable(f"cannot use {file}: {error.strerror}") from error
    if len(text) < KEY_BYTES:
        raise SecretUnusable(
            f"{file} holds no key; delete it, and a new one is made: everybody then has to log "
            "in again"
        )
    return Secret(text)


def _make(file: Path) -> None:
    """Written beside, synced, then linked: a key is there as a whole or not at all, and the first
    one stays."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, (secrets.token_urlsafe(KEY_BYTES) + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, file)
    except FileExistsError:
        # Somebody else was quicker: his is the key.
        pass
    finally:
        draft.unlink()
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
