"""A store in plain dicts and lists: for tests, and the ground the simulator stands on."""

from tests.support.memory.storage import MemoryStorage
from tests.support.memory.tables import MemoryTables

__all__ = ["MemoryStorage", "MemoryTables"]
