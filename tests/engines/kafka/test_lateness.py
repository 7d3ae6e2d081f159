"""What of this process waits in the log: the group's offsets say so, readers or not."""

import asyncio

import pytest

from tests.engines.kafka.conftest import OpenLog, OpenReader
from tests.support.kafka import local_options
from tests.support.pushing import published
from tests.unit.ingest.events import CHAT, a_message, a_rename
from tidewire.domain.errors import LogUnavailable
from tidewire.domain.ids import ChatId
from tidewire.engines.kafka import offsets
from tidewire.engines.kafka.consumer import KafkaLogReader
from tidewire.engines.kafka.offsets import GroupOffsets
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.producer import KafkaEventLog
from tidewire.ports.event_log import LogRecord

OTHER = ChatId("chat_2")
PORT_OF_NOBODY = 1


async def until_none_is_late(log: KafkaEventLog, reader: KafkaLogReader) -> None:
    async with asyncio.timeout(30):
        while await log.late(0) != {}:
            await reader.read()


async def read(reader: KafkaLogReader, count: int) -> list[LogRecord]:
    records: list[LogRecord] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await reader.read()
    return records


async def test_event_is_late_until_a_reader_has_dealt_with_it(
    open_log: OpenLog, open_reader: OpenReader, options: KafkaOptions
) -> None:
    log = open_log(options)
    assert await log.late(0) == {}
    await published(log, [a_message(1), a_message(2)])
    await published(log, [a_rename(4, OTHER)])
    # No reader has ever been there.
    assert await log.late(0) == {CHAT: (), OTHER: ()}
    assert await log.late(60_000) == {}
    reader = open_reader(options)
    records = await read(reader, 3)
    assert await log.late(0) == {CHAT: (), OTHER: ()}
    await reader.commit(records)
    await until_none_is_late(log, reader)
    await published(log, [a_message(3)])
    assert await log.late(0) == {CHAT: ()}


async def test_event_that_was_dealt_with_in_time_is_not_late_when_the_brokers_go_away(
    open_log: OpenLog, open_reader: OpenReader, options: KafkaOptions
) -> None:
    log, reader = open_log(options), open_reader(options)
    await published(log, [a_message(1)])
    await reader.commit(await read(reader, 1))
    # Looks at what is late say how far the readers are, long before this event could be; not the
    # first one, if the brokers take their time.
    async with asyncio.timeout(30):
        while log._unread:
            await reader.read()
            assert await log.late(60_000) == {}
    log._offsets = GroupOffsets(local_options(PORT_OF_NOBODY))
    assert await log.late(0) == {}


async def test_dead_letters_wait_for_no_reader(open_log: OpenLog, options: KafkaOptions) -> None:
    log = open_log(options)
    await log.bury(b"chat_1", b"{}")
    assert await log.late(0) == {}


async def test_log_that_does_not_answer_is_late(
    open_log: OpenLog, options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(options)
    await published(log, [a_message(1)])
    monkeypatch.setattr(offsets, "ANSWER_S_MAX", 0.2)
    log._offsets = GroupOffsets(local_options(PORT_OF_NOBODY))
    assert await log.late(0) == {CHAT: ()}


async def test_client_that_gets_no_answer_again_and_again_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets, "ANSWER_S_MAX", 0.2)
    asked = GroupOffsets(local_options(PORT_OF_NOBODY))
    clients = []
    for _ in range(offsets.FAILURES_MAX + 1):
        with pytest.raises(LogUnavailable):
            await asked.next_offsets([("topic", 0)])
        clients.append(asked._client)
    asked.close()
    assert clients[-2] is None
    assert clients[-1] is not None
