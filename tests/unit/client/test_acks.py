"""When the server is told, in bundles, and never of more than is on the disk."""

from typing import Any

from tidewire.client.acks import Acks
from tidewire.client.options import ClientOptions
from tidewire.client.replica import Replica
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import AckFrame, ReadFrame


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
    acks.wait(9_000)
    acks.stored(replica(1), 10, 1_000)
    assert acks.next_deadline_ms() == 9_000
