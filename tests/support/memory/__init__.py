"""A store in plain dicts and lists, for tests and for the simulator."""

from tests.support.memory.storage import MemoryStorage
from tests.support.memory.tables import MemoryTables

__all__ = ["MemoryStorage", "MemoryTables"]
