"""Chats whose sends are appended one by one: because of damage."""

from tests.unit.ingest.test_batcher import Bench, labels
from tidewire.domain.errors import StoreDamaged


def test_chat_that_is_damaged_is_appended_alone_from_then_on() -> None:
    """A batch with one of its sends would be divided by the store, every time."""
    bench = Bench()
    bench.offer("a", chat="chat_1")
    bench.complete(bench.take(), StoreDamaged("a page"))
    bench.offer("b", chat="chat_2")
    bench.offer("c", chat="chat_1")
    bench.offer("d", chat="chat_2", line="laptop")
    assert labels(bench.take()) == ["b", "d"]
