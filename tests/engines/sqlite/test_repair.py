"""A counter is put back in one transaction, under the directory's lock, with its audit fields."""

from pathlib import Path

import pytest

from tests.engines.sqlite.inspected import edited, one, populate, verify_file, violated
from tests.engines.sqlite.store import Stores, store_of
from tests.support.world import World
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import RECOVERY_SEQUENCE_JUMP
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.engines.sqlite.repair import SqliteCounterRepair
from tidewire.ops.recover import InconsistentCounter, NoSuchChat, RecoveryOutcome, recover_counter
from tidewire.ports.inspection import CounterEvidence, NewCounter

NOW_MS = 1_900_000_000_000
COUNTERS = "SELECT * FROM chat_counters ORDER BY chat_id"


@pytest.fixture
async def world(stores: Stores) -> World:
    return await stores.open()


@pytest.fixture
async def damaged(world: World) -> tuple[Path, ChatId]:
    """A stopped store whose group has 40 messages and no counter."""
    group, _, _ = await populate(world)
    await world.engine.drop_counter(group)
    await world.engine.close()
    return store_of(world).path, group


async def test_counter_comes_back_and_the_chat_takes_messages(
    damaged: tuple[Path, ChatId], world: World
) -> None:
    path, group = damaged
    assert violated(verify_file(path)) == ["counter_must_exist"]
    done = recover_counter(SqliteCounterRepair(path), group, apply=True, now_ms=NOW_MS)
    assert done.outcome is RecoveryOutcome.RECOVERED
    with edited(path) as database:
        row = database.execute("SELECT * FROM chat_counters WHERE chat_id = ?", (group,)).fetchone()
    counter = 40 + RECOVERY_SEQUENCE_JUMP
    assert row == (group, counter, NOW_MS, NOW_MS, NOW_MS, 40)
    assert violated(verify_file(path)) == []

    await world.engine.open()
    owner = one(path, "SELECT user_id FROM chat_memberships WHERE role = 'owner'")
    appended = await world.send(group, owner)
    assert (appended.sequence, appended.prev_sequence) == (counter + 1, 40)


def test_without_apply_nothing_is_written(damaged: tuple[Path, ChatId]) -> None:
    path, group = damaged
    before = path.read_bytes()
    done = recover_counter(SqliteCounterRepair(path), group, apply=False, now_ms=NOW_MS)
    assert done.outcome is RecoveryOutcome.WOULD_RECOVER
    assert done.evidence == CounterEvidence(True, None, 40, 12)
    assert path.read_bytes() == before


def test_positions_of_those_who_left_are_evidence_too(damaged: tuple[Path, ChatId]) -> None:
    path, group = damaged
    with edited(path) as database:
        database.execute(
            "UPDATE delivery_state SET last_acked_sequence = 99"
            " WHERE chat_id = ? AND joined_sequence IS NULL",
            (group,),
        )
        assert database.changes() == 1
    assert SqliteCounterRepair(path).evidence(group) == CounterEvidence(True, None, 40, 99)


def test_second_recovery_does_nothing(damaged: tuple[Path, ChatId]) -> None:
    path, group = damaged
    repair = SqliteCounterRepair(path)
    first = recover_counter(repair, group, apply=True, now_ms=NOW_MS)
    second = recover_counter(repair, group, apply=True, now_ms=NOW_MS + 1)
    assert second.outcome is RecoveryOutcome.NOTHING_TO_DO
    assert second.counter == first.counter


@pytest.mark.parametrize("apply", [False, True])
def test_counter_that_is_too_low_is_not_touched(damaged: tuple[Path, ChatId], apply: bool) -> None:
    path, group = damaged
    with edited(path) as database:
        database.execute("INSERT INTO chat_counters VALUES (?, 39, 1, 1, NULL, NULL)", (group,))
        before = database.execute(COUNTERS).fetchall()
    with pytest.raises(InconsistentCounter):
        recover_counter(SqliteCounterRepair(path), group, apply=apply, now_ms=NOW_MS)
    with edited(path) as database:
        assert database.execute(COUNTERS).fetchall() == before


@pytest.mark.parametrize("apply", [False, True])
def test_chat_that_does_not_exist_gets_no_counter(
    damaged: tuple[Path, ChatId], apply: bool
) -> None:
    path, _ = damaged
    with pytest.raises(NoSuchChat):
        recover_counter(SqliteCounterRepair(path), ChatId("chat_x"), apply=apply, now_ms=NOW_MS)
    assert one(path, "SELECT count(*) FROM chat_counters WHERE chat_id = 'chat_x'") == 0


def test_running_server_is_left_alone(damaged: tuple[Path, ChatId]) -> None:
    path, group = damaged
    repair = SqliteCounterRepair(path)
    with DataDirectoryLock(path.parent):
        with pytest.raises(StoreUnusable, match="stop that process first"):
            recover_counter(repair, group, apply=True, now_ms=NOW_MS)
        # To look is allowed.
        done = recover_counter(repair, group, apply=False, now_ms=NOW_MS)
    assert done.outcome is RecoveryOutcome.WOULD_RECOVER
    assert one(path, "SELECT count(*) FROM chat_counters") == 4


def test_counter_is_put_only_if_it_is_absent(damaged: tuple[Path, ChatId]) -> None:
    """Whatever is decided: a row that is there stays as it is."""
    path, group = damaged
    recover_counter(SqliteCounterRepair(path), group, apply=True, now_ms=NOW_MS)
    with edited(path) as database:
        before = database.execute(COUNTERS).fetchall()
    with pytest.raises(AssertionError, match="seen to be missing"):
        SqliteCounterRepair(path).repair_counter(group, lambda evidence: NewCounter(1, 1, NOW_MS))
    with edited(path) as database:
        assert database.execute(COUNTERS).fetchall() == before


def test_damaged_file_is_told(damaged: tuple[Path, ChatId]) -> None:
    path, group = damaged
    path.write_bytes(b"not a database " * 500)
    repair = SqliteCounterRepair(path)
    with pytest.raises(StoreUnusable, match="tidewire verify"):
        recover_counter(repair, group, apply=False, now_ms=NOW_MS)
    with pytest.raises(StoreUnusable, match="damaged"):
        recover_counter(repair, group, apply=True, now_ms=NOW_MS)


def test_missing_database_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no database"):
        SqliteCounterRepair(tmp_path / DATABASE_NAME)
    assert list(tmp_path.iterdir()) == []


async def test_new_store_needs_no_repair(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path)
    await storage.close()
    with pytest.raises(NoSuchChat):
        recover_counter(
            SqliteCounterRepair(tmp_path / DATABASE_NAME),
            ChatId("chat_x"),
            apply=False,
            now_ms=NOW_MS,
        )
