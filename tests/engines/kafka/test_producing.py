"""The writing end at its bounds: a full queue, a closed log, a client that is beyond help."""

import asyncio

import pytest
from confluent_kafka import KafkaError

from tests.engines.kafka.conftest import OpenLog, OpenReader
from tests.support.kafka import local_options
from tests.support.pushing import published
from tests.unit.ingest.events import a_deletion, a_message
from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka import producer
from tidewire.engines.kafka.options import KafkaOptions

PORT_OF_NOBODY = 1


async def test_full_queue_refuses_at_once_and_has_room_again_later(open_log: OpenLog) -> None:
    log = open_log(local_options(PORT_OF_NOBODY, queue_records_max=5, delivery_ms=500))
    waiting = [asyncio.ensure_future(published(log, [a_message(n)])) for n in range(1, 6)]
    await asyncio.sleep(0)
    assert log.queued == 5
    with pytest.raises(LogUnavailable, match="too many"):
        await published(log, [a_message(6)])
    assert not any(one.done() for one in waiting)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, LogUnavailable) for outcome in outcomes)
    assert (log.counters.refused, log.counters.failed) == (1, 5)
    with pytest.raises(LogUnavailable, match="too long"):
        await published(log, [a_message(7)])


async def test_commit_that_finds_room_for_a_part_of_it_fails_as_a_whole(open_log: OpenLog) -> None:
    """Its answer comes when nothing of it is under way any more."""
    log = open_log(local_options(PORT_OF_NOBODY, queue_records_max=2, delivery_ms=300))
    publishing = asyncio.ensure_future(published(log, [a_message(n) for n in range(1, 4)]))
    await asyncio.sleep(0)
    assert log.queued == 2
    with pytest.raises(LogUnavailable):
        await publishing
    assert log.queued == 0
    assert (log.counters.refused, log.counters.failed) == (1, 2)


async def test_closed_log_takes_nothing(open_log: OpenLog, options: KafkaOptions) -> None:
    log = open_log(options)
    publishing = asyncio.ensure_future(published(log, [a_message(1)]))
    await asyncio.sleep(0)
    await log.close()
    await publishing
    with pytest.raises(LogUnavailable, match="closed"):
        await published(log, [a_message(2)])
    await log.close()


async def test_close_does_not_wait_long_for_brokers_that_are_gone(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "CLOSE_S_MAX", 0.1)
    log = open_log(local_options(PORT_OF_NOBODY, delivery_ms=50_000))
    publishing = asyncio.ensure_future(published(log, [a_message(1), a_message(2)]))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await log.close()
        with pytest.raises(LogUnavailable):
            await publishing


async def test_deleted_text_that_waits_for_the_brokers_is_taken_back(open_log: OpenLog) -> None:
    """Its publisher is told that the log may not have it: the relays publish what is stored."""
    log = open_log(local_options(PORT_OF_NOBODY, delivery_ms=50_000))
    waiting = [asyncio.ensure_future(published(log, [a_message(n)])) for n in (1, 2)]
    await asyncio.sleep(0)
    deletion = a_deletion(1, 3)
    log.withdraw([deletion.message])
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, LogUnavailable) for outcome in outcomes)
    assert (log.queued, log.counters.withdrawn, log.counters.fatal) == (0, 1, 0)


async def test_deleted_text_that_arrives_by_itself_disturbs_nothing(
    open_log: OpenLog,
    open_reader: OpenReader,
    options: KafkaOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what is published afterwards, however old it is, has no text any more."""
    monkeypatch.setattr(producer, "WITHDRAW_S", 0.0)
    log = open_log(options)
    await published(log, [a_message(1)])
    log.withdraw([a_deletion(1, 3).message])
    await asyncio.sleep(0.05)
    await published(log, [a_message(1), a_message(2)])
    assert log.counters.withdrawn == 0
    reader = open_reader(options)
    values: list[bytes] = []
    while len(values) < 3:
        values += [record.value or b"" for record in await reader.read()]
    assert sorted(b'"hello"' in value for value in values) == [False, True, True]
    assert sorted(b'"is_deleted":true' in value for value in values) == [False, False, True]


async def test_log_that_closes_does_not_wait_for_a_deleted_text(open_log: OpenLog) -> None:
    log = open_log(local_options(PORT_OF_NOBODY, delivery_ms=50_000))
    waiting = asyncio.ensure_future(published(log, [a_message(1)]))
    await asyncio.sleep(0)
    log.withdraw([a_deletion(1, 2).message])
    async with asyncio.timeout(producer.CLOSE_S_MAX):
        await log.close()
    with pytest.raises(LogUnavailable):
        await waiting


async def test_client_that_is_beyond_help_is_made_anew(
    open_log: OpenLog, open_reader: OpenReader, options: KafkaOptions
) -> None:
    """What it held is reported as failed, or as done if it got through."""
    log = open_log(options)
    await published(log, [a_message(1)])
    held = asyncio.ensure_future(published(log, [a_message(2)]))
    await asyncio.sleep(0)
    log._failed(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the test says so", fatal=True))
    await published(log, [a_message(3)])
    assert log.counters.fatal == 1
    [outcome] = await asyncio.gather(held, return_exceptions=True)
    assert outcome is None or isinstance(outcome, LogUnavailable)


async def test_client_that_has_given_up_on_the_brokers_is_made_anew(
    open_log: OpenLog, options: KafkaOptions
) -> None:
    log = open_log(options)
    await published(log, [a_message(1)])
    log._told_statistics('{"brokers": {}}')
    await published(log, [a_message(2)])
    assert log.counters.fatal == 1


async def test_topic_that_is_missing_is_told_and_others_work(
    open_log: OpenLog, options: KafkaOptions
) -> None:
    """Nothing is made on the way: topics are an operator's affair."""
    lost = local_options(int(options.bootstrap_servers[0].rpartition(":")[2]), delivery_ms=2_000)
    log = open_log(lost)
    with pytest.raises(LogUnavailable):
        await published(log, [a_message(1)])
