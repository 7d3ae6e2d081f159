"""Makes the heads of requests to DynamoDB, signed for AWS (Signature Version 4). PURE.

Every request is a POST of JSON to `/`, so the canonical form that is signed needs no path, no query
and no other headers.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final, Protocol

SERVICE: Final = "dynamodb"
ALGORITHM: Final = "AWS4-HMAC-SHA256"
CONTENT_TYPE: Final = "application/x-amz-json-1.0"


class Keys(Protocol):
    """The credentials that sign a request, as the vendor gives them."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None:
        """The token of temporary credentials."""


class Signer:
    """Caches what is good for a day (the key made of the secret) and for a second (the time)."""

    def __init__(self, *, host: str, region: str, user_agent: str) -> None:
        """`host` as in the header: with the port if it is not the default port of the scheme."""
        self._host = host
        self._region = region
        self._user_agent = user_agent
        self._made_of = ("", "")
        self._key = b""
        self._second = -1
        self._stamp = ""

    def head(self, target: str, body: bytes, keys: Keys, *, now_s: int) -> bytes:
        """Everything of a request that goes before its body."""
        if now_s != self._second:
            self._second = now_s
            self._stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        stamp, token = self._stamp, keys.token
        # In the order of their names, as they are signed.
        token_line = f"x-amz-security-token:{token}\n" if token else ""
        signed = "content-type;host;x-amz-date;"
        signed += "x-amz-security-token;x-amz-target" if token else "x-amz-target"
        lines = (
            f"content-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{stamp}\n"
            f"{token_line}x-amz-target:{target}\n"
        )
        canonical = f"POST\n/\n\n{lines}\n{signed}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{stamp[:8]}/{self._region}/{SERVICE}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}"
        key = self._signing_key(keys.secret_key, stamp[:8])
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        return (
            f"POST / HTTP/1.1\r\n{lines.replace(chr(10), chr(13) + chr(10))}"
            f"authorization:{ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
            f"content-length:{len(body)}\r\naccept-encoding:identity\r\n"
            f"user-agent:{self._user_agent}\r\n\r\n"
        ).encode()

    def _signing_key(self, secret: str, day: str) -> bytes:
        if self._made_of != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._made_of, self._key = (secret, day), key
        return self._key
