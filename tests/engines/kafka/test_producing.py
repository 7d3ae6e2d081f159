"""The writing end at its bounds: a full queue, a closed log, a client that is beyond help."""

import asyncio

import pytest
from confluent_kafka import KafkaError

from tests.engines.kafka.conftest import OpenLog, OpenReader
from tests.support.kafka import local_options
from tests.unit.ingest.events import a_message
from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka import producer
from tidewire.engines.kafka.options import KafkaOptions

PORT_OF_NOBODY = 1


async def test_full_queue_refuses_at_once_and_has_room_again_later(open_log: OpenLog) -> None:
    log = open_log(local_options(PORT_OF_NOBODY, queue_records_max=5, delivery_ms=500))
    waiting = [asyncio.ensure_future(log.publish([a_message(n)])) for n in range(1, 6)]
    await asyncio.sleep(0)
    assert log.queued == 5
    with pytest.raises(LogUnavailable, match="too many"):
        await log.publish([a_message(6)])
    assert not any(one.done() for one in waiting)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, LogUnavailable) for outcome in outcomes)
    assert (log.counters.refused, log.counters.failed) == (1, 5)
    with pytest.raises(LogUnavailable, match="too long"):
        await log.publish([a_message(7)])


async def test_commit_that_finds_room_for_a_part_of_it_fails_as_a_whole(open_log: OpenLog) -> None:
    """Its answer comes when nothing of it is under way any more."""
    log = open_log(local_options(PORT_OF_NOBODY, queue_records_max=2, delivery_ms=300))
    publishing = asyncio.ensure_future(log.publish([a_message(n) for n in range(1, 4)]))
    await asyncio.sleep(0)
    assert log.queued == 2
    with pytest.raises(LogUnavailable):
        await publishing
    assert log.queued == 0
    assert (log.counters.refused, log.counters.failed) == (1, 2)


async def test_closed_log_takes_nothing(open_log: OpenLog, options: KafkaOptions) -> None:
    log = open_log(options)
    publishing = asyncio.ensure_future(log.publish([a_message(1)]))
    await asyncio.sleep(0)
    await log.close()
    await publishing
    with pytest.raises(LogUnavailable, match="closed"):
        await log.publish([a_message(2)])
    await log.close()


async def test_close_does_not_wait_long_for_brokers_that_are_gone(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "CLOSE_S_MAX", 0.1)
    log = open_log(local_options(PORT_OF_NOBODY, delivery_ms=50_000))
    publishing = asyncio.ensure_future(log.publish([a_message(1), a_message(2)]))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await log.close()
        with pytest.raises(LogUnavailable):
            await publishing


async def test_client_that_is_beyond_help_is_made_anew(
    open_log: OpenLog, open_reader: OpenReader, options: KafkaOptions
) -> None:
    """What it held is reported as failed, or as done if it got through."""
    log = open_log(options)
    await log.publish([a_message(1)])
    held = asyncio.ensure_future(log.publish([a_message(2)]))
    await asyncio.sleep(0)
    log._failed(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the test says so", fatal=True))
    await log.publish([a_message(3)])
    assert log.counters.fatal == 1
    [outcome] = await asyncio.gather(held, return_exceptions=True)
    assert outcome is None or isinstance(outcome, LogUnavailable)


async def test_client_that_has_given_up_on_the_brokers_is_made_anew(
    open_log: OpenLog, options: KafkaOptions
) -> None:
    log = open_log(options)
    await log.publish([a_message(1)])
    log._told_statistics('{"brokers": {}}')
    await log.publish([a_message(2)])
    assert log.counters.fatal == 1


async def test_topic_that_is_missing_is_told_and_others_work(
    open_log: OpenLog, options: KafkaOptions
) -> None:
    """Nothing is made on the way: topics are an operator's affair."""
    lost = local_options(int(options.bootstrap_servers[0].rpartition(":")[2]), delivery_ms=2_000)
    log = open_log(lost)
    with pytest.raises(LogUnavailable):
        await log.publish([a_message(1)])
