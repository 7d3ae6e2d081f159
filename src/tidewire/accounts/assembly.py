"""Puts the account plane together: one call, and every part knows the others it needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidewire.accounts.admin import AccountAdmin
from tidewire.accounts.authenticator import TokenAuthenticator
from tidewire.accounts.deletion import AccountDeletion, Depart
from tidewire.accounts.external import ExternalTokens
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import AccountOptions, ExternalOptions
from tidewire.accounts.passwords import Argon2Hasher, PasswordHasher, Passwords
from tidewire.accounts.people import OnRosterChanged, PeopleService
from tidewire.accounts.service import AccountService, OnRevoked
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import SessionId
from tidewire.ports.audit import NO_TRAIL, AuditTrail
from tidewire.ports.runtime import Clock, IdSource, RandomBytes, RunBlocking
from tidewire.ports.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The account plane."""

    authenticator: TokenAuthenticator
    service: AccountService
    people: PeopleService
    admin: AccountAdmin
    deletion: AccountDeletion


def assemble_accounts(
    *,
    store: Storage,
    secret: Secret | KeyRing,
    clock: Clock,
    ids: IdSource,
    random_bytes: RandomBytes,
    run_blocking: RunBlocking,
    options: AccountOptions,
    external: ExternalOptions | None,
    on_revoked: OnRevoked,
    on_roster_changed: OnRosterChanged,
    depart: Depart,
    trail: AuditTrail = NO_TRAIL,
    hasher: PasswordHasher | None = None,
    external_issuer: str | None = None,
) -> Accounts:
    """`secret` is the server's own: 32 random bytes or more, as text, from its data directory; or
    several of them, which may be replaced while it runs.

    `external_issuer` names the identity provider where its tokens are not checked (a command).
    `on_revoked` is told after the tokens of those sessions are refused already. Raises ValueError
    for a secret that is too short, or an identity provider with our own name.
    """
    secret = KeyRing.of(secret)
    tokens = AccessTokens(secret, options=options, random_bytes=random_bytes)
    passwords = Passwords(
        hasher or Argon2Hasher(options.passwords, random_bytes),
        options=options.passwords,
        run_blocking=run_blocking,
        random_bytes=random_bytes,
    )
    authenticator = TokenAuthenticator(
        store=store,
        tokens=tokens,
        external=None if external is None else ExternalTokens(external, clock=clock),
        clock=clock,
        ids=ids,
        options=options,
    )

    def revoked(session_ids: Sequence[SessionId]) -> None:
        authenticator.revoked(session_ids)
        on_revoked(session_ids)

    deletion = AccountDeletion(
        store=store,
        clock=clock,
        depart=depart,
        on_revoked=revoked,
        on_roster_changed=on_roster_changed,
        trail=trail,
    )
    return Accounts(
        authenticator=authenticator,
        service=AccountService(
            store=store,
            passwords=passwords,
            tokens=tokens,
            secret=secret,
            clock=clock,
            ids=ids,
            random_bytes=random_bytes,
            options=options,
            on_revoked=revoked,
            trail=trail,
            delete=deletion.delete,
        ),
        people=PeopleService(store=store, clock=clock, on_roster_changed=on_roster_changed),
        admin=AccountAdmin(
            store=store,
            passwords=passwords,
            tokens=tokens,
            clock=clock,
            ids=ids,
            random_bytes=random_bytes,
            options=options,
            on_revoked=revoked,
            external_issuer=external_issuer or (None if external is None else external.issuer),
            authenticator=authenticator,
            trail=trail,
            deletion=deletion,
        ),
        deletion=deletion,
    )
