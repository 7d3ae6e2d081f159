"""Has an operation done for a command: by the running server if there is one, else right here."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.database import DATABASE_NAME
from tidewire.runtime import control
from tidewire.runtime.config import Config
from tidewire.runtime.control import Progress, Result, no_progress


def operate(
    data_dir: Path,
    settings: Callable[[], Config],
    command: str,
    arguments: Mapping[str, object],
    *,
    may_create: bool = False,
    progress: Progress = no_progress,
) -> Result:
    """Do it. Without `may_create` there has to be a database. `settings` are asked for only if no
    server runs there: it has its own. Raises TidewireError."""
    answer = control.ask(data_dir, command, arguments, progress)
    if answer is not None:
        return answer
    if not may_create and not (data_dir / DATABASE_NAME).exists():
        raise StoreUnusable(
            f"there is no database in {data_dir}; name its directory with --data-dir"
        )
    # Beside a server none of this is needed, and it takes a while to load.
    import asyncio

    from tidewire.runtime.direct import operate_directly

    return asyncio.run(operate_directly(settings(), command, arguments, progress))
