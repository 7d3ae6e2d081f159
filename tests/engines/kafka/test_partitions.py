"""Where chats lie: as every other language's client computes it (K-01)."""

import pytest

from tests.engines.kafka.conftest import OpenLog, OpenReader
from tests.engines.kafka.murmur2 import bucket, murmur2
from tests.support.kafka import fresh_topics
from tests.support.pushing import published
from tests.unit.ingest.events import a_message
from tidewire.domain.ids import ChatId

pytestmark = pytest.mark.slow
"""A broker makes 64 partitions."""

VECTORS = {
    # chat_id: bucket, partition of 64, partition of 128
    "chat_abc123": (2134, 22, 86),
    "chat_xyz789": (490, 42, 106),
    "chat_000001": (2285, 45, 109),
    "chat_测试": (1567, 31, 31),
    "": (2265, 25, 89),
    "a": (636, 60, 124),
    "chat_" + 1000 * "x": (1312, 32, 32),
    "chat_🎉🎊": (301, 45, 45),
}


@pytest.mark.parametrize(
    ("text", "expected"), [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)]
)
def test_murmur2_is_kafkas_own(text: str, expected: int) -> None:
    assert murmur2(text.encode()) == expected


def test_vectors_are_those_of_murmur2() -> None:
    for chat_id, (expected, of_64, of_128) in VECTORS.items():
        assert bucket(chat_id) == expected
        assert (expected % 64, expected % 128) == (of_64, of_128)


async def test_chats_lie_in_the_published_partitions(
    open_log: OpenLog, open_reader: OpenReader
) -> None:
    options = fresh_topics(message_partitions=64, change_partitions=1)
    log, reader = open_log(options), open_reader(options)
    for chat_id in VECTORS:
        await published(log, [a_message(1, ChatId(chat_id))])
    found = list(await reader.read())
    while len(found) < len(VECTORS):
        found += await reader.read()
    places = {one.key.decode(): one.partition for one in found if one.key is not None}
    assert places == {chat_id: of_64 for chat_id, (_, of_64, _) in VECTORS.items()}
