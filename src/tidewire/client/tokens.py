"""What a client reads in its own token: whose it is, for which device, until when. PURE.

Nothing is verified here; that is the server's business. A token that cannot be read is used as it
is: an identity provider may give out what only the server understands.
"""

import base64
import binascii

import msgspec


class TokenFacts(msgspec.Struct, frozen=True):
    sub: str | None = None
    did: str | None = None
    exp: float | None = None

    @property
    def expires_at_ms(self) -> int | None:
        return None if self.exp is None else int(self.exp * 1000)


NO_FACTS = TokenFacts()
EARLY_MS_MAX = 5 * 60_000
EARLY_PART = 5


def facts_of(token: str) -> TokenFacts:
    """What a JWT says of itself; nothing, if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return NO_FACTS
    body = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(body), type=TokenFacts)
    except (binascii.Error, ValueError):
        return NO_FACTS


def renew_in_ms(life_ms: int) -> int:
    """After what time a token that is good for so long is renewed: early, but not at once."""
    return max(life_ms - min(EARLY_MS_MAX, life_ms // EARLY_PART), 1_000)
