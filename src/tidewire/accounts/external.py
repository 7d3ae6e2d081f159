"""Tokens of the team's own identity provider: a shared secret, or its published keys.

The keys are fetched by a function that the caller gives, and cached for a while. They are fetched
again when a token names an unknown key, but at most once per cooldown, however many such tokens
come.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from tidewire.accounts.claims import all_claims, check_claims, check_form, read_claims
from tidewire.accounts.options import FetchKeys, IdentityOptions
from tidewire.accounts.signatures import VerifyingKey, key_id_of, read_key_set, secret_key
from tidewire.domain.accounts import ExternalIdentity, check_subject
from tidewire.domain.errors import AuthFailure, IdentityUnavailable, InvalidOperation, Unauthorized
from tidewire.domain.users import check_chosen_display_name, check_chosen_username
from tidewire.ports.runtime import Clock

KEYS_CACHED_MS: Final = 300_000
"""How long the provider's public keys are cached before they are fetched again."""
KEYS_STALE_MS_MAX: Final = 3_600_000
"""How long old keys are used while the new ones cannot be fetched."""

_logger: Final = logging.getLogger(__name__)


class ExternalPerson(msgspec.Struct, frozen=True, kw_only=True):
    """A person as the identity provider describes them; names only if they can be used here."""

    identity: ExternalIdentity
    username: str | None
    display_name: str | None
    device_id: str | None
    expires_at_ms: int


class KeySet:
    """A cache of the provider's keys."""

    def __init__(self, fetch: FetchKeys, *, clock: Clock, cooldown_ms: int) -> None:
        self._fetch = fetch
        self._clock = clock
        self._cooldown_ms = cooldown_ms
        self._keys: dict[str | None, VerifyingKey] = {}
        self._fetched_at_ms: int | None = None
        self._tried_at_ms: int | None = None
        self._fetching = asyncio.Lock()

    async def key(self, key_id: str | None) -> VerifyingKey:
        """The key of this id, or the only one if a token names none.

        Raises Unauthorized if there is no such key, IdentityUnavailable if the keys are too old and
        cannot be fetched.
        """
        is_stale = self._age_ms() >= KEYS_STALE_MS_MAX
        # While another call fetches, keys that are old but not stale are good enough.
        if is_stale or (self._age_ms() >= KEYS_CACHED_MS and not self._fetching.locked()):
            await self._refresh()
        if self._age_ms() >= KEYS_STALE_MS_MAX:
            raise IdentityUnavailable
        found = self._find(key_id)
        if found is None:
            await self._refresh()
            found = self._find(key_id)
        if found is None:
            raise Unauthorized(AuthFailure.INVALID_TOKEN)
        return found

    def _find(self, key_id: str | None) -> VerifyingKey | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _age_ms(self) -> float:
        if self._fetched_at_ms is None:
            return float("inf")
        return self._clock.monotonic_ms() - self._fetched_at_ms

    async def _refresh(self) -> None:
        """Fetch the keys, unless that was just done or tried. If it fails, the old ones stay."""
        async with self._fetching:
            tried_at_ms, now_ms = self._tried_at_ms, self._clock.monotonic_ms()
            if tried_at_ms is not None and now_ms - tried_at_ms < self._cooldown_ms:
                return
            try:
                self._keys = read_key_set(await self._fetch())
                self._fetched_at_ms = self._clock.monotonic_ms()
            except (OSError, ValueError) as error:
                _logger.warning("the keys of the identity provider could not be fetched: %s", error)
            self._tried_at_ms = self._clock.monotonic_ms()


class ExternalTokens:
    """Checks tokens of one identity provider."""

    def __init__(self, options: IdentityOptions, keys: KeySet | None, *, clock: Clock) -> None:
        """`keys` gives the key to check with if the options have no secret."""
        self.issuer = options.issuer
        self._options = options
        self._clock = clock
        self._secret_key = None if options.secret is None else secret_key(options.secret)
        self._keys = keys

    async def verify(self, token: str) -> ExternalPerson:
        """Check a token; return its bearer. Raises Unauthorized, IdentityUnavailable."""
        key = await self._key(check_form(token))
        payload = key.verified_payload(token)
        claims = check_claims(
            read_claims(payload),
            issuer=self._options.issuer,
            audience=self._options.audience,
            leeway_ms=self._options.leeway_ms,
            now_ms=self._clock.wall_ms(),
        )
        try:
            check_subject(claims.sub)
        except InvalidOperation as error:
            raise Unauthorized(AuthFailure.INVALID_TOKEN) from error
        everything = all_claims(payload)
        return ExternalPerson(
            identity=ExternalIdentity(claims.iss, claims.sub),
            username=_username(everything.get(self._options.username_claim)),
            display_name=_chosen(
                everything.get(self._options.display_name_claim), check_chosen_display_name
            ),
            device_id=claims.did.lower() if claims.did else None,
            expires_at_ms=claims.expires_at_ms + self._options.leeway_ms,
        )

    async def _key(self, token: str) -> VerifyingKey:
        if self._secret_key is not None:
            return self._secret_key
        assert self._keys is not None
        return await self._keys.key(key_id_of(token))


def _username(claimed: object) -> str | None:
    """The name, or the part before the @ of an address, if it can be a user name here."""
    name = _chosen(claimed, check_chosen_username)
    if name is None and isinstance(claimed, str):
        name = _chosen(claimed.partition("@")[0], check_chosen_username)
    return name


def _chosen(claimed: object, check: Callable[[str], str]) -> str | None:
    """The claimed name if it passes the check; None otherwise."""
    try:
        return check(claimed) if isinstance(claimed, str) else None
    except InvalidOperation:
        return None
