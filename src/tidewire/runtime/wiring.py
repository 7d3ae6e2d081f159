"""The wiring that a server and a command without a server share."""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Self

from tidewire.accounts.assembly import Accounts, assemble_accounts
from tidewire.accounts.external import KeySet
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.plane import OnRevoked
from tidewire.chats.service import ChatService
from tidewire.domain.ids import ChatId, UserId
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ops.erase import erase_messages
from tidewire.ports.engine import Engine
from tidewire.ports.event_log import CommitListener
from tidewire.ports.runtime import Clock, IdSource, Tasks
from tidewire.ports.storage import Appends, Storage
from tidewire.runtime.audit import AuditRecorder, HandOn
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config
from tidewire.runtime.engines import engine_for
from tidewire.runtime.id_source import id_source
from tidewire.runtime.jwks import JwksSource
from tidewire.runtime.operations import Operations
from tidewire.runtime.supervise import run_blocking
from tidewire.runtime.token_keys import KeyActs, KeyFile

_logger: Final = logging.getLogger(__name__)


def tell_none(_: object) -> None:
    """Does nothing: there is no other process to tell."""


class Machine(NamedTuple):
    """What all parts need of the machine: clock, ids, tasks, audit trail."""

    clock: Clock
    ids: IdSource
    tasks: Tasks
    trail: AuditRecorder

    @classmethod
    def of(cls, config: Config, tasks: Tasks, *, hand_on: HandOn | None = None) -> Self:
        """`hand_on`: another process writes the audit trail."""
        clock = SystemClock()
        trail = AuditRecorder(config.data_dir, clock=clock, options=config.audit, hand_on=hand_on)
        return cls(clock, id_source(), tasks, trail)


async def open_own_store(config: Config, listener: CommitListener) -> tuple[Engine, Storage]:
    """The store in the data directory, and its engine. Raises StoreUnusable."""
    engine = engine_for("store", is_shared=False, options=config.engines)
    assert engine.store is not None
    return engine, await engine.store(config.engines[engine.name], config.data_dir, listener)


class Acting(NamedTuple):
    """The planes through which people and operators act."""

    ingest: IngestService
    chats: ChatService
    accounts: Accounts


def wire_acting(
    config: Config,
    store: Storage,
    keys: KeyRing,
    machine: Machine,
    *,
    on_revoked: OnRevoked = tell_none,
    on_roster_changed: Callable[[ChatId], None] = tell_none,
    ingest: IngestOptions | None = None,
    appends: Appends | None = None,
    identity_keys: KeySet | None = None,
) -> Acting:
    """`ingest` overrules the settings. `appends` is called instead of the store to append messages,
    if something stands between them. `identity_keys` are the keys of the identity provider, if its
    tokens are checked."""
    clock, ids, tasks, trail = machine
    chats = ChatService(store=store, clock=clock, ids=ids, options=config.chats, trail=trail)
    options = ingest or config.ingest
    intake = IngestService(
        store=appends or store,
        clock=clock,
        ids=ids,
        tasks=tasks,
        options=options,
        edit_window_ms=config.chats.edit_window_ms,
        trail=trail,
    )
    accounts = assemble_accounts(
        store=store,
        keys=keys,
        clock=clock,
        ids=ids,
        random_bytes=secrets.token_bytes,
        run_blocking=run_blocking,
        options=config.accounts,
        identity=config.identity,
        identity_keys=identity_keys,
        on_revoked=on_revoked,
        on_roster_changed=on_roster_changed,
        depart=chats.depart,
        erase=partial(_erase, store, intake),
        trail=trail,
    )
    return Acting(intake, chats, accounts)


def keys_of_identity(config: Config, clock: Clock) -> KeySet | None:
    """The published keys of the identity provider, if it has any."""
    url, cooldown_ms = config.identity.jwks_url, config.identity.keys_cooldown_ms
    return KeySet(JwksSource(url), clock=clock, cooldown_ms=cooldown_ms) if url else None


async def _erase(store: Storage, ingest: IngestService, user_id: UserId) -> None:
    """As `tidewire users erase` does, for a person who has asked for it."""
    done = await erase_messages(store, ingest.send, user_id)
    if done.messages or done.damaged:
        _logger.info(
            "messages of %s were erased: %d in %d chats; %d are damaged and stay. Backups from "
            "before still hold them",
            user_id,
            done.messages,
            done.chats,
            done.damaged,
        )


def wire_operations(
    config: Config,
    store: Storage,
    engine: Engine | None,
    acting: Acting,
    machine: Machine,
    keys: KeyFile | None,
    on_keys_read: Callable[[], None] = lambda: None,
) -> Operations:
    """`engine` and `on_keys_read` are as `Operations` has them."""
    return Operations(
        admin=acting.accounts.admin,
        chats=acting.chats,
        ingest=acting.ingest,
        engine=engine,
        store=store,
        data_dir=config.data_dir,
        clock=machine.clock,
        trail=machine.trail,
        keys=None if keys is None else KeyActs(keys, config, machine.clock),
        on_keys_read=on_keys_read,
    )
