"""A store to look at from outside, and short words for what is found there. Holds no test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.engines.sqlite.store import open_beside
from tests.support.world import World
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import Report, verify


def violated(report: Report) -> list[str]:
    return [check.name for check in report.checks if check.violations]


def found(report: Report) -> str:
    return "\n".join(offender.found for check in report.checks for offender in check.offenders)


def verify_file(path: Path, chunk_rows: int = 3) -> Report:
    return verify(lambda: SqliteInspector(path, chunk_rows=chunk_rows))


async def populate(world: World) -> tuple[ChatId, ChatId, list[UserId]]:
    """A group of five with 40 messages and somebody who left, a direct chat with ten messages, and
    some chats with nothing in them."""
    people = await world.people(6)
    ann, bob, *others, gone = people
    group = await world.group(ann, bob, *others, gone)
    for author in people[:4]:
        await world.send_many(group, author, 10)
    await world.ack(gone, group, 12)
    await world.remove(ann, group, gone)
    direct = await world.direct(ann, bob)
    await world.send_many(direct, bob, 10)
    await world.read(ann, direct, 7)
    for other in others:
        await world.direct(ann, other)
    return group, direct, people


@contextmanager
def edited(path: Path) -> Iterator[apsw.Connection]:
    database = open_beside(path)
    try:
        yield database
    finally:
        database.close()


def one(path: Path, query: str) -> Any:
    with edited(path) as database:
        return database.execute(query).get
