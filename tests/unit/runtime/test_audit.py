"""The recorder: a log line at once, a line in a file soon, and no harm if the disk fails."""

import logging
from pathlib import Path

import pytest

from tests.support.logs import our_lines
from tests.unit.accounts.parts import ManualClock
from tidewire.domain.audit import OPERATOR, AuditAction, AuditRecord
from tidewire.domain.ids import ChatId, SessionId
from tidewire.ports.audit import ORIGIN, Origin
from tidewire.runtime import audit
from tidewire.runtime.audit import LOGGER_NAME, AuditRecorder
from tidewire.runtime.audit_files import AuditOptions, read_trail


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def trail(tmp_path: Path, clock: ManualClock) -> AuditRecorder:
    return AuditRecorder(tmp_path, clock=clock, options=AuditOptions(repeats_per_minute=2))


def test_record_has_all_it_was_told_and_the_address_of_the_request(
    trail: AuditRecorder, tmp_path: Path, clock: ManualClock
) -> None:
    origin = ORIGIN.set(Origin("192.0.2.7", "a browser"))
    try:
        trail.record(
            AuditAction.MEMBER_ADDED,
            actor="user_a",
            target="user_b",
            chat_id=ChatId("chat_c"),
            session_id=SessionId("sess_d"),
        )
    finally:
        ORIGIN.reset(origin)
    trail.record(AuditAction.OPERATOR_COMMAND, actor=OPERATOR, command="backup")
    trail.close()

    added, command = read_trail(tmp_path)
    assert (added.at_ms, added.action) == (clock.wall, AuditAction.MEMBER_ADDED)
    assert (added.actor, added.target, added.address) == ("user_a", "user_b", "192.0.2.7")
    assert (added.chat_id, added.session_id) == ("chat_c", "sess_d")
    assert (command.actor, command.command, command.address) == (OPERATOR, "backup", None)


def test_line_is_logged_at_once_whatever_the_level_is(
    trail: AuditRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("tidewire").setLevel(logging.ERROR)
    try:
        trail.record(AuditAction.LOGIN, actor="user_a", target="user_a")
    finally:
        logging.getLogger("tidewire").setLevel(logging.NOTSET)
    (line,) = our_lines(caplog)
    assert (line.name, line.message) == (LOGGER_NAME, "audit")
    assert vars(line)["action"] == "login"
    assert vars(line)["actor"] == "user_a"
    assert "reason" not in vars(line)
    trail.close()


def test_actions_are_counted_also_those_that_are_not_written(
    trail: AuditRecorder, tmp_path: Path, clock: ManualClock
) -> None:
    for _ in range(5):
        trail.record(AuditAction.LOGIN_FAILED, actor=None)
    clock.pass_ms(60_000)
    trail.tell_floods()
    trail.close()
    assert trail.counts == {AuditAction.LOGIN_FAILED: 5}
    assert [record.count for record in read_trail(tmp_path)] == [None, None, 3]


def test_close_writes_what_a_flood_has_left_out(trail: AuditRecorder, tmp_path: Path) -> None:
    for _ in range(3):
        trail.record(AuditAction.LOGIN_FAILED, actor=None)
    trail.close()
    trail.close()
    assert [record.count for record in read_trail(tmp_path)] == [None, None, 1]


def test_disk_that_fails_is_told_once_and_counted(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "is not there"
    trail = AuditRecorder(place, clock=clock, options=AuditOptions())
    trail.record(AuditAction.LOGIN, actor="user_a")
    trail.record(AuditAction.LOGIN, actor="user_a")
    trail.close()
    warnings = [line for line in our_lines(caplog) if line.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "cannot be written" in warnings[0].message
    assert trail.lost_count == 2


def test_record_that_is_lost_while_the_thread_counts_others_is_counted_too(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The interpreter may run the loop's thread whenever the other one calls a function."""
    trail = AuditRecorder(tmp_path / "is not there", clock=clock, options=AuditOptions())
    trail.close()
    login = AuditRecord(at_ms=1, action=AuditAction.LOGIN)

    class Batch(list[AuditRecord]):
        def __len__(self) -> int:
            trail.write(login)
            return super().__len__()

    trail._write(Batch([login, login]))
    assert trail.lost_count == 3


def test_records_that_wait_for_the_disk_are_bounded(
    trail: AuditRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "WAITING_MAX", 0)
    trail.record(AuditAction.LOGIN, actor="user_a")
    trail.close()
    assert trail.lost_count == 1
    assert read_trail(tmp_path) == []


def test_record_after_the_end_is_logged_and_counted_as_lost(trail: AuditRecorder) -> None:
    trail.close()
    trail.record(AuditAction.LOGIN, actor="user_a")
    assert trail.lost_count == 1
