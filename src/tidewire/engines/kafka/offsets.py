"""Asks the brokers how far the readers of the log have got.

The committed offsets of the group say it, even if no reader is alive. The client that asks for them
reads nothing and is no member of the group. The vendor's admin client would not block a thread, but
it ends the whole process when a coordinator does not answer in time (seen with librdkafka 2.16.0:
an assertion in `rd_kafka_enq_once_del_source_return`).
"""

import threading
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka.consumer import LoopThread
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.schema import GROUP
from tidewire.ports.event_log import Place

ANSWER_S_MAX: Final = 1.0
FAILURES_MAX: Final = 5
"""After so many failures in a row the client is replaced: it may have given up on the brokers for
good (`statistics`)."""


class GroupOffsets:
    """Used on one event loop, one request at a time; works on a thread of its own."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._thread: LoopThread | None = None
        self._client: Consumer | None = None
        self._failures = 0

    async def next_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        """The first offset of each partition that is not dealt with. Partitions without a known
        committed offset are left out. Raises LogUnavailable."""
        if self._thread is None:
            self._thread = LoopThread("kafka-offsets")
        return await self._thread.do(lambda: self._ask(places))

    def close(self) -> None:
        """Does not wait: a request under way ends first, with its answer or its timeout."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None
            self._renew()

    # On the thread.

    def _ask(self, places: Sequence[Place]) -> dict[Place, int]:
        if self._client is None:
            settings: dict[str, object] = {
                **self._options.common_settings(),
                "group.id": self._options.topic_prefix + GROUP,
                "enable.auto.commit": False,
            }
            self._client = Consumer(settings)
        try:
            found = self._client.committed(
                [TopicPartition(*place) for place in places], timeout=ANSWER_S_MAX
            )
        except KafkaException as error:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._renew()
            raise LogUnavailable(f"the readers' progress is not known: {error}") from error
        self._failures = 0
        return {
            (one.topic, one.partition): one.offset
            for one in found
            if one.error is None and one.offset >= 0
        }

    def _renew(self) -> None:
        """Free the client on another thread: it may wait for brokers. Only `old` refers to it."""
        self._failures = 0
        old, self._client = [self._client], None
        threading.Thread(target=old.clear, name="kafka-renewal", daemon=True).start()
