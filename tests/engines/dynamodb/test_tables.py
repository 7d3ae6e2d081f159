"""Tables as an operator makes, checks and mends them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import EVERY_OPTION, tidewire
from tests.support.dynamodb import a_backdoor, local_options
from tests.support.engines import DynamoHarness
from tests.support.inspectors import verify_engine, violated
from tests.support.kafka import kafka_settings
from tests.support.stack import ensure
from tests.support.world import World
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import CounterMissing, StoreUnavailable, StoreUnusable
from tidewire.domain.events import ChatCreated, PositionsAdvanced
from tidewire.domain.limits import RECOVERY_SEQUENCE_JUMP, RESTORE_SEQUENCE_JUMP
from tidewire.domain.outbox import (
    Lease,
    LeaseTable,
    OutboxKey,
    OutboxRow,
    PersistedMessages,
    Unreadable,
    key_of_commit,
    messages_key,
    shard_of,
)
from tidewire.engines.dynamodb import rows
from tidewire.engines.dynamodb.acts import Locks
from tidewire.engines.dynamodb.database import DELETES_MAX
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.repair import DynamoCounterRepair
from tidewire.engines.dynamodb.restoring import after_restore
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import check_tables, create_tables, disagree
from tidewire.ops.recover import RecoveryOutcome, recover_counter

pytestmark = pytest.mark.slow
"""Tables are made, and commands started."""


async def drop_tables(options: DynamoOptions) -> None:
    async with a_backdoor(options) as database:
        # A page has a hundred, and other tests have tables there, too.
        answer = await database.call("list_tables", ExclusiveStartTableName=options.table_prefix)
        for name in answer["TableNames"]:
            if name.startswith(options.table_prefix):
                await database.call("delete_table", TableName=name)


async def test_tables_are_made_once_and_checked() -> None:
    options = local_options(ensure("dynamodb"), table_prefix="test_making_")
    await drop_tables(options)
    try:
        async with a_backdoor(options) as database:
            assert "messages: there is no such table" in await check_tables(database)
            made = await create_tables(database)
            assert {"messages", "outbox", "epoch"} <= set(made)
            assert await create_tables(database) == []
            assert await check_tables(database) == []
            await database.call("delete_table", TableName="test_making_outbox")
            definition: dict[str, Any] = {
                "AttributeDefinitions": [{"AttributeName": "other", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "other", "KeyType": "HASH"}],
                "BillingMode": "PAY_PER_REQUEST",
            }
            await database.call("create_table", TableName="test_making_outbox", **definition)
            faults = await check_tables(database)
            assert faults
            assert all(fault.startswith("outbox: ") for fault in faults)
    finally:
        await drop_tables(options)


async def test_store_is_not_opened_without_its_tables() -> None:
    options = local_options(ensure("dynamodb"), table_prefix="test_nothing_")
    with pytest.raises(StoreUnusable, match="cluster init"):
        await DynamoStorage.open(options)


async def test_store_that_is_closed_takes_nothing_and_finishes_what_it_had(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    storage = direct.storage
    sending = asyncio.ensure_future(direct.append(direct.draft(chat, anna)))
    await asyncio.sleep(0)
    await storage.close()
    [answer] = await sending
    assert not isinstance(answer, Exception)
    with pytest.raises(StoreUnavailable):
        await storage.roster(chat)
    await storage.close()


async def test_locks_are_forgotten_when_nobody_wants_them() -> None:
    locks = Locks()
    order: list[int] = []

    async def use(number: int) -> None:
        async with locks.held("chat"):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(use(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert len(locks) == 0


async def test_outbox_tells_every_commit_until_it_is_published(direct: World) -> None:
    assert isinstance(direct.storage, DynamoStorage)
    storage = direct.storage
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send_many(chat, anna, 2)
    await direct.send(chat, ben)
    commits = [
        [one for one in commit if not isinstance(one, PositionsAdvanced)]
        for commit in direct.new_commits()
    ]
    logged = [commit for commit in commits if commit]
    shard = shard_of(chat)
    rows_found = await storage.outbox_rows(shard, after=None, count_max=10)
    messages = [one.content for one in rows_found if isinstance(one.content, PersistedMessages)]
    assert [one.sequences for one in messages] == [(1, 2), (3,)]
    assert [type(one.content) for one in rows_found if one.content not in messages] == [ChatCreated]
    first_two = await storage.outbox_rows(shard, after=None, count_max=2)
    assert first_two == rows_found[:2]
    later = await storage.outbox_rows(shard, after=first_two[-1].key.row, count_max=2)
    assert later == rows_found[2:]
    keys = [one.key for one in rows_found]
    assert keys == sorted((key_of_commit(commit) for commit in logged), key=lambda key: key.row)
    events = [await storage.outbox_events(one) for one in rows_found]
    assert sorted(map(str, events)) == sorted(str(list(commit)) for commit in logged)
    await storage.forget_published(keys[:2])
    await storage.forget_published(keys[:1])
    assert await storage.outbox_rows(shard, after=None, count_max=10) == rows_found[2:]


async def test_outbox_row_is_given_whole_or_not_at_all(direct: World) -> None:
    """One message of its commit does not show itself."""
    assert isinstance(direct.storage, DynamoStorage)
    assert isinstance(direct.engine, DynamoHarness)
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send_many(chat, anna, 3)
    found = await direct.storage.outbox_rows(shard_of(chat), after=None, count_max=1)
    events = await direct.storage.outbox_events(found[0])
    assert events is not None
    assert len(events) == 3
    async with a_backdoor(direct.engine.tables.options) as database:
        await database.write(rows.delete("messages", {"chat_id": chat, "sequence": 2}))
    assert await direct.storage.outbox_events(found[0]) is None


async def test_outbox_row_that_cannot_be_read_hides_no_other(direct: World) -> None:
    """Somebody has written into the table by hand."""
    assert isinstance(direct.storage, DynamoStorage)
    assert isinstance(direct.engine, DynamoHarness)
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    shard = shard_of(chat)
    before = await direct.storage.outbox_rows(shard, after=None, count_max=10)
    strange = {"shard": {"N": str(shard)}, "row": {"S": "a"}, "created_at": {"N": "1.5"}}
    async with a_backdoor(direct.engine.tables.options) as database:
        await database.call("put_item", TableName=database.name_of("outbox"), Item=strange)
        found = await direct.storage.outbox_rows(shard, after=None, count_max=10)
        await direct.storage.forget_published([OutboxKey(shard, "a")])
    assert found == [OutboxRow(OutboxKey(shard, "a"), 0, found[0].content), *before]
    assert isinstance(found[0].content, Unreadable)
    assert await direct.storage.outbox_events(found[0]) is None


async def test_rows_are_deleted_in_any_number(direct: World) -> None:
    """More than one request takes; also rows that were never there."""
    assert isinstance(direct.storage, DynamoStorage)
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    for _ in range(3):
        await direct.send(chat, anna)
    keys = [messages_key(chat, sequence) for sequence in range(1, 2 * DELETES_MAX + 2)]
    await direct.storage.forget_published(keys)
    left = await direct.storage.outbox_rows(shard_of(chat), after=None, count_max=10)
    assert [type(one.content) for one in left] == [ChatCreated]


async def test_shard_is_leased_by_one_until_it_runs_out_or_is_released(direct: World) -> None:
    assert isinstance(direct.storage, DynamoStorage)
    storage = direct.storage
    assert await storage.lease_shard(7, "a", until_ms=1_000, now_ms=0)
    assert not await storage.lease_shard(7, "b", until_ms=1_500, now_ms=999)
    assert await storage.lease_shard(7, "a", until_ms=2_000, now_ms=999)
    await storage.release_shards([7], "b")
    assert not await storage.lease_shard(7, "b", until_ms=2_500, now_ms=1_999)
    assert await storage.lease_shard(7, "b", until_ms=3_000, now_ms=2_000)
    table = await storage.lease_table("a", until_ms=3_000, now_ms=2_000)
    assert table == LeaseTable(("a",), (Lease(7, "b", 3_000),))
    await storage.release_shards([7, 8], "b")
    table = await storage.lease_table("b", until_ms=9_000, now_ms=2_500)
    assert table == LeaseTable(("a", "b"), ())
    await storage.leave_relays("a")
    assert await storage.lease_table("b", until_ms=9_000, now_ms=2_500) == LeaseTable(("b",), ())


async def test_first_value_that_processes_agree_on_stays_until_it_is_forgotten(
    direct: World,
) -> None:
    """So a gateway with another key for tokens than the first one is refused."""
    storage = direct.storage
    assert isinstance(storage, DynamoStorage)
    assert await storage.agree("token_key", "first") == "first"
    assert await storage.agree("token_key", "other") == "first"
    assert await storage.agree("token_key", "first") == "first"
    assert isinstance(direct.engine, DynamoHarness)
    async with a_backdoor(direct.engine.tables.options) as database:
        await disagree(database, "token_key")
    assert await storage.agree("token_key", "other") == "other"


# Recovery.


async def test_counter_is_recovered_beside_a_running_store(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    head = await direct.send_many(chat, anna, 3)
    await direct.engine.drop_counter(chat)
    assert isinstance(await direct.try_send(chat, ben), CounterMissing)
    assert isinstance(direct.engine, DynamoHarness)
    options = direct.engine.tables.options

    def recover(*, apply: bool) -> tuple[RecoveryOutcome, int]:
        repair = DynamoCounterRepair(options)
        try:
            done = recover_counter(repair, chat, apply=apply, now_ms=direct.now())
        finally:
            repair.close()
        return done.outcome, done.counter

    expected = head + RECOVERY_SEQUENCE_JUMP
    assert recover(apply=False) == (RecoveryOutcome.WOULD_RECOVER, expected)
    assert await direct.engine.counter(chat) is None
    assert recover(apply=True) == (RecoveryOutcome.RECOVERED, expected)
    assert recover(apply=True) == (RecoveryOutcome.NOTHING_TO_DO, expected)
    answer = await direct.send(chat, ben)
    assert (answer.sequence, answer.prev_sequence) == (expected + 1, head)


async def test_tables_of_different_age_agree_after_a_restore(direct: World) -> None:
    """The messages lost their last one; a membership, a head and a position did not."""
    anna, ben, cleo = await direct.people(3)
    chat = await direct.group(anna, ben)
    await direct.send_many(chat, anna, 3)
    for user in (anna, ben):
        await direct.read(user, chat, 3)
    await direct.add(anna, chat, cleo)
    assert isinstance(direct.engine, DynamoHarness)
    options = direct.engine.tables.options
    async with a_backdoor(options) as database:
        await database.write(rows.delete("messages", {"chat_id": chat, "sequence": 3}))
        await database.write(rows.delete("user_chats", {"user_id": cleo, "chat_id": chat}))
        stray: rows.Row = {
            "user_id": cleo,
            "chat_id": "chat_x",
            "chat_type": "group",
            "joined_at": 1,
        }
        await database.write(rows.put("user_chats", stray))
    assert violated(verify_engine(direct.engine)) != []
    before = direct.storage.epoch
    done = await asyncio.to_thread(
        after_restore, options, now_ms=direct.now(), keep_sessions=False, progress=_ignore
    )
    assert (done.chats, done.heads_moved, done.positions_lowered) == (1, 1, 2)
    assert done.memberships_listed == 2
    assert done.events_forgotten > 0
    storage = direct.storage
    assert isinstance(storage, DynamoStorage)
    assert await storage.outbox_rows(shard_of(chat), after=None, count_max=10) == []
    assert violated(verify_engine(direct.engine)) == []
    await direct.engine.reopen()
    assert direct.storage.epoch == done.epoch != before
    assert await direct.positions(ben, chat) == Positions(2, 2)
    assert (await direct.entry(cleo, chat)).joined_sequence == 2
    answer = await direct.send(chat, ben)
    assert (answer.sequence, answer.prev_sequence) == (3 + RESTORE_SEQUENCE_JUMP + 1, 2)


def _ignore(_done: int, _total: int) -> None: ...


async def test_commands_work_on_the_cluster_of_the_settings(
    direct: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(direct.engine, DynamoHarness)
    options = direct.engine.tables.options
    settings: dict[str, Any] = {
        "ENDPOINT_URL": options.endpoint_url,
        "REGION": options.region,
        "ACCESS_KEY": "local",
        "SECRET_KEY": "local",
        "TABLE_PREFIX": options.table_prefix,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"TIDEWIRE_DYNAMODB_{name}", value)
    monkeypatch.setenv("TIDEWIRE_DATA_DIR", str(tmp_path))
    # The log of a cluster has tests of its own, in tests/engines/kafka.
    for name, value in kafka_settings().items():
        monkeypatch.setenv(name, value)
    redis_port = ensure("redis")
    monkeypatch.setenv("TIDEWIRE_REDIS_URL", f"redis://127.0.0.1:{redis_port}/0")
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    assert "Made: topic" in tidewire("cluster", "init", program=EVERY_OPTION).out
    assert "Nothing to do" in tidewire("cluster", "init", program=EVERY_OPTION).out
    assert "as they must be" in tidewire("cluster", "check", program=EVERY_OPTION).out
    assert tidewire("cluster", "upgrade", program=EVERY_OPTION).exit_code == 2
    assert "Nothing to do" in tidewire("cluster", "upgrade", "--apply", program=EVERY_OPTION).out
    assert "All is well: 1 messages" in tidewire("verify", "--cluster", program=EVERY_OPTION).out
    await direct.engine.drop_counter(chat)
    told = tidewire("recover-counter", "--cluster", chat, "--apply", program=EVERY_OPTION)
    assert "Recovered" in told.out
    assert tidewire("cluster", "after-restore", program=EVERY_OPTION).exit_code == 2
    assert "1 chats" in tidewire("cluster", "after-restore", "--apply", program=EVERY_OPTION).out
