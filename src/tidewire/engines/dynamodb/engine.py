"""DynamoDB's entry in the registry of engines: the store of a cluster."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX, DynamoOptions
from tidewire.ports.engine import Engine, Progress
from tidewire.ports.event_log import CommitListener
from tidewire.ports.inspection import CounterRepair, Inspector
from tidewire.ports.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidewire.engines.dynamodb.database import Database

TABLE_ATTEMPT_MS: Final = 20_000
TABLE_BUDGET_MS: Final = 60_000
"""Making a table takes longer than writing a row."""

_METRICS: Final = """
counter dynamodb_requests counts.requests : Requests to the database.
counter dynamodb_retries{reason} throttled=counts.throttled
  conflict=counts.conflicts answer_lost=counts.answers_lost
  : Requests that were throttled, met another write of the same rows, or got no answer; most are
  sent again.
counter durability_fences_failed counts.fences_failed
  : Commits that another process was faster than.
counter durability_sequence_gaps counts.sequences_skipped
  : Numbers never used that lie before commits of this process.
counter dynamodb_pages_cut counts.pages_cut
  : Pages that ended before a message whose predecessor was not visible yet.
counter dynamodb_author_moves_lost counts.author_moves_lost
  : Messages stored whose author's own position could not be moved.
"""


async def _store(options: DynamoOptions, data_dir: Path, listener: CommitListener) -> Storage:
    from tidewire.engines.dynamodb.storage import DynamoStorage

    return await DynamoStorage.open(options, listener=listener)


def _inspect(options: DynamoOptions, place: Path) -> Inspector:
    from tidewire.engines.dynamodb.inspect import DynamoInspector

    return DynamoInspector(options)


def _repair(options: DynamoOptions, place: Path) -> CounterRepair:
    from tidewire.engines.dynamodb.repair import DynamoCounterRepair

    return DynamoCounterRepair(options)


def _ask(options: DynamoOptions, ask: "Callable[[Database], Awaitable[list[str]]]") -> list[str]:
    from tidewire.engines.dynamodb.database import Database

    patient = replace(options, attempt_ms=TABLE_ATTEMPT_MS, budget_ms=TABLE_BUDGET_MS)

    async def connected() -> list[str]:
        async with Database.connect(patient) as database:
            return await ask(database)

    return asyncio.run(connected())


def _make(options: DynamoOptions) -> list[str]:
    from tidewire.engines.dynamodb.tables import create_tables

    return _ask(options, create_tables)


def _check(options: DynamoOptions) -> list[str]:
    from tidewire.engines.dynamodb.tables import check_tables

    return _ask(options, check_tables)


def _upgrade(options: DynamoOptions) -> list[str]:
    from tidewire.engines.dynamodb.tables import check_there, upgrade
    from tidewire.engines.dynamodb.upgrading import mark_members

    _ask(options, check_there)
    done = mark_members(options)
    steps = [f"{done.marked} members marked"] if done.marked else []
    return steps + _ask(options, upgrade)


def _forget_agreed(options: DynamoOptions, name: str) -> None:
    from tidewire.engines.dynamodb.tables import disagree

    _ask(options, lambda database: disagree(database, name))


def _after_restore(
    options: DynamoOptions, now_ms: int, keep_sessions: bool, progress: Progress
) -> tuple[str, int]:
    from tidewire.engines.dynamodb.restoring import after_restore

    done = after_restore(options, now_ms=now_ms, keep_sessions=keep_sessions, progress=progress)
    sentence = (
        f"{done.chats} chats: {done.heads_moved} heads moved, {done.entries_mended} rows of their "
        f"logs mended, {done.positions_lowered} positions lowered, {done.memberships_listed} "
        "entries of chat lists mended, "
        f"{done.events_forgotten} commits of the outbox forgotten. The epoch is {done.epoch}."
    )
    return sentence, done.sessions_ended


ENGINE: Final = Engine(
    name="dynamodb",
    options=DynamoOptions,
    settings="table_prefix region endpoint_url access_key secret_key",
    is_shared=True,
    vendor="aiobotocore",
    append_sends_max=SENDS_PER_TRANSACTION_MAX,
    metrics={"store": _METRICS},
    store=_store,
    inspect=_inspect,
    repair=_repair,
    named=lambda options, place: Path(options.table_prefix),
    make=_make,
    check=_check,
    upgrade=_upgrade,
    forget_agreed=_forget_agreed,
    after_restore=_after_restore,
)
