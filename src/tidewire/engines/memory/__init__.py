"""A store in plain dicts and lists: for tests, and the ground the simulator stands on."""

from tidewire.engines.memory.storage import MemoryStorage
from tidewire.engines.memory.tables import MemoryTables

__all__ = ["MemoryStorage", "MemoryTables"]
