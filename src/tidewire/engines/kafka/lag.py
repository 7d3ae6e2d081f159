"""How far behind a reader is, from what the vendor's client tells of itself. PURE."""

import msgspec


class _Partition(msgspec.Struct):
    partition: int
    desired: bool = False
    lo_offset: int = -1
    hi_offset: int = -1
    committed_offset: int = -1


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class _Statistics(msgspec.Struct):
    topics: dict[str, _Topic] = {}


_DECODER: msgspec.json.Decoder[_Statistics] = msgspec.json.Decoder(_Statistics)


def lag_of(statistics: bytes) -> dict[tuple[str, int], int]:
    """Records that wait, by topic and partition; partitions of which nothing is known are not in
    it. Nothing committed yet: the reader starts at the beginning."""
    lag = {}
    for name, topic in _DECODER.decode(statistics).topics.items():
        for one in topic.partitions.values():
            start = one.committed_offset if one.committed_offset >= 0 else one.lo_offset
            if one.desired and one.partition >= 0 and one.hi_offset >= 0 and start >= 0:
                lag[name, one.partition] = max(0, one.hi_offset - start)
    return lag
