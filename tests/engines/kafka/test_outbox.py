"""From the commit into the log, whatever dies in between: DynamoDB Local and a real broker."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from tests.engines.kafka import gateway as gateways
from tests.engines.kafka.conftest import OpenReader
from tests.engines.kafka.gateway import Gateway, a_gateway, eventually, killed
from tests.support.kafka import an_own_broker, local_options
from tests.support.stack import ensure
from tidewire.domain.events import ChatCreated, LoggedEvent, MessageAppended
from tidewire.domain.ids import ChatId
from tidewire.domain.outbox import SHARDS
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.kafka import producer
from tidewire.engines.kafka.consumer import KafkaLogReader
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.topics import create_topics
from tidewire.wire.event_records import RecordRefusal, UnknownRecord, decode_record, event_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
"""Processes and brokers are started and killed."""


@pytest.fixture
async def dynamodb() -> DynamoOptions:
    return await gateways.tables(ensure("dynamodb"))


async def has_no_rows(gateway: Gateway, chat_id: ChatId) -> bool:
    return await gateway.rows_left(chat_id) == 0


class Listening:
    """What is in the log, from its beginning."""

    def __init__(self, reader: KafkaLogReader) -> None:
        self._reader = reader
        self.events: list[LoggedEvent] = []

    def sequences(self, chat_id: ChatId) -> list[int]:
        """As they lie in the log, those that are in it twice too."""
        messages = [one.message for one in self.events if isinstance(one, MessageAppended)]
        return [message.sequence for message in messages if message.chat_id == chat_id]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            for one in await self._reader.read():
                record = decode_record(one.value or b"")
                assert not isinstance(record, RecordRefusal | UnknownRecord)
                self.events.append(event_of(record))


async def test_commit_is_in_the_log_at_once_and_its_row_goes(
    dynamodb: DynamoOptions, options: KafkaOptions, open_reader: OpenReader
) -> None:
    listening = Listening(open_reader(options))
    async with a_gateway(dynamodb, options, "one", runs_relay=False) as gateway:
        chat, sender = await gateway.a_chat()
        assert await gateway.send(chat, sender, 3) == [1, 2, 3]
        assert await gateway.publisher.drain(20_000)
        assert await gateway.rows_left(chat) == 0
        await listening.until(lambda: len(listening.events) == 4)
        assert listening.sequences(chat) == [1, 2, 3]
        assert any(isinstance(event, ChatCreated) for event in listening.events)


async def test_commits_of_a_process_killed_before_publishing_reach_the_log_by_a_relay(
    dynamodb: DynamoOptions, options: KafkaOptions, open_reader: OpenReader
) -> None:
    async with a_gateway(dynamodb, options, "one", runs_relay=False) as gateway:
        chat, sender = await gateway.a_chat()
        dying = await asyncio.to_thread(
            gateways.start, "commit", dynamodb, options, chat_id=chat, sender=sender
        )
        assert dying.stdout is not None
        assert await asyncio.to_thread(dying.stdout.readline) == "committed 3\n"
        killed(dying)
        assert await gateway.publisher.drain(20_000)
        assert await gateway.rows_left(chat) == 1
    async with a_gateway(dynamodb, options, "two") as gateway:
        listening = Listening(open_reader(options))
        await listening.until(lambda: len(set(listening.sequences(chat))) == 3)
        await eventually(partial(has_no_rows, gateway, chat))
        assert gateway.relay.counters.rows_published >= 1


async def test_sends_go_on_while_the_broker_is_gone_and_all_is_published_when_it_is_back(
    dynamodb: DynamoOptions,
) -> None:
    with an_own_broker() as broker:
        options = local_options(broker.port, delivery_ms=1_500)
        create_topics(options)
        async with a_gateway(dynamodb, options, "one") as gateway:
            chat, sender = await gateway.a_chat()
            with broker.standing_still():
                # Longer than the producer waits: a busy broker may be that slow by itself.
                sent = await gateway.send(chat, sender)
                await eventually(lambda: gateway.publisher.counters.failed > 0)
            await eventually(partial(has_no_rows, gateway, chat))
            failed, faults = gateway.publisher.counters.failed, gateway.relay.counters.faults
            reader = KafkaLogReader(options, reader_id="reader")
            read = list(await reader.read())
            while not read:
                read += await reader.read()
            await asyncio.to_thread(broker.stop)
            for _ in range(10):
                sent += await gateway.send(chat, sender, 2)
            await eventually(lambda: gateway.publisher.counters.failed == failed + 10)
            await eventually(lambda: gateway.relay.counters.faults > faults)
            assert await gateway.rows_left(chat) == 10
            assert gateway.relay.outbox_oldest_seconds > 0
            assert not gateway.log.is_reached
            # Offsets are committed when the broker is back: nobody else is held up by it.
            committing = asyncio.ensure_future(reader.commit(read))
            await asyncio.to_thread(broker.start)
            await committing
            listening = Listening(reader)
            await listening.until(lambda: set(listening.sequences(chat)) >= set(sent[1:]))
            await reader.close()
            await eventually(partial(has_no_rows, gateway, chat))
            await eventually(lambda: gateway.relay.outbox_oldest_seconds == 0)
            assert gateway.log.is_reached


async def test_text_that_waits_for_the_log_is_not_published_after_its_deletion(
    dynamodb: DynamoOptions, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log cannot take anything for a while, here because its topics are not made yet."""
    monkeypatch.setattr(producer, "WITHDRAW_S", 0.0)
    options = local_options(ensure("kafka"), delivery_ms=60_000)
    async with a_gateway(dynamodb, options, "one") as gateway:
        chat, sender = await gateway.a_chat()
        [target, kept] = await gateway.send(chat, sender, 2)
        assert gateway.log.queued > 0
        deletion = await gateway.delete(chat, sender, target)
        await asyncio.to_thread(create_topics, options)
        listening = Listening(open_reader(options))
        await listening.until(lambda: {*listening.sequences(chat)} == {target, kept, deletion})
        await eventually(partial(has_no_rows, gateway, chat))
        messages = [one.message for one in listening.events if isinstance(one, MessageAppended)]
        assert {one.sequence: (one.content, one.deleted_by) for one in messages} == {
            target: ("", deletion),
            kept: ("hello", None),
            deletion: ("", None),
        }


async def test_two_processes_share_the_shards_and_one_takes_over_when_the_other_is_killed(
    dynamodb: DynamoOptions, options: KafkaOptions
) -> None:
    other = await asyncio.to_thread(gateways.start, "relay", dynamodb, options, name="other")
    try:
        assert other.stdout is not None
        assert await asyncio.to_thread(other.stdout.readline) == "leases\n"
        async with a_gateway(dynamodb, options, "own") as gateway:
            await eventually(lambda: len(gateway.relay.shards) == SHARDS // 2)
            killed(other)
            await eventually(lambda: len(gateway.relay.shards) == SHARDS)
    finally:
        if other.poll() is None:
            killed(other)
