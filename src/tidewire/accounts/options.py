"""What an operator may tune about accounts, and who is trusted to say who somebody is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tidewire.accounts.keys import SECRET_BYTES_MIN
from tidewire.domain.accounts import Secret

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS


class Registration(StrEnum):
    """Who may make an account without the operator."""

    AUTO = "auto"
    """Everybody on a server that listens on a loopback address and trusts no proxy; with an invite
    everywhere else."""
    OPEN = "open"
    """Everybody who reaches the server."""
    INVITE = "invite"
    """Who has an invite, which lets one in."""
    CLOSED = "closed"
    """Nobody: the operator makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordOptions:
    """How passwords are hashed: argon2id. An impossible value raises ValueError.

    The defaults are OWASP's for argon2id; they cost about 30 ms and 19 MiB a login.
    """

    memory_kib: int = 19 * 1024
    """argon2id: the memory that one hash takes."""
    passes: int = 2
    """argon2id: how often it goes over that memory."""
    lanes: int = 1
    """argon2id: how many threads work on one hash."""
    running_max: int = 0
    """How many passwords are hashed at the same time. 0: one less than the processor has cores,
    and one at least, so that a core is left for messages while many people log in."""
    waiting_max: int = 64
    """How many may wait for that, those from busy addresses last. When there is one more, the last
    one is refused. 64 are served in 2 s by one core."""
    waiting_ms_max: int = 15 * _SECOND_MS
    """How long one may wait, in milliseconds; then it is refused. Clients wait about as long."""

    def __post_init__(self) -> None:
        _check(self.lanes >= 1, "lanes is at least 1")
        _check(self.memory_kib >= 8 * self.lanes, "memory_kib is at least 8 a lane")
        _check(self.passes >= 1, "passes is at least 1")
        _check(self.running_max >= 0, "running_max is not negative")
        _check(self.waiting_max >= 0, "waiting_max is not negative")
        _check(self.waiting_ms_max >= 1, "waiting_ms_max is at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleOptions:
    """How often somebody may try: a burst, then one each interval. A login that is good is free.

    A try is counted in one budget of its account: that of strangers, or that of the device or the
    address that it comes from, if this account got in from there before. Strangers cannot use up
    the latter, so they cannot lock the owner out.
    """

    login_name_burst: int = 10
    """How many guesses at one account strangers have before they wait."""
    login_name_interval_ms: int = 30 * _SECOND_MS
    """Strangers' tries for one user name, all of them together."""
    login_ip_burst: int = 60
    """How many guesses one address has before it waits."""
    login_ip_interval_ms: int = 2 * _SECOND_MS
    """Strangers' tries from one address (a /64 of IPv6), for whatever names."""
    login_known_burst: int = 10
    """How many guesses an address that got in before has before it waits."""
    login_known_interval_ms: int = 30 * _SECOND_MS
    """Tries for one account from one address where it got in before; a device that got in before
    has a budget of its own there."""
    login_device_burst: int = 5
    """How many guesses a device that got in before has before it waits."""
    login_device_interval_ms: int = 60 * _SECOND_MS
    """Tries for one account with the id of one device that got in before, from all addresses where
    the account never did. Small: a device's id is no secret, and may be a guesser's pretence."""
    effort_interval_ms: int = 60 * _SECOND_MS
    """How long a login counts against the next one in the queue before the password hash. An
    address that logs in once in this time is served before those that do it often."""
    register_ip_burst: int = 20
    """How many accounts one address may make before it waits."""
    register_ip_interval_ms: int = 30 * _SECOND_MS
    """New accounts from one address."""
    refresh_burst: int = 30
    """How many refreshes of one session are taken at once."""
    refresh_interval_ms: int = 2 * _SECOND_MS
    """For one session."""
    keys_max: int = 50_000
    """How many of each are remembered."""

    def __post_init__(self) -> None:
        _check(self.effort_interval_ms >= 1, "effort_interval_ms is at least 1")
        for name in (
            "login_name",
            "login_ip",
            "login_known",
            "login_device",
            "register_ip",
            "refresh",
        ):
            _check(getattr(self, f"{name}_burst") >= 1, f"{name}_burst is at least 1")
            _check(getattr(self, f"{name}_interval_ms") >= 1, f"{name}_interval_ms is at least 1")
        _check(self.keys_max >= 1, "keys_max is at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """Bounds and times of the account plane. An impossible value raises ValueError."""

    registration: Registration = Registration.AUTO
    """Who may make an account without the operator: open (everybody who reaches the server), invite
    (with a code of 'tidewire users invite'), closed, or auto: open if server.host is a loopback
    address and server.trusted_proxies is empty, invite otherwise. The start says which it is. A
    server on loopback behind a proxy that it does not know (no trusted_proxies) is open, so set
    this there."""
    """Who may make an account."""
    issuer: str = "tidewire"
    """Our own name in our tokens."""
    audience: str = "tidewire"
    """Whom our tokens are for: this server."""
    access_token_ms: int = 60 * _MINUTE_MS
    """How long an access token is good for."""
    session_ms: int = 30 * _DAY_MS
    """How long a login lasts without being used (milliseconds). Every refresh begins it anew, so an
    active device stays logged in."""
    session_ms_max: int = 0
    """How long a login lasts however active it is (milliseconds since it was opened); 0: no bound.
    Set it where a rule demands that people log in again after some time."""
    sessions_max: int = 5
    """Devices of one user; one more ends the one that was not in use for the longest time."""
    refresh_grace_ms: int = 30 * _SECOND_MS
    """How long a refresh whose answer was lost may be repeated (S-02)."""
    leeway_ms: int = 5 * _SECOND_MS
    """How long after its end one of our own tokens is still taken (milliseconds): the clocks of two
    servers differ a little."""
    bot_token_ms: int = 365 * _DAY_MS
    """How long a bot's token lives unless less is asked for, in milliseconds, and the most that can
    be asked for. An old key for tokens is kept for so long after it was replaced."""
    invite_ms: int = 7 * _DAY_MS
    """How long an invite is good for."""
    touch_ms: int = 5 * _MINUTE_MS
    """How exact the time of a session's last use is."""
    sessions_cached_max: int = 20_000
    """Sessions that are known to be good, or to be revoked, without asking the store."""
    session_cached_ms: int = _MINUTE_MS
    """How long that holds. A revocation in this process is effective at once all the same."""
    passwords: PasswordOptions = field(default_factory=PasswordOptions)
    throttle: ThrottleOptions = field(default_factory=ThrottleOptions)

    def __post_init__(self) -> None:
        _check(bool(self.issuer), "issuer is not empty")
        _check(bool(self.audience), "audience is not empty")
        _check(
            _SECOND_MS <= self.access_token_ms <= _DAY_MS,
            "access_token_ms is a second to a day",
        )
        _check(self.session_ms >= self.access_token_ms, "session_ms is at least access_token_ms")
        _check(
            self.session_ms_max == 0 or self.session_ms_max >= self.access_token_ms,
            "session_ms_max is 0 or at least access_token_ms",
        )
        _check(self.sessions_max >= 1, "sessions_max is at least 1")
        _check(0 <= self.refresh_grace_ms <= _DAY_MS, "refresh_grace_ms is at most a day")
        _check(0 <= self.leeway_ms <= 10 * _MINUTE_MS, "leeway_ms is at most ten minutes")
        _check(self.bot_token_ms >= 1, "bot_token_ms is at least 1")
        _check(self.invite_ms >= 1, "invite_ms is at least 1")
        _check(self.touch_ms >= 1, "touch_ms is at least 1")
        _check(self.sessions_cached_max >= 1, "sessions_cached_max is at least 1")
        _check(self.session_cached_ms >= 0, "session_cached_ms is not negative")


FetchKeys = Callable[[], Awaitable[bytes]]
"""Gets the JWKS document, within a time and size of its own. Raises OSError if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalOptions:
    """The team's own identity provider. Either a shared secret or a way to its public keys."""

    issuer: str
    audience: str
    secret: Secret | None = None
    """HS256."""
    fetch_keys: FetchKeys | None = None
    """RS256 and EdDSA, by JWKS."""
    username_claim: str = "preferred_username"
    display_name_claim: str = "name"
    leeway_ms: int = _MINUTE_MS
    """How far its clock may be from ours."""
    keys_cached_ms: int = 300 * _SECOND_MS
    keys_cooldown_ms: int = 30 * _SECOND_MS
    """An unknown key id asks for the keys again, but not more often than this."""
    keys_stale_ms_max: int = 60 * _MINUTE_MS
    """How long old keys are used while the new ones cannot be had."""

    def __post_init__(self) -> None:
        _check(bool(self.issuer), "issuer is not empty")
        _check(bool(self.audience), "audience is not empty")
        _check(
            (self.secret is None) != (self.fetch_keys is None),
            "an identity provider has either a secret or keys",
        )
        if self.secret is not None:
            check_secret(self.secret)
        _check(0 <= self.leeway_ms <= 10 * _MINUTE_MS, "leeway_ms is at most ten minutes")
        _check(self.keys_cached_ms >= 1, "keys_cached_ms is at least 1")
        _check(self.keys_cooldown_ms >= 1, "keys_cooldown_ms is at least 1")
        _check(
            self.keys_stale_ms_max >= self.keys_cached_ms,
            "keys_stale_ms_max is at least keys_cached_ms",
        )


def decided(registration: Registration, *, is_private: bool) -> Registration:
    """What `auto` comes to. `is_private`: only this machine reaches the server."""
    if registration is not Registration.AUTO:
        return registration
    return Registration.OPEN if is_private else Registration.INVITE


def check_secret(secret: Secret) -> Secret:
    """The secret if HS256 is safe with it."""
    _check(
        len(secret.reveal().encode()) >= SECRET_BYTES_MIN,
        f"a secret has at least {SECRET_BYTES_MIN} bytes",
    )
    return secret


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)
