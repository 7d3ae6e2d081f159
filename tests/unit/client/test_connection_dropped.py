"""Positions that the server drops, because it was told of too many at once."""

from collections.abc import Iterable

import pytest

from tests.unit.client.stage import (
    CHAT,
    Stage,
    error,
    frames,
    heartbeat_ack,
    listed,
    push,
)
from tidewire.client.effects import Effect
from tidewire.client.replica import ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.wire.client_frames import AckFrame, HeartbeatFrame, ReadFrame


def ready() -> Stage:
    stage = Stage(replicas=[ReplicaRecord(chat_id=CHAT, chat_type=ChatType.DIRECT)])
    stage.connect(listed(0))
    return stage


def acked(effects: Iterable[Effect]) -> list[int]:
    return [frame.payload.last_acked_sequence for frame in frames(effects, AckFrame)]


def read_told(effects: Iterable[Effect]) -> list[int]:
    return [frame.payload.last_read_sequence for frame in frames(effects, ReadFrame)]


def test_positions_that_the_server_has_dropped_are_told_again_when_it_says() -> None:
    stage = ready()
    assert acked(stage.receive(push(1), push(2)) + stage.wait(300)) == [1, 2]
    assert read_told(stage.did(stage.core.read(CHAT, 1, stage.now))) == [1]
    assert acked(stage.receive(push(3)) + stage.wait(300)) == [3]
    stage.receive(error("RATE_LIMITED", retry_after_seconds=3))
    done = stage.receive(push(4)) + stage.wait(2_990)
    assert (read_told(done), acked(done)) == ([], [])
    done = stage.wait(20)
    assert (read_told(done), acked(done)) == ([1], [4]), "the highest, and each once"
    done = stage.wait(20_000)
    assert (read_told(done), acked(done)) == ([], [])
    # That was dropped, too.
    stage.receive(error("RATE_LIMITED"))
    done = stage.wait(1_100)
    assert (read_told(done), acked(done)) == ([1], [4])


def test_answered_heartbeat_proves_what_was_told_before_it() -> None:
    """The server reads in order: it had told of what it dropped before it answered."""
    stage = ready()
    assert acked(stage.receive(push(1))) == [1]
    stage.did(stage.core.read(CHAT, 1, stage.now))
    (beat,) = frames(stage.wait(33_000), HeartbeatFrame)
    assert acked(stage.receive(push(2))) == [2]
    stage.receive(heartbeat_ack(beat.request_id), error("RATE_LIMITED"))
    done = stage.wait(1_100)
    assert (read_told(done), acked(done)) == ([], [2])
    (beat,) = frames(stage.wait(33_000), HeartbeatFrame)
    stage.receive(heartbeat_ack(beat.request_id), error("RATE_LIMITED"))
    done = stage.wait(2_000)
    assert (read_told(done), acked(done)) == ([], [])


def test_heartbeat_that_is_not_answered_proves_nothing() -> None:
    stage = ready()
    stage.receive(push(1))
    stage.did(stage.core.read(CHAT, 1, stage.now))
    (first,) = frames(stage.wait(33_000), HeartbeatFrame)
    stage.receive(error("RATE_LIMITED", first.request_id))
    assert acked(stage.receive(push(2))) == [2]
    (second,) = frames(stage.wait(33_000), HeartbeatFrame)
    stage.receive(heartbeat_ack(first.request_id), error("RATE_LIMITED"))
    done = stage.wait(1_100)
    assert (read_told(done), acked(done)) == ([1], [2])
    assert second.request_id != first.request_id


@pytest.mark.parametrize("seconds", [1e308, -1, 0, "soon", True])
def test_wait_that_makes_no_sense_is_no_fault_of_ours(seconds: object) -> None:
    stage = ready()
    stage.receive(push(1), error("RATE_LIMITED", retry_after_seconds=seconds))
    stage.receive(*(push(n) for n in range(2, 12)))
    deadline_ms = stage.core.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= stage.now.ms + 3_600_000
