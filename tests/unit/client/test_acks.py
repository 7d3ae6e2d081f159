"""When the server is told, in bundles, and never of more than is on the disk."""

from typing import Any

import pytest

from tidewire.client.acks import Acks
from tidewire.client.options import ClientOptions
from tidewire.client.replica import Replica
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import AckFrame, OneWayFrame, ReadFrame


def replica(number: int, stored: int = 5, **fields: Any) -> Replica:
    return Replica(
        chat_id=ChatId(f"chat_{number}"),
        chat_type=ChatType.DIRECT,
        cursor=stored,
        waiting_max=1,
        **fields,
    )


def test_bundles_are_bounded_and_spaced() -> None:
    acks = Acks(ClientOptions(ack_frames_max=3, ack_interval_ms=50))
    acks.reconnected([replica(n) for n in range(8)], 1_000)
    assert len(acks.flush(1_000)) == 3
    assert acks.flush(1_049) == []
    assert len(acks.flush(1_050)) == 3
    assert len(acks.flush(1_100)) == 2
    assert acks.next_deadline_ms() is None
    assert acks.flush(2_000) == []


def test_last_bundle_has_everything() -> None:
    acks = Acks(ClientOptions(ack_frames_max=3))
    acks.reconnected([replica(n) for n in range(8)], 1_000)
    assert len(acks.flush(1_000, is_last=True)) == 8


def test_what_this_device_did_not_store_is_for_others_to_acknowledge() -> None:
    acks = Acks(ClientOptions())
    acks.reconnected([replica(1, stored=5, start=5)], 1_000)
    assert acks.next_deadline_ms() is None


def test_chat_that_was_left_is_not_acknowledged() -> None:
    acks = Acks(ClientOptions())
    left = replica(1)
    acks.stored(left, 10, 1_000)
    left.is_member = False
    assert acks.flush(1_000) == []
    acks.reconnected([left], 2_000)
    assert acks.next_deadline_ms() is None


def test_read_is_an_acknowledgement_too() -> None:
    acks = Acks(ClientOptions())
    here = replica(1)
    here.read = 5
    acks.read(here, 1_000)
    (told,) = acks.flush(1_000)
    assert isinstance(told, ReadFrame)
    here.read = 4
    here.stored = 7
    acks.stored(here, 0, 2_000)
    assert acks.next_deadline_ms() is None
    acks.stored(here, 1, 2_000)
    assert acks.next_deadline_ms() == 32_000, "not of others"
    (told,) = acks.flush(32_000)
    assert isinstance(told, AckFrame)


def test_pause_is_kept() -> None:
    acks = Acks(ClientOptions())
    acks.dropped(9_000)
    acks.stored(replica(1), 10, 1_000)
    assert acks.next_deadline_ms() == 9_000


def test_nothing_is_told_again_that_was_not_told_on_this_connection() -> None:
    acks = Acks(ClientOptions())
    here, left = replica(1), replica(2)
    acks.reconnected([here, left], 1_000)
    assert len(acks.flush(1_000)) == 2
    left.is_member = False
    acks.dropped(2_000)
    assert len(acks.flush(2_000)) == 1
    acks.reconnected([], 3_000)
    acks.dropped(4_000)
    assert acks.next_deadline_ms() is None


def test_bundles_become_smaller_when_some_is_dropped_and_grow_when_all_is_taken() -> None:
    acks = Acks(ClientOptions(ack_frames_max=8, ack_interval_ms=80))
    acks.reconnected([replica(n) for n in range(60)], 0)
    sizes: dict[int, int] = {}
    for now_ms in range(0, 2_000, 10):
        if now_ms == 40:
            acks.dropped(now_ms)
        if now_ms == 400:
            acks.heartbeat_sent()
            acks.heartbeat_answered()
        frames = acks.flush(now_ms)
        if frames:
            sizes[now_ms] = len(frames)
    assert [*sizes][:8] == [0, 80, 160, 240, 320, 400, 480, 560]
    assert [*sizes.values()][:8] == [8, 4, 4, 4, 4, 8, 8, 8]
    assert sum(sizes.values()) == 68


class Limited:
    """A server that takes so many acknowledgements a second. It tells of what it drops as the real
    one does, and each error takes a while."""

    def __init__(self, per_second: int, way_ms: int) -> None:
        self.told: dict[str, int] = {}
        self.frames = 0
        self.dropped = 0
        self._per_second = per_second
        self._way_ms = way_ms
        self._room = float(per_second)
        self._at_ms = 0
        self._told_at_ms = -1_000
        self._errors: list[int] = []

    def take(self, frames: list[OneWayFrame], now_ms: int) -> None:
        refilled = (now_ms - self._at_ms) * self._per_second / 1_000
        self._room, self._at_ms = min(self._room + refilled, self._per_second), now_ms
        for frame in frames:
            assert isinstance(frame, AckFrame)
            self.frames += 1
            if self._room >= 1:
                self._room -= 1
                self.told[frame.payload.chat_id] = frame.payload.last_acked_sequence
                continue
            self.dropped += 1
            if now_ms >= self._told_at_ms + 1_000:
                self._told_at_ms = now_ms
                self._errors.append(now_ms + self._way_ms)

    def has_error(self, now_ms: int) -> bool:
        if self._errors and self._errors[0] <= now_ms:
            del self._errors[0]
            return True
        return False


@pytest.mark.parametrize("per_second", [5, 20, 50, 300])
def test_many_positions_arrive_at_a_server_with_a_low_limit(per_second: int) -> None:
    """The connection tells of 2000 chats. The server drops some of that, and has all of it in a
    while: the client becomes slower until nothing is dropped, and does not do it all for ever."""
    acks, server, chats = Acks(ClientOptions()), Limited(per_second, way_ms=80), 2_000
    acks.reconnected([replica(n) for n in range(chats)], 0)
    now_ms = 0
    while acks.next_deadline_ms() is not None:
        now_ms += 10
        server.take(acks.flush(now_ms), now_ms)
        if server.has_error(now_ms):
            acks.dropped(now_ms + 1_000)
        if now_ms % 30_000 == 0:
            acks.heartbeat_sent()
        if now_ms % 30_000 == 200:
            acks.heartbeat_answered()
        assert now_ms < 20 * 60_000, "it does not end"
    assert len(server.told) == chats
    assert server.dropped < 400
    assert server.dropped * 60_000 / now_ms < 1_000, "the server would end the connection"
