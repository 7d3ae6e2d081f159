"""Limits how many similar records of one account and address are written a minute, and counts the
others. PURE.

The first ones are written as they come, because a program that bans addresses needs them at once.
The others become one record with their number, once the minute is over.
"""

from typing import Final

import msgspec

from tidewire.domain.audit import REPEATABLE, AuditAction, AuditRecord

WINDOW_MS: Final = 60_000

_Key = tuple[AuditAction, str | None, str | None]
"""Action, actor and address."""


class _Window(msgspec.Struct, eq=False):
    """One minute of one action, account and address."""

    ends_at_ms: int
    written: int = 0
    left_out: int = 0
    last: AuditRecord | None = None


class AuditFloods:
    """Decides which records are written. Each call brings the monotonic time."""

    def __init__(self, *, each_max: int, keys_max: int) -> None:
        """Admits `each_max` records of one action, account and address a minute. At most `keys_max`
        of these combinations have a window of their own; the others share one for each action."""
        self._each_max = each_max
        self._keys_max = keys_max
        # In the order in which the windows end.
        self._windows: dict[_Key, _Window] = {}

    def admits(self, record: AuditRecord, now_ms: int) -> bool:
        """Whether the record is to be written; if not, it is counted."""
        if record.action not in REPEATABLE:
            return True
        key: _Key = (record.action, record.actor, record.address)
        if key not in self._windows and len(self._windows) >= self._keys_max:
            key = (record.action, None, None)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now_ms + WINDOW_MS)
        if window.written < self._each_max:
            window.written += 1
            return True
        window.left_out += 1
        window.last = record
        return False

    def due(self, now_ms: int) -> list[AuditRecord]:
        """For each window that is over, one record that stands for all that were not written."""
        found = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if window.ends_at_ms > now_ms:
                break
            found += self._close(key)
        return found

    def close(self) -> list[AuditRecord]:
        """As `due`, for all windows, also those that are not over."""
        return [record for key in list(self._windows) for record in self._close(key)]

    def _close(self, key: _Key) -> list[AuditRecord]:
        window = self._windows.pop(key)
        if window.last is None:
            return []
        action, actor, address = key
        at_ms = window.last.at_ms
        return [
            AuditRecord(
                at_ms=at_ms,
                action=action,
                actor=actor,
                address=address,
                reason="not_written_one_by_one",
                count=window.left_out,
            )
        ]
