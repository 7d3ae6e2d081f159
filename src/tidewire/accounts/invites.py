"""Invite codes: letters that can be read out and typed, and what is stored of them. PURE."""

import base64
import hashlib
from typing import Final

from tidewire.domain.accounts import Secret

INVITE_BYTES: Final = 15
"""120 random bits: 24 letters."""


def encode_invite(random: bytes) -> Secret:
    """A code from random bytes that nobody can guess: letters and the digits 2 to 7."""
    assert len(random) == INVITE_BYTES
    return Secret(base64.b32encode(random).decode().lower())


def invite_hash(code: Secret) -> bytes:
    """What is stored of a code. It may come in either case, with spaces and dashes."""
    plain = code.reveal().replace("-", "").replace(" ", "").lower()
    return hashlib.sha256(plain.encode(errors="surrogatepass")).digest()
