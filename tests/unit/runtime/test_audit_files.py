"""The trail's files: bounded, private, readable while they are written, and whole after a crash."""

import os
from pathlib import Path

import pytest

from tidewire.domain.audit import AuditAction, AuditRecord
from tidewire.runtime.audit_files import (
    AuditFiles,
    AuditOptions,
    TrailTail,
    TrailUnusable,
    note_command,
    read_trail,
)

START_MS = 1_900_000_000_000


def login(number: int) -> AuditRecord:
    return AuditRecord(at_ms=START_MS + number, action=AuditAction.LOGIN, actor=f"user_{number}")


def failure(number: int) -> AuditRecord:
    return AuditRecord(
        at_ms=START_MS + number, action=AuditAction.LOGIN_FAILED, address="192.0.2.7"
    )


def files_of(data_dir: Path) -> list[str]:
    return sorted(file.name for file in data_dir.iterdir())


def test_records_are_read_as_they_were_written_in_order_of_time(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, AuditOptions())
    files.write([login(1), failure(2)])
    files.write([login(3)])
    assert read_trail(tmp_path) == [login(1), failure(2), login(3)]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    AuditFiles(tmp_path, AuditOptions()).write([login(1), failure(2)])
    assert files_of(tmp_path) == ["audit-failures.jsonl", "audit.jsonl"]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, AuditOptions(file_kib_max=1, files_max=3))
    for number in range(200):
        files.write([login(number)])
    assert files_of(tmp_path) == ["audit.1.jsonl", "audit.2.jsonl", "audit.jsonl"]
    assert all(file.stat().st_size <= 1024 for file in tmp_path.iterdir())
    kept = read_trail(tmp_path)
    assert kept == [login(number) for number in range(200 - len(kept), 200)]
    assert len(kept) > 20


def test_flood_of_failures_pushes_out_nothing_else(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, AuditOptions(file_kib_max=1, files_max=2))
    files.write([login(1)])
    for number in range(2, 300):
        files.write([failure(number)])
    assert read_trail(tmp_path)[0] == login(1)


def test_line_that_was_cut_off_is_passed_over_and_spoils_no_other(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, AuditOptions())
    files.write([login(1), login(2)])
    file = tmp_path / "audit.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    files.write([login(3)])
    assert read_trail(tmp_path) == [login(1), login(3)]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b'{"at": "yesterday", "action": "login"}',
        b'{"at": "2031-05-04T11:20:07.412Z", "action": "of.a.newer.version"}',
        b"\xff\xfe",
    ],
)
def test_line_of_no_record_is_passed_over(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "audit.jsonl").write_bytes(line + b"\n")
    assert read_trail(tmp_path) == []


def test_trail_of_no_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrailUnusable, match="there is no directory"):
        read_trail(tmp_path / "nowhere")


def test_tail_reads_what_is_added_across_rotations(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, AuditOptions(file_kib_max=1, files_max=3))
    files.write([login(0)])
    tail = TrailTail(tmp_path)
    found = []
    for number in range(1, 40):
        files.write([login(number), failure(number)])
        if number % 4 == 0:
            found += tail.more()
    found += tail.more()
    assert [record for record in found if record.action is AuditAction.LOGIN] == [
        login(number) for number in range(1, 40)
    ]
    assert len(found) == 2 * 39
    assert tail.more() == []


@pytest.mark.parametrize("before", [0, 20])
def test_tail_reads_across_several_rotations_between_two_looks(tmp_path: Path, before: int) -> None:
    files = AuditFiles(tmp_path, AuditOptions(file_kib_max=1, files_max=20))
    for number in range(before):
        files.write([login(number)])
    tail = TrailTail(tmp_path)
    for first in (before, before + 50):
        added = [login(number) for number in range(first, first + 50)]
        for record in added:
            files.write([record])
        assert tail.more() == added
    assert len(files_of(tmp_path)) > 6
    assert tail.more() == []


def test_tail_reads_on_after_the_newest_file_was_moved_away(tmp_path: Path) -> None:
    """The numbered files are older than the one that is gone, and were read."""
    files = AuditFiles(tmp_path, AuditOptions(file_kib_max=1))
    for number in range(20):
        files.write([login(number)])
    tail = TrailTail(tmp_path)
    assert files_of(tmp_path) == ["audit.1.jsonl", "audit.jsonl"]
    (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl-20300101")
    assert tail.more() == []
    files.write([login(20)])
    assert tail.more() == [login(20)]


def test_tail_reads_what_is_added_after_a_file_was_cut_to_nothing_in_its_place(
    tmp_path: Path,
) -> None:
    """As logrotate does with copytruncate."""
    files = AuditFiles(tmp_path, AuditOptions())
    files.write([login(1), login(2)])
    tail = TrailTail(tmp_path)
    os.truncate(tmp_path / "audit.jsonl", 0)
    files.write([login(3)])
    assert tail.more() == [login(3)]
    files.write([login(4)])
    assert tail.more() == [login(4)]


def test_tail_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, AuditOptions())
    files.write([login(1)])
    whole = (tmp_path / "audit.jsonl").read_bytes()
    (tmp_path / "audit.jsonl").write_bytes(whole[:20])
    tail = TrailTail(tmp_path / "elsewhere")
    assert tail.more() == []
    tail = TrailTail(tmp_path)
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b"\n" + whole[:30])
        file.flush()
        assert tail.more() == []
        file.write(whole[30:])
    assert tail.more() == [login(1)]


def test_command_without_a_server_is_recorded(tmp_path: Path) -> None:
    note_command(tmp_path, "recover-counter", START_MS, chat_id="chat_" + "x" * 99)
    (record,) = read_trail(tmp_path)
    assert (record.actor, record.command) == ("operator", "recover-counter")
    assert len(record.chat_id or "") == 64
    note_command(tmp_path / "nowhere", "backup", START_MS)


@pytest.mark.parametrize("name", ["file_kib_max", "files_max", "repeats_per_minute"])
def test_option_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is at least 1"):
        AuditOptions(**{name: 0})
