"""What the vendor's client reports about itself: whether it still looks for brokers, and how far
behind a reader is. PURE.

A client forgets a broker that is missing in the answer to a metadata request. A broker that was
stopped for a while is missing in its own answers until its controller has heard from it again. A
client that has forgotten its last broker in this way should start again from its bootstrap servers,
and sometimes does not (confluentinc/librdkafka#5301): then it does nothing any more.
"""

from typing import Final

import msgspec

IDLE_S_MAX: Final = 4.0
"""A client idle for longer has given up: one that reaches no broker retries each second or so."""

_ASKED: Final = ("configured", "learned")
"""Sources of brokers. One that is "logical" or "internal" is another name for one of these."""


class _Broker(msgspec.Struct):
    source: str = ""
    state: str = ""
    stateage: int = 0
    """In microseconds."""


class _Partition(msgspec.Struct):
    partition: int
    desired: bool = False
    lo_offset: int = -1
    hi_offset: int = -1
    committed_offset: int = -1


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}

    @property
    def is_given_up(self) -> bool:
        """Whether the client is connected to no broker and has not tried one for long."""
        brokers = [one for one in self.brokers.values() if one.source in _ASKED]
        return all(one.state == "INIT" and one.stateage > IDLE_S_MAX * 1e6 for one in brokers)

    @property
    def lag(self) -> dict[tuple[str, int], int]:
        """How many records wait, by topic and partition. Partitions of which nothing is known are
        left out. If nothing is committed yet, the reader starts at the beginning."""
        lag = {}
        for name, topic in self.topics.items():
            for one in topic.partitions.values():
                start = one.committed_offset if one.committed_offset >= 0 else one.lo_offset
                if one.desired and one.partition >= 0 and one.hi_offset >= 0 and start >= 0:
                    lag[name, one.partition] = max(0, one.hi_offset - start)
        return lag


decode_statistics: Final = msgspec.json.Decoder(Statistics).decode
