"""Refresh tokens and invite codes: secrets that are given out once and stored as hashes. PURE.

A refresh token is `<session id>.<43 letters>`. The first secret of a session is random. Each next
one is made from the one it replaces, with a key that only the server has (HMAC-SHA256). So a lost
answer can be given again, word for word, although only hashes are stored: two refreshes at once get
the same token, and neither locks the other out (S-02). It also distinguishes a token of an older
generation from a guess: the steps forward from it lead to the current one. An attacker who has the
key could sign access tokens anyway.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator
from typing import Final

from tidewire.domain.accounts import Secret
from tidewire.domain.ids import SESSION_PREFIX, SessionId, has_form

SECRET_BYTES: Final = 32
INVITE_BYTES: Final = 15
"""120 random bits: 24 letters."""
GENERATIONS_MAX: Final = 4_096
"""How far back an old token is recognised: 170 days if it is refreshed each hour."""

_PURPOSE: Final = b"tidewire refresh tokens, version 1"
_TOKEN: Final = re.compile(r"([A-Za-z0-9_]{1,40})\.([A-Za-z0-9_-]{43})")


class RefreshToken:
    """A session's id and the secret that keeps the session alive."""

    __slots__ = ("_secret", "session_id")

    def __init__(self, session_id: SessionId, secret: bytes) -> None:
        assert len(secret) == SECRET_BYTES
        self.session_id = session_id
        self._secret = secret

    def __repr__(self) -> str:
        return f"RefreshToken({self.session_id}, ***)"

    def encode(self) -> Secret:
        """The text that the client gets."""
        letters = base64.urlsafe_b64encode(self._secret).rstrip(b"=").decode()
        return Secret(f"{self.session_id}.{letters}")

    def stored_hash(self) -> bytes:
        """The hash that is stored instead of the token."""
        return hashlib.sha256(self._secret).digest()

    def following(self, key: bytes) -> "RefreshToken":
        """The token that replaces this one."""
        message = self.session_id.encode() + b"." + self._secret
        return RefreshToken(self.session_id, hmac.digest(key, message, "sha256"))

    def is_stored_as(self, stored_hash: bytes) -> bool:
        """True if this is the token's hash. The time does not tell where two hashes differ."""
        return hmac.compare_digest(self.stored_hash(), stored_hash)

    def successors(self, key: bytes, *, generations: int) -> Iterator["RefreshToken"]:
        """The tokens that replaced this one, one after the other, at most so many generations. If
        one of them is the current token, this was an earlier one of its session."""
        token = self
        for _ in range(min(generations, GENERATIONS_MAX)):
            token = token.following(key)
            yield token


def parse_refresh_token(text: Secret) -> RefreshToken | None:
    """The token if the text has the form of one."""
    match = _TOKEN.fullmatch(text.reveal())
    if match is None or not has_form(match[1], SESSION_PREFIX):
        return None
    return RefreshToken(SessionId(match[1]), base64.urlsafe_b64decode(match[2] + "="))


def refresh_key(secret: Secret) -> bytes:
    """The key for refresh tokens, from the server's secret; useless for anything else."""
    return hmac.digest(secret.reveal().encode(), _PURPOSE, "sha256")


def encode_invite(random: bytes) -> Secret:
    """A code from random bytes: letters and the digits 2 to 7."""
    assert len(random) == INVITE_BYTES
    return Secret(base64.b32encode(random).decode().lower())


def invite_hash(code: Secret) -> bytes:
    """The hash that is stored of a code. The code may be in either case, with spaces and dashes."""
    plain = code.reveal().replace("-", "").replace(" ", "").lower()
    return hashlib.sha256(plain.encode(errors="surrogatepass")).digest()
