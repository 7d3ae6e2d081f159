"""Operations on the data of a server that does not run."""

import secrets
from collections.abc import Mapping

from tidewire.accounts.assembly import assemble_accounts
from tidewire.chats.service import ChatService
from tidewire.domain.errors import InvalidOperation
from tidewire.engines.sqlite.storage import SqliteStorage
from tidewire.ingest.service import IngestService
from tidewire.runtime.audit import AuditRecorder
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config
from tidewire.runtime.control import Progress, Result
from tidewire.runtime.id_source import id_source
from tidewire.runtime.key_acts import key_acts
from tidewire.runtime.operations import Operations
from tidewire.runtime.secret_files import KeyFile
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.threads import run_blocking


async def operate_directly(
    config: Config, command: str, arguments: Mapping[str, object], progress: Progress
) -> Result:
    """Open the store, which takes its lock, do it, and close the store again. Raises
    InvalidOperation for a cluster, whose store is not in this directory."""
    if config.cluster.role.is_clustered or config.kafka.bootstrap_servers:
        raise InvalidOperation(
            f"the settings name a cluster, and no gateway runs on {config.data_dir} (yet); "
            "name the data directory of one that does (--data-dir)"
        )
    tasks, clock, ids = TaskSupervisor(), SystemClock(), id_source()
    trail = AuditRecorder(config.data_dir, clock=clock, options=config.audit)
    store = await SqliteStorage.open(config.data_dir, options=config.sqlite)
    try:
        keys = KeyFile(config.data_dir)
        chats = ChatService(store=store, clock=clock, ids=ids, options=config.chats, trail=trail)
        accounts = assemble_accounts(
            store=store,
            secret=keys.ring,
            clock=clock,
            ids=ids,
            random_bytes=secrets.token_bytes,
            run_blocking=run_blocking,
            options=config.accounts,
            external=None,
            external_issuer=config.identity.issuer or None,
            on_revoked=_nobody_is_connected,
            on_roster_changed=_nobody_is_connected,
            depart=chats.depart,
            trail=trail,
        )
        operations = Operations(
            admin=accounts.admin,
            chats=chats,
            ingest=IngestService(
                store=store, clock=clock, ids=ids, tasks=tasks, options=config.ingest
            ),
            sqlite=store,
            data_dir=config.data_dir,
            clock=clock,
            trail=trail,
            keys=key_acts(config, keys, clock),
        )
        return await operations.run(command, arguments, progress)
    finally:
        # Under the lock of the directory, like everything that is written there.
        trail.close()
        await tasks.close()
        await store.close()


def _nobody_is_connected(_: object) -> None:
    """There is no server that would have to be told."""
