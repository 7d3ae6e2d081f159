"""The files of the audit trail: JSON lines in the data directory, bounded by rotation.

`audit.jsonl` is the newest, then come `audit.1.jsonl`, `audit.2.jsonl`, …; failures, which
strangers can cause, have files of their own (`audit-failures.jsonl`, …). One process writes them:
the one that holds the lock of the data directory. Any program of the same user may read them.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from tidewire.domain.audit import FAILURES, OPERATOR, AuditAction, AuditRecord
from tidewire.domain.errors import TidewireError
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import check_numbers
from tidewire.wire.timestamps import format_time_ms, parse_time_ms

TRAIL_NAME: Final = "audit"
FAILURES_NAME: Final = "audit-failures"
_STEMS: Final = (TRAIL_NAME, FAILURES_NAME)
_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How much of the audit trail is kept in the data directory. An impossible value raises
    ValueError."""

    file_kib_max: int = 16 * _KIB
    """KiB of one file; a file that would grow larger is rotated and a new one begun. A record has
    about 200 bytes."""
    files_max: int = 8
    """Files of each kind (the trail, and failures); the oldest one is deleted for a new one."""
    repeats_per_minute: int = 20
    """How many records of one action are written one by one in a minute: failed logins of one
    address; logins, ended sessions, changed passwords and actions on groups and their members of
    one account from one address. Further ones become one record with their number. A program that
    bans addresses must need fewer (fail2ban's `maxretry`)."""

    def __post_init__(self) -> None:
        check_numbers(self)


class TrailUnusable(TidewireError):
    """The trail cannot be read; the message says why."""


def fields_of(record: AuditRecord) -> dict[str, Any]:
    """A record as it is shown: its time is a text, and fields without a value are left out."""
    shown: dict[str, Any] = msgspec.to_builtins(record)
    return {"at": format_time_ms(shown.pop("at_ms")), **shown}


class AuditFiles:
    """Writes the files. Blocks; to be used by one thread."""

    def __init__(self, data_dir: Path, options: AuditOptions) -> None:
        self._data_dir = data_dir
        self._bytes_max = options.file_kib_max * _KIB
        self._files_max = options.files_max

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Append the records. Raises OSError; then some of them may have been written."""
        for stem, is_failure in ((TRAIL_NAME, False), (FAILURES_NAME, True)):
            lines = b"".join(
                msgspec.json.encode(fields_of(record)) + b"\n"
                for record in records
                if (record.action in FAILURES) is is_failure
            )
            if lines:
                self._append(stem, lines)

    def _append(self, stem: str, lines: bytes) -> None:
        file = _file(self._data_dir, stem, 0)
        # Opened each time: an operator, or logrotate, may have moved the file away.
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size and size + len(lines) > self._bytes_max:
                os.close(handle)
                handle = -1
                self._rotate(stem)
                self._append(stem, lines)
                return
            if size and os.pread(handle, 1, size - 1) != b"\n":
                # A crash, or a full disk, cut the last line off.
                lines = b"\n" + lines
            view = memoryview(lines)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            if handle >= 0:
                os.close(handle)

    def _rotate(self, stem: str) -> None:
        for number in reversed(range(self._files_max)):
            file = _file(self._data_dir, stem, number)
            if not file.exists():
                continue
            if number + 1 >= self._files_max:
                file.unlink()
            else:
                file.rename(_file(self._data_dir, stem, number + 1))


def read_trail(data_dir: Path) -> list[AuditRecord]:
    """All records that are kept, the oldest first. Raises TrailUnusable, OSError."""
    found: list[AuditRecord] = []
    for stem in _STEMS:
        for file in _files(data_dir, stem):
            found += records_of(file.read_bytes())
    if not found and not data_dir.is_dir():
        raise TrailUnusable(f"there is no directory {data_dir}; name it with --data-dir")
    # The records of one file are in order already; sorting is stable.
    found.sort(key=lambda record: record.at_ms)
    return found


def records_of(lines: bytes) -> Iterator[AuditRecord]:
    """The records of a file; a line that was cut off, or is of a newer version, is skipped."""
    for line in lines.splitlines():
        try:
            shown = msgspec.json.decode(line, type=dict[str, Any])
            at_ms = parse_time_ms(shown.pop("at"))
            yield msgspec.convert({"at_ms": at_ms, **shown}, AuditRecord)
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
            continue


def note_command(data_dir: Path, command: str, at_ms: int, *, chat_id: str | None = None) -> None:
    """Record an operator's command that was carried out without a server. If the record cannot be
    written, the command is still done. No file is made in another user's directory: that user's
    server could not write to it."""
    record = AuditRecord(
        at_ms=at_ms,
        action=AuditAction.OPERATOR_COMMAND,
        actor=OPERATOR,
        command=command,
        chat_id=None if chat_id is None else ChatId(chat_id[:64]),
    )
    with contextlib.suppress(OSError):
        if data_dir.stat().st_uid == os.geteuid():
            AuditFiles(data_dir, AuditOptions()).write([record])


class TrailTail:
    """Reads what is added to the files from now on, across rotations, and also if another program
    moves a file away or cuts it to nothing in its place."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        # By kind: the inode of the newest file, and the offset up to which it was read.
        self._read = dict.fromkeys(_STEMS, (0, 0))
        for stem in _STEMS:
            for file in _files(data_dir, stem)[-1:]:
                stat = file.stat()
                self._read[stem] = (stat.st_ino, stat.st_size)

    def more(self) -> list[AuditRecord]:
        """The records that were added since the last call, in order of time. Raises OSError."""
        found = [record for stem in _STEMS for record in self._more_of(stem)]
        found.sort(key=lambda record: record.at_ms)
        return found

    def _more_of(self, stem: str) -> list[AuditRecord]:
        found: list[AuditRecord] = []
        with contextlib.ExitStack() as stack:
            known, offset = self._read[stem]
            for file in reversed(_unread(self._data_dir, stem, known, stack)):
                stat = os.fstat(file.fileno())
                begins_at = offset if stat.st_ino == known and stat.st_size >= offset else 0
                lines = _lines_from(file, begins_at)
                self._read[stem] = (stat.st_ino, begins_at + len(lines))
                found += records_of(lines)
        return found


def _unread(data_dir: Path, stem: str, known: int, stack: contextlib.ExitStack) -> list[BinaryIO]:
    """The files of a kind, open, from the newest back to the one with the inode `known`."""
    opened: dict[int, BinaryIO] = {}
    newest: list[BinaryIO] = []
    for number in count():
        try:
            file = stack.enter_context(_file(data_dir, stem, number).open("rb"))
        except FileNotFoundError:
            if number:
                break
            continue
        # A rotation at this moment shows a file a second time.
        inode = os.fstat(file.fileno()).st_ino
        opened.setdefault(inode, file)
        if inode == known:
            return list(opened.values())
        if not number:
            newest = [file]
    # The known file was moved away or deleted: the numbered ones are older, and were read.
    return newest if known else list(opened.values())


def _lines_from(file: BinaryIO, offset: int) -> bytes:
    """Whole lines only: the last one may not be written completely yet."""
    file.seek(offset)
    lines, newline, _ = file.read().rpartition(b"\n")
    return lines + newline


def _files(data_dir: Path, stem: str) -> list[Path]:
    """The files of a kind, the oldest first."""
    numbers = [0]
    for file in data_dir.glob(f"{stem}.*.jsonl"):
        text = file.name.removeprefix(f"{stem}.").removesuffix(".jsonl")
        if text.isdecimal():
            numbers.append(int(text))
    files = (_file(data_dir, stem, number) for number in sorted(numbers, reverse=True))
    return [file for file in files if file.exists()]


def _file(data_dir: Path, stem: str, number: int) -> Path:
    return data_dir / (f"{stem}.{number}.jsonl" if number else f"{stem}.jsonl")
