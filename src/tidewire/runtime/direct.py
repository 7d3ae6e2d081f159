"""Operations on the data of a server that is not running."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tidewire.domain.errors import InvalidOperation, StoreUnusable
from tidewire.ports.event_log import ignore_commits
from tidewire.runtime.config import Config
from tidewire.runtime.control import Result
from tidewire.runtime.engines import engine_for, names_cluster
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.token_keys import KeyFile
from tidewire.runtime.wiring import Machine, open_own_store, wire_acting, wire_operations


async def operate_directly(
    settings: Callable[[], Config],
    data_dir: Path,
    command: str,
    arguments: Mapping[str, object],
    *,
    may_create: bool,
) -> Result:
    """Open the store, which takes its lock, carry out the command, and close the store again.
    Without `may_create` the store must exist. Raises StoreUnusable, and InvalidOperation for a
    cluster, whose store is not in this directory."""
    engine = engine_for("store", is_shared=False)
    is_there = engine.named is None or engine.named(engine.options(), data_dir).exists()
    if not may_create and not is_there:
        raise StoreUnusable(
            f"there is no database in {data_dir}; name its directory with --data-dir"
        )
    config = settings()
    if config.cluster.role.is_clustered or names_cluster(config.engines):
        raise InvalidOperation(
            f"the settings are those of a cluster, and no gateway is running in {config.data_dir}; "
            "name the data directory of a running gateway with --data-dir"
        )
    tasks = TaskSupervisor()
    machine = Machine.of(config, tasks)
    engine, store = await open_own_store(config, ignore_commits)
    try:
        keys = KeyFile(config.data_dir)
        acting = wire_acting(config, store, keys.ring, machine)
        operations = wire_operations(config, store, engine, acting, machine, keys)
        return await operations.run(command, arguments)
    finally:
        # While the store holds the directory's lock, as for everything that is written there.
        machine.trail.close()
        await tasks.close()
        await store.close()
