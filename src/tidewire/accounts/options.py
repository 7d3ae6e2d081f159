"""Settings of accounts that an operator may change, and the identity provider that is trusted."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tidewire.accounts.keys import SECRET_BYTES_MIN
from tidewire.domain.accounts import Secret
from tidewire.domain.limits import check, check_numbers

_DAY_MS: Final = 86_400_000

OWN_ISSUER: Final = "tidewire"
"""The issuer of our own tokens."""

NEEDS_ONE: Final = "an issuer needs either a secret or a jwks_url"

FetchKeys = Callable[[], Awaitable[bytes]]
"""Fetches the JWKS document, with its own limits of time and size. Raises OSError if it fails."""


class Registration(StrEnum):
    """Who may make an account without the operator."""

    AUTO = "auto"
    """`open` on a server that listens on a loopback address and trusts no proxy; `invite` on all
    others."""
    OPEN = "open"
    """Everybody who reaches the server."""
    INVITE = "invite"
    """People with an invite; each invite lets one person in."""
    CLOSED = "closed"
    """No user: the operator makes the accounts."""

    def decided(self, *, is_private: bool) -> "Registration":
        """The value that `auto` stands for. `is_private`: only this machine reaches the server."""
        if self is not Registration.AUTO:
            return self
        return Registration.OPEN if is_private else Registration.INVITE


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordOptions:
    """How passwords are hashed: argon2id. An impossible value raises ValueError.

    The defaults are OWASP's for argon2id; they cost about 30 ms and 19 MiB a login.
    """

    memory_kib: int = 19 * 1024
    """argon2id: the memory that one hash takes (KiB)."""
    passes: int = 2
    """argon2id: how often it goes over that memory."""

    def __post_init__(self) -> None:
        check(self.memory_kib >= 8, "memory_kib is at least 8")
        check_numbers(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleOptions:
    """How many tries are allowed at once; `login_limits` says how fast they come back. A successful
    login costs no try.

    A try is counted in one budget of its account: that of strangers, or that of the device or the
    address that it comes from, if this account got in from there before. Strangers cannot use up
    the latter, so they cannot lock the owner out.
    """

    login_name_burst: int = 10
    """How many guesses at one account strangers have before they wait."""
    login_ip_burst: int = 60
    """How many guesses one address (a /64 of IPv6) has before it waits, for whatever names. Raise
    it where a large office shares one address."""
    login_known_burst: int = 10
    """How many guesses at one account an address has from which that account got in before; a
    device that got in before has as many of its own there."""
    register_ip_burst: int = 20
    """How many accounts one address may make before it waits. Raise it where a large office shares
    one address."""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """Who may register, and how long logins last. An impossible value raises ValueError."""

    registration: Registration = Registration.AUTO
    """Who may make an account without the operator: open (everybody who reaches the server), invite
    (with a code of 'tidewire users invite'), closed, or auto: open if server.host is a loopback
    address and server.trusted_proxies is empty, invite otherwise. The start says which it is. A
    server on loopback behind a proxy that it does not know (no trusted_proxies) is open, so set
    this there."""
    access_token_ms: int = 3_600_000
    """How long an access token is good for (milliseconds)."""
    session_ms: int = 30 * _DAY_MS
    """How long a login lasts without being used (milliseconds). Every refresh begins it anew, so an
    active device stays logged in."""
    session_ms_max: int = 0
    """How long a login lasts however active it is (milliseconds since it was opened); 0: no bound.
    Set it where a rule demands that people log in again after some time."""
    sessions_max: int = 5
    """Devices of one user; one more ends the login that was not in use for the longest time."""
    bot_token_ms: int = 365 * _DAY_MS
    """How long a bot's token is valid unless less is asked for (milliseconds), and the most that
    can be asked for. After a token key was replaced, the old key is kept for this long."""
    invite_ms: int = 7 * _DAY_MS
    """How long an invite is good for (milliseconds)."""
    passwords: PasswordOptions = field(default_factory=PasswordOptions)
    throttle: ThrottleOptions = field(default_factory=ThrottleOptions)

    def __post_init__(self) -> None:
        check(1_000 <= self.access_token_ms <= _DAY_MS, "access_token_ms is a second to a day")
        check(self.session_ms >= self.access_token_ms, "session_ms is at least access_token_ms")
        check(
            self.session_ms_max == 0 or self.session_ms_max >= self.access_token_ms,
            "session_ms_max is 0 or at least access_token_ms",
        )
        check_numbers(self, may_be_zero=("session_ms_max",))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """The team's own identity provider, if it has one: its tokens are accepted besides our own."""

    issuer: str = ""
    """The issuer, as it stands in the provider's tokens. Empty: only Tidewire's own accounts are
    known."""
    audience: str = "tidewire"
    """The audience, as it stands in the provider's tokens for this server."""
    secret: Secret | None = None
    """For HS256: the secret that the provider signs with."""
    jwks_url: str = ""
    """For RS256 and EdDSA: the URL of the provider's public keys."""
    username_claim: str = "preferred_username"
    """The claim that becomes the user name."""
    display_name_claim: str = "name"
    """The claim that becomes the name that others see."""
    leeway_ms: int = 60_000
    """How much the provider's clock may differ from this server's (milliseconds)."""
    keys_cooldown_ms: int = 30_000
    """A token with an unknown key makes the server fetch the keys again, but at most once in this
    time (milliseconds)."""

    def __post_init__(self) -> None:
        check(self.keys_cooldown_ms >= 1, "keys_cooldown_ms is at least 1")
        check(0 <= self.leeway_ms <= 600_000, "leeway_ms is at most ten minutes")
        if not self.issuer:
            check(not self.is_usable, "secret and jwks_url need an issuer")
            return
        check(self.issuer != OWN_ISSUER, f"issuer cannot be {OWN_ISSUER!r}: that is our own name")
        check(bool(self.audience), "audience is not empty")
        check(self.secret is None or not self.jwks_url, NEEDS_ONE)
        if self.jwks_url and not self.jwks_url.startswith(("https://", "http://")):
            raise ValueError("jwks_url begins with https:// (or http://)")
        if self.secret is not None:
            check_secret(self.secret)

    @property
    def is_usable(self) -> bool:
        """True if the provider's tokens can be checked here."""
        return self.secret is not None or bool(self.jwks_url)


def check_secret(secret: Secret) -> Secret:
    """Return the secret if it is long enough for HS256; else raise ValueError."""
    check(
        len(secret.reveal().encode()) >= SECRET_BYTES_MIN,
        f"a secret has at least {SECRET_BYTES_MIN} bytes",
    )
    return secret
