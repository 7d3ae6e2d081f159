"""Puts the account plane together: one call makes all parts and connects them."""

from dataclasses import dataclass

from tidewire.accounts.admin import AccountAdmin
from tidewire.accounts.authenticator import TokenAuthenticator
from tidewire.accounts.deletion import AccountDeletion, Depart, Erase
from tidewire.accounts.external import ExternalTokens, KeySet
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import AccountOptions, IdentityOptions
from tidewire.accounts.passwords import Argon2Hasher, PasswordHasher, Passwords
from tidewire.accounts.people import OnRosterChanged, PeopleService
from tidewire.accounts.plane import AccountPlane, OnRevoked
from tidewire.accounts.service import AccountService
from tidewire.accounts.tokens import AccessTokens
from tidewire.ports.audit import NO_TRAIL, AuditTrail
from tidewire.ports.runtime import Clock, IdSource, RandomBytes, RunBlocking
from tidewire.ports.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The parts of the account plane that others use."""

    authenticator: TokenAuthenticator
    service: AccountService
    people: PeopleService
    admin: AccountAdmin
    deletion: AccountDeletion
    identity_keys: KeySet | None
    """None: the identity provider publishes none, or there is no such provider."""


def assemble_accounts(
    *,
    store: Storage,
    keys: KeyRing,
    clock: Clock,
    ids: IdSource,
    random_bytes: RandomBytes,
    run_blocking: RunBlocking,
    options: AccountOptions,
    identity: IdentityOptions,
    on_revoked: OnRevoked,
    on_roster_changed: OnRosterChanged,
    depart: Depart,
    erase: Erase,
    identity_keys: KeySet | None = None,
    trail: AuditTrail = NO_TRAIL,
    hasher: PasswordHasher | None = None,
) -> Accounts:
    """`keys` are the server's own, which may be replaced while it runs.

    Tokens of the identity provider are checked if it has a secret or `identity_keys` are given.
    `on_revoked` is called when the tokens of those sessions are refused already.
    """
    external = None
    if identity.secret is not None or identity_keys is not None:
        external = ExternalTokens(identity, identity_keys, clock=clock)
    tokens = AccessTokens(keys, random_bytes)
    plane = AccountPlane(
        store=store,
        keys=keys,
        tokens=tokens,
        passwords=Passwords(
            hasher or Argon2Hasher(options.passwords, random_bytes),
            run_blocking=run_blocking,
            random_bytes=random_bytes,
        ),
        authenticator=TokenAuthenticator(
            store=store, tokens=tokens, external=external, clock=clock, ids=ids
        ),
        clock=clock,
        ids=ids,
        random_bytes=random_bytes,
        options=options,
        trail=trail,
        on_revoked=on_revoked,
    )
    deletion = AccountDeletion(
        plane, depart=depart, erase=erase, on_roster_changed=on_roster_changed
    )
    return Accounts(
        authenticator=plane.authenticator,
        service=AccountService(plane, deletion),
        people=PeopleService(store=store, clock=clock, on_roster_changed=on_roster_changed),
        admin=AccountAdmin(plane, deletion, external_issuer=identity.issuer),
        deletion=deletion,
        identity_keys=identity_keys,
    )
