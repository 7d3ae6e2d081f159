"""Seals the messages that gateways send each other through a third party. Making a seal needs the
token keys. PURE.

A seal names the gateway that it is for, whose name is new at each start, so it is valid nowhere
else. It does not encrypt: the third party can read the message. An owner of the key could sign
access tokens, and so send in any user's name, anyway.
"""

import hmac
from typing import Final

from tidewire.accounts.keys import KeyRing, TokenKey

_PURPOSE: Final = b"tidewire between gateways, version 1"
_KEY_ID_BYTES: Final = 12
_MAC_BYTES: Final = 32


def seal(keys: KeyRing, to: str, body: bytes, now_ms: int) -> bytes:
    key = keys.signing(now_ms)
    return key.key_id.encode() + _mac(key, to, body) + body


def unseal(keys: KeyRing, to: str, sealed: bytes, now_ms: int) -> bytes | None:
    """The body that was sealed for gateway `to`; None if it was not, or if the seal is not ours."""
    key_id = sealed[:_KEY_ID_BYTES].decode(errors="replace")
    mac = sealed[_KEY_ID_BYTES : _KEY_ID_BYTES + _MAC_BYTES]
    body = sealed[_KEY_ID_BYTES + _MAC_BYTES :]
    for key in keys.checking(key_id, now_ms):
        if hmac.compare_digest(mac, _mac(key, to, body)):
            return body
    return None


def _mac(key: TokenKey, to: str, body: bytes) -> bytes:
    own = hmac.digest(key.secret.reveal().encode(), _PURPOSE, "sha256")
    return hmac.digest(own, to.encode() + b"\0" + body, "sha256")
