"""The file of a client: whose it is, who may open it, and what a restore of the server does."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.client.people import QUICK, People, restore_with_keys
from tests.e2e.chatting import PASSWORD
from tests.unit.client.stage import CHAT, ME, entry, item, key
from tidewire.client import Client, ClientError, StoreUnusable
from tidewire.client.effects import Keep
from tidewire.client.outbox import FAILED
from tidewire.client.replica import Replica, ReplicaRecord
from tidewire.client.schema import MEMORY
from tidewire.client.store import Store
from tidewire.client.tables import HAPPENINGS_MAX, Tables
from tidewire.domain.chats import ChatType

REPLICA = Replica(chat_id=CHAT, chat_type=ChatType.GROUP, waiting_max=1)


def record(**fields: Any) -> ReplicaRecord:
    return ReplicaRecord(chat_id=CHAT, chat_type=ChatType.GROUP, **fields)


def keep(tables: Tables, *sequences: int, through: int | None = None, last: bool = False) -> None:
    items = [item(n, 0, sender=ME if n % 2 else "them") for n in sequences]  # type: ignore[arg-type]
    kept_through = through or max(sequences, default=0)
    tables.keep([Keep(REPLICA, items, kept_through, 0, is_complete=last)], ME)


def sequences(tables: Tables) -> list[int]:
    kept = tables.messages(CHAT, before=None, after=0, limit=100, newest_first=False)
    return [one.sequence for one in kept]


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(MEMORY if request.param == "memory" else str(tmp_path / "x.db"))


async def test_store_holds_each_message_once_in_order_with_its_cursor(store: Store) -> None:
    await store.do(lambda tables: tables.save_replicas([record()]))
    await store.do(lambda tables: keep(tables, 1, 2, 3))
    await store.do(lambda tables: keep(tables, 3, 4))
    assert await store.do(sequences) == [1, 2, 3, 4]
    [held] = await store.do(lambda tables: tables.replicas())
    assert held.cursor == 4
    await store.close()


async def test_own_message_takes_its_entry_out_of_the_outbox(store: Store) -> None:
    await store.do(lambda tables: tables.save_replicas([record()]))
    assert await store.do(lambda tables: tables.put_entries([entry(1), entry(2)])) == {}
    own = item(1, sender=ME, client_message_id=key(1))
    await store.do(lambda tables: tables.keep([Keep(REPLICA, [own], 1, 0)], ME))
    [left] = await store.do(lambda tables: tables.entries())
    assert left == entry(2)
    known = await store.do(lambda tables: tables.put_entries([entry(1), entry(3)]))
    assert list(known) == [key(1)]
    assert [one.number for one in await store.do(lambda tables: tables.entries())] == [2, 3]
    await store.close()


async def test_entries_keep_their_state(store: Store) -> None:
    await store.do(lambda tables: tables.save_entries([entry(1, left_at_ms=None)]))
    await store.do(lambda tables: tables.mark_left([key(1)], 77))
    await store.do(lambda tables: tables.mark_left([key(1)], 99))
    [one] = await store.do(lambda tables: tables.entries())
    assert one.left_at_ms == 77
    failed = entry(1, state=FAILED, code="FORBIDDEN", reason="no")
    await store.do(lambda tables: tables.save_entries([failed]))
    assert await store.do(lambda tables: tables.entries()) == [failed]
    await store.do(lambda tables: tables.drop_entries([key(1)]))
    assert await store.do(lambda tables: tables.entries()) == []
    await store.close()


async def test_message_that_the_server_lost_is_marked_and_stays(store: Store) -> None:
    await store.do(lambda tables: tables.save_replicas([record()]))
    await store.do(lambda tables: keep(tables, 1, 2, 3, 4, 5))
    await store.do(lambda tables: tables.restart([record()], "two"))
    assert await store.do(lambda tables: tables.meta("epoch")) == "two"
    await store.do(lambda tables: keep(tables, 1, 2))
    await store.do(lambda tables: keep(tables, 3, 900, last=True))
    assert await store.do(sequences) == [1, 2, 3, 900]
    gone = await store.do(lambda tables: tables.gone(CHAT, 10))
    assert [one.sequence for one in gone] == [4, 5]
    events, _ = await store.do(lambda tables: tables.next_events(0, 100))
    assert len(events) == 6
    # The doubt is over: what comes now is new.
    await store.do(lambda tables: keep(tables, 901))
    assert (await store.do(sequences))[-1] == 901
    await store.close()


async def test_restore_that_left_nothing_marks_everything(store: Store) -> None:
    await store.do(lambda tables: tables.save_replicas([record()]))
    await store.do(lambda tables: keep(tables, 1, 2))
    await store.do(lambda tables: tables.restart([record()], None))
    await store.do(lambda tables: keep(tables, through=0, last=True))
    assert await store.do(sequences) == []
    assert len(await store.do(lambda tables: tables.gone(CHAT, 10))) == 2
    await store.close()


async def test_events_other_than_messages_are_bounded(store: Store) -> None:
    def many(tables: Tables) -> None:
        for number in range(HAPPENINGS_MAX + 5):
            tables.happened("chat", str(number))

    await store.do(many)
    events, _ = await store.do(lambda tables: tables.next_events(0, 3))
    assert [event.position for event in events] == [6, 7, 8]
    await store.do(lambda tables: tables.confirm(7))
    events, _ = await store.do(lambda tables: tables.next_events(0, 1))
    assert [event.position for event in events] == [8]
    await store.close()


async def test_refusal_of_one_job_is_for_its_caller_only(store: Store) -> None:
    def refuse(_: Tables) -> None:
        raise ClientError("no")

    refused = store.do(refuse)
    done = store.do(lambda tables: tables.set_meta(x=1))
    with pytest.raises(ClientError, match="no"):
        await refused
    await done
    await store.close()


async def test_store_that_failed_takes_nothing_more_in(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "x.db"))

    def fail(tables: Tables) -> None:
        tables.set_meta(x=1)
        raise OSError("the disk is on fire")

    with pytest.raises(StoreUnusable, match="on fire"):
        await store.do(fail)
    with pytest.raises(StoreUnusable, match="on fire"):
        await store.do(lambda tables: tables.meta("x"))
    await store.close()
    again = Store(str(tmp_path / "x.db"))
    assert await again.do(lambda tables: tables.meta("x")) is None
    await again.close()


async def test_client_whose_store_fails_is_closed_and_says_why(people: People) -> None:
    alice, _, chat = await people.pair()

    def fail(_: Tables) -> None:
        raise OSError("the disk is on fire")

    with pytest.raises(StoreUnusable):
        await alice.driver.store.do(fail)
    with pytest.raises(ClientError):
        await chat.send("hi")
    async with asyncio.timeout(10):
        assert str(await alice.wait_closed()) == "closed(store_failed)"


async def test_store_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    store = Store(path)
    with pytest.raises(StoreUnusable, match="in use by another process"):
        Store(path)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnusable, match="closed"):
        await store.do(lambda tables: tables.meta("x"))
    await Store(path).close()


async def test_store_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    import apsw

    foreign = tmp_path / "foreign.db"
    database = apsw.Connection(str(foreign))
    database.execute("CREATE TABLE x (y)")
    database.close()
    with pytest.raises(StoreUnusable, match="some other program"):
        Store(str(foreign))
    newer = tmp_path / "newer.db"
    await Store(str(newer)).close()
    database = apsw.Connection(str(newer))
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreUnusable, match="newer Tidewire"):
        Store(str(newer))
    noise = tmp_path / "noise.db"
    noise.write_bytes(b"noise" * 1000)
    with pytest.raises(StoreUnusable):
        Store(str(noise))
    with pytest.raises(StoreUnusable, match="cannot open"):
        Store(str(tmp_path / "nowhere" / "x.db"))


async def test_store_belongs_to_one_user_one_server_and_one_device(people: People) -> None:
    await people.register("alice")
    bobs_name = await people.register("bob")
    path = people.store("alice")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    url = people.site.url
    with pytest.raises(StoreUnusable, match="belongs to the user"):
        await Client.login(url, bobs_name, PASSWORD, store=path)
    with pytest.raises(StoreUnusable, match="belongs to the server"):
        async with Client("http://127.0.0.1:9", store=path):
            pass
    bob = await people.open("bob")
    token = await bob._credentials.token(False)
    with pytest.raises(StoreUnusable, match="each device needs a store"):
        async with Client(url, store=path, token=token):
            pass
    # It is none the worse for it.
    await people.open("alice")


async def test_address_has_to_be_one() -> None:
    for url in ("chat.example.org", "ftp://x", "https://"):
        with pytest.raises(ClientError, match="no address"):
            Client(url)


async def test_restored_server_is_noticed(tmp_path: Path) -> None:
    """A backup is restored under the client: what was lost is marked, the rest goes on."""
    from tests.e2e.chatting import Site
    from tidewire.engines.sqlite.backup import backup

    data, copy = tmp_path / "data", tmp_path / "copy.db"
    with Site(data) as site:
        alice = await Client.register(
            site.url, "al", PASSWORD, store=tmp_path / "al.db", options=QUICK
        )
        await (await Client.register(site.url, "bo", PASSWORD)).close()
        async with alice:
            chat = await alice.direct("bo")
            await (await chat.send("kept")).stored()
            await asyncio.to_thread(site.kill)
            await asyncio.to_thread(backup, data, copy, lambda *_: None)
            await asyncio.to_thread(site.start)
            alice_again = Client(site.url, store=tmp_path / "al.db", options=QUICK, moved=True)
        async with alice_again as alice:
            await alice.ready()
            await (await alice.chat(chat.chat_id).send("lost")).stored()
            await asyncio.to_thread(site.kill)
    await asyncio.to_thread(restore_with_keys, copy, data, tmp_path / "restored")
    with Site(tmp_path / "restored") as site:
        alice = await Client.login(
            site.url, "al", PASSWORD, store=tmp_path / "al.db", options=QUICK, moved=True
        )
        async with alice:
            await alice.ready()
            mine = alice.chat(chat.chat_id)
            sent = await mine.send("new")
            assert await sent.stored() > 1 << 20
            await alice.driver.writing.flushed()
            assert [message.text for message in await mine.messages()] == ["kept", "new"]
            assert [message.text for message in await mine.lost()] == ["lost"]
