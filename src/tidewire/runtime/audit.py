"""Keeps the audit trail: logs each record at once, and has a thread of its own write it to a file.

Records come from the event loop, which never waits for the disk. A record that cannot be written is
counted, and a disk that fails is reported; the log has the record in any case.
"""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Unpack

from tidewire.domain.audit import AuditAction, AuditRecord
from tidewire.ports.audit import ORIGIN, AuditFields, AuditTrail
from tidewire.ports.runtime import Clock
from tidewire.runtime.audit_files import AuditFiles, AuditOptions, fields_of
from tidewire.runtime.audit_floods import AuditFloods

LOGGER_NAME: Final = "tidewire.audit"
WAITING_MAX: Final = 10_000
"""How many records may wait for the disk; further ones are counted, but not written."""
ADDRESSES_MAX: Final = 10_000
"""How many combinations of action, account and address are counted separately."""
CLOSE_S_MAX: Final = 2.0
"""How long `close` waits for the disk."""

HandOn = Callable[[AuditRecord], None]

_logger: Final = logging.getLogger(__name__)
_lines: Final = logging.getLogger(LOGGER_NAME)


class AuditRecorder:
    """Satisfies `ports.audit.AuditTrail`. Used only on the event loop's thread."""

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: Clock,
        options: AuditOptions,
        hand_on: HandOn | None = None,
    ) -> None:
        """`hand_on` gives each record to another process, which writes the files."""
        self._hand_on = hand_on
        # Audit records are logged at every log level that can be set.
        _lines.setLevel(logging.INFO)
        self._files = AuditFiles(data_dir, options)
        self._clock = clock
        self._floods = AuditFloods(each_max=options.repeats_per_minute, keys_max=ADDRESSES_MAX)
        # None ends the thread.
        self._waiting: queue.SimpleQueue[AuditRecord | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_failing = False
        self.counts: Counter[AuditAction] = Counter()
        """How many records were reported, by action."""
        # Each is counted by one thread alone: `+=` of two threads loses counts.
        self._refused_count = 0
        self._failed_count = 0

    @property
    def lost_count(self) -> int:
        """How many records are in no file, because they could not be written."""
        return self._refused_count + self._failed_count

    def record(
        self, action: AuditAction, *, actor: str | None, **fields: Unpack[AuditFields]
    ) -> None:
        self.counts[action] += 1
        at_ms, address = self._clock.wall_ms(), ORIGIN.get().address
        record = AuditRecord(at_ms=at_ms, action=action, actor=actor, address=address, **fields)
        self.tell_floods()
        if self._floods.admits(record, self._clock.monotonic_ms()):
            self._keep(record)

    def tell_floods(self) -> None:
        """Write how many records were left out in the minutes that are over. To be called
        regularly; `record` does so each time."""
        for record in self._floods.due(self._clock.monotonic_ms()):
            self._keep(record)

    def close(self) -> None:
        """Write the waiting records. Blocks until the disk has them, at most `CLOSE_S_MAX`."""
        if self._is_closed:
            return
        for record in self._floods.close():
            self._keep(record)
        self._is_closed = True
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(CLOSE_S_MAX)

    def _keep(self, record: AuditRecord) -> None:
        fields = fields_of(record)
        del fields["at"]
        _lines.info("audit", extra=fields)
        if self._hand_on is None:
            self.write(record)
        else:
            self._hand_on(record)

    def write(self, record: AuditRecord) -> None:
        """Queue the record for the thread that writes the files; count it as lost if that fails."""
        if self._is_closed or self._waiting.qsize() >= WAITING_MAX:
            self._refused_count += 1
            return
        self._waiting.put(record)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="audit-writer", daemon=True)
            self._thread.start()

    # On the thread.

    def _run(self) -> None:
        is_open = True
        while is_open:
            first = self._waiting.get()
            batch = [first]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            is_open = None not in batch
            records = [record for record in batch if record is not None]
            if records:
                self._write(records)

    def _write(self, records: Sequence[AuditRecord]) -> None:
        try:
            self._files.write(records)
        except OSError as error:
            self._failed_count += len(records)
            if not self._is_failing:
                _logger.warning("the audit trail cannot be written: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False


_CONFORMS: type[AuditTrail] = AuditRecorder
