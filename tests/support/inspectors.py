"""The inspector of each engine under test, and what it finds."""

from collections.abc import Callable

from tests.support.engines import DynamoHarness, EngineHarness, MemoryHarness
from tests.support.memory.inspect import MemoryInspector
from tidewire.engines.dynamodb.inspect import DynamoInspector
from tidewire.engines.sqlite.database import DATABASE_NAME
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import Report, verify
from tidewire.ports.inspection import Inspector


def inspector_of(engine: EngineHarness) -> Callable[[], Inspector]:
    """Opens an inspector on the engine's data."""
    if isinstance(engine, MemoryHarness):
        return lambda: MemoryInspector(engine._tables)
    if isinstance(engine, DynamoHarness):
        return lambda: DynamoInspector(engine.tables.options)
    return lambda: SqliteInspector(engine.directory / DATABASE_NAME)


def verify_engine(engine: EngineHarness) -> Report:
    return verify(inspector_of(engine))


def violated(report: Report) -> list[str]:
    """The names of the checks that failed."""
    return [check.name for check in report.checks if check.violations]
