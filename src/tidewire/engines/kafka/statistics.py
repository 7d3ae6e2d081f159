"""What the vendor's client tells of itself: whether it still looks for brokers, and how far behind
a reader is. PURE.

A client forgets a broker that is not in the answer to a question about topics. A broker that stood
still is left out of the answers that it gives itself, until its controller has heard from it again.
A client that has so forgotten its last broker should begin anew with those that it was told of
first, and at times does not (confluentinc/librdkafka#5301): then it does nothing any more.
"""

from typing import Final

import msgspec

IDLE_S_MAX: Final = 4.0
"""A client that merely reaches no broker tries again every second or so."""

_ASKED: Final = ("configured", "learned")
"""What is "logical" or "internal" is another name for one of these."""


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
        """Whether the client is connected to no broker and has long tried none."""
        brokers = [one for one in self.brokers.values() if one.source in _ASKED]
        return all(one.state == "INIT" and one.stateage > IDLE_S_MAX * 1e6 for one in brokers)

    @property
    def lag(self) -> dict[tuple[str, int], int]:
        """Records that wait, by topic and partition; partitions of which nothing is known are not
        in it. Nothing committed yet: the reader starts at the beginning."""
        lag = {}
        for name, topic in self.topics.items():
            for one in topic.partitions.values():
                start = one.committed_offset if one.committed_offset >= 0 else one.lo_offset
                if one.desired and one.partition >= 0 and one.hi_offset >= 0 and start >= 0:
                    lag[name, one.partition] = max(0, one.hi_offset - start)
        return lag


decode_statistics: Final = msgspec.json.Decoder(Statistics).decode
