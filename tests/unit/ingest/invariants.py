"""What holds of a batcher between any two calls. Holds no test."""

from typing import Any

from tidewire.ingest.batcher import Batcher, Entry, Key, Lane


def check_batcher(batcher: Batcher[Any]) -> None:
    """Walks everything."""
    ready: list[Lane[Any]] = []
    firsts: dict[Key, Entry[Any]] = {}
    followers: dict[Key, list[Entry[Any]]] = {}
    in_flight_count = 0
    for lane in batcher._lanes.values():
        assert lane.queue or lane.in_flight is not None, "a lane without a send"
        if lane.in_flight is None:
            ready.append(lane)
            assert not lane.queue[0].is_answered, "a ready lane with nothing at its front"
        else:
            in_flight_count += 1
        under_way = lane.in_flight.entries if lane.in_flight is not None else []
        for entry in [*under_way, *(entry for entry in lane.queue if not entry.is_answered)]:
            assert entry.is_answered or entry.deadline_at_ms >= batcher._deadline_at_ms_min
            assert entry.is_follower == (entry.key in firsts), "not one first per key"
            if entry.is_follower:
                followers.setdefault(entry.key, []).append(entry)
            else:
                firsts[entry.key] = entry
    assert firsts == batcher._first_by_key
    for key, first in firsts.items():
        assert list(first.followers or ()) == followers.get(key, [])
    assert len(ready) == len(batcher._ready)
    assert all(lane in batcher._ready for lane in ready)
    assert in_flight_count == batcher._in_flight_count <= batcher._appends_in_flight_max
    assert batcher._queued_count == sum(len(lane.queue) for lane in batcher._lanes.values())
    assert batcher._queued_count <= batcher._queue_sends_max
