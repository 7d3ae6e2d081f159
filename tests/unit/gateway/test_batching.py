"""Connections with the feature `batch`: arrays out and in, and every rule as for single frames."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pushing import give
from tests.unit.gateway.fakes import OTHER_DEVICE, turns
from tests.unit.gateway.stage import SETTLED, Peer, Stage, staged
from tests.unit.gateway.test_driver import push
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import BATCH_BYTES_MAX, BATCH_FRAMES_MAX
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.options import GatewayOptions
from tidewire.wire.error_table import CloseReason

BATCH = ("batch",)
HEARTBEAT = {"type": "heartbeat", "payload": {}}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        stage.features = BATCH
        yield stage


def new_messages(peer: Peer) -> list[Any]:
    """What was written since the last time that frames were looked at: frames and arrays."""
    seen = peer.transport._seen
    messages = []
    for message in map(json.loads, peer.transport.messages()):
        seen -= len(message) if isinstance(message, list) else 1
        if seen < 0:
            messages.append(message)
    peer.new_frames()
    return messages


def kinds(messages: list[Any]) -> list[Any]:
    """The types, as a list where they came together."""
    return [kinds(one) if isinstance(one, list) else one["type"] for one in messages]


def beat(number: int) -> dict[str, object]:
    return {"type": "heartbeat", "request_id": f"h{number}", "payload": {}}


def a_send(number: int, chat_id: ChatId, content: str = "hello", key: int | None = None) -> object:
    key = number if key is None else key
    payload = {
        "chat_id": chat_id,
        "client_message_id": f"{key:08x}-0000-4000-8000-000000000000",
        "content": content,
    }
    return {"type": "send_message", "request_id": f"r{number}", "payload": payload}


# Out.


async def test_frames_of_one_turn_are_one_array_and_a_lone_one_is_bare(stage: Stage) -> None:
    ann = await stage.world.person()
    peer = await stage.connect(ann)
    give(stage.hub, [ann], push("a"))
    give(stage.hub, [ann], push("b"))
    peer.says("heartbeat", "h")
    await turns(2)
    give(stage.hub, [ann], push("c"))
    await turns(2)
    array, lone = new_messages(peer)
    assert kinds([array, lone]) == [["message", "message", "heartbeat_ack"], "message"]
    assert [one["payload"]["text"] for one in (*array[:2], lone)] == ["a", "b", "c"]


async def test_connection_without_the_feature_gets_every_frame_bare(stage: Stage) -> None:
    """And is not told of features: to it the server is what it was."""
    ann = await stage.world.person()
    old = stage.arrives(ann, features=())
    new = stage.arrives(ann, device_id=OTHER_DEVICE)
    await turns(SETTLED)
    for peer, features in ((old, None), (new, ["batch"])):
        established, _ = peer.new_frames()
        assert established["payload"].get("features") == features
    for text in "abc":
        give(stage.hub, [ann], push(text))
    await turns(2)
    assert kinds(new_messages(old)) == ["message"] * 3
    assert kinds(new_messages(new)) == [["message"] * 3]
    assert old.transport.writes[-1] == push("a") + push("b") + push("c")
    old.says_all(HEARTBEAT, HEARTBEAT)
    await turns(2)
    [error] = new_messages(old)
    assert (error["type"], error["payload"]["code"]) == ("error", "INVALID_MESSAGE")


async def test_recipients_who_are_due_the_same_share_one_object(stage: Stage) -> None:
    people = await stage.world.people(4)
    peers = [await stage.connect(one) for one in people]
    for text in "ab":
        give(stage.hub, people, push(text))
    give(stage.hub, people[3:], push("c"))
    await turns(2)
    written = [peer.transport.writes[-1] for peer in peers]
    assert written[0] is written[1] is written[2]
    assert [kinds(new_messages(peer)) for peer in peers] == [
        *[[["message"] * 2]] * 3,
        [["message"] * 3],
    ]
    give(stage.hub, people, push("d"))
    await turns(2)
    assert [kinds(new_messages(peer)) for peer in peers] == [["message"]] * 4


@pytest.mark.parametrize("beyond", [0, 1])
async def test_array_has_at_most_its_bytes(stage: Stage, beyond: int) -> None:
    ann = await stage.world.person()
    peer = await stage.connect(ann)
    payload = len(push("a")) - 2
    rest = BATCH_BYTES_MAX - 3 - payload - (len(push("b")) - 2) + beyond
    give(stage.hub, [ann], push("a"))
    give(stage.hub, [ann], push("b", rest))
    await turns(2)
    message = peer.transport.messages()[-1]
    if beyond:
        assert kinds(new_messages(peer)) == ["message", "message"]
    else:
        assert len(message) == BATCH_BYTES_MAX
        assert kinds(new_messages(peer)) == [["message", "message"]]


async def test_larger_frame_goes_alone_between_its_neighbours(stage: Stage) -> None:
    ann = await stage.world.person()
    peer = await stage.connect(ann)
    for text, size in (("a", 0), ("b", 0), ("large", BATCH_BYTES_MAX), ("c", 0), ("d", 0)):
        give(stage.hub, [ann], push(text, size))
    await turns(2)
    assert kinds(new_messages(peer)) == [["message"] * 2, "message", ["message"] * 2]


async def test_introduction_and_pages_go_alone(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ben, 3)
    stage.storage.gate.clear()
    peer = stage.arrives(ann)
    for text in "ab":
        give(stage.hub, [ann], push(text))
    await turns(SETTLED)
    assert peer.transport.writes == []
    stage.storage.gate.set()
    await turns(SETTLED)
    assert kinds(new_messages(peer)) == [
        "connection_established",
        "chat_digest",
        ["message", "message"],
    ]
    peer.says_all(
        {
            "type": "sync_request",
            "request_id": "s",
            "payload": {"chat_id": chat_id, "last_acked_sequence": 0},
        },
        {"type": "digest_request", "request_id": "d", "payload": {}},
        HEARTBEAT,
        HEARTBEAT,
    )
    await turns(SETTLED)
    assert kinds(new_messages(peer)) == [
        ["heartbeat_ack", "heartbeat_ack"],
        "sync_response",
        "chat_digest",
    ]


async def test_page_among_other_frames_of_its_turn_goes_alone(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    messages = stage.storage.messages_after

    async def page_with_pushes(*given: Any, **named: Any) -> Any:
        page = await messages(*given, **named)
        give(stage.hub, [ann], push("a"))
        give(stage.hub, [ann], push("b"))
        return page

    stage.storage.messages_after = page_with_pushes  # type: ignore[method-assign]
    peer.says("sync_request", "s", chat_id=chat_id, last_acked_sequence=0)
    await turns(SETTLED)
    assert kinds(new_messages(peer)) == [["message", "message"], "sync_response"]


async def test_closing_is_in_no_array_and_the_last_but_for_answers_that_are_owed(
    stage: Stage,
) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    for text in "ab":
        give(stage.hub, [ann], push(text))
    peer.says_all(a_send(1, chat_id), a_send(2, chat_id))
    peer.driver.end(CloseReason.SERVER_SHUTDOWN)
    await turns(SETTLED)
    assert kinds(new_messages(peer)) == [
        "message",
        "message",
        "connection_closing",
        "send_message_ack",
        "send_message_ack",
    ]
    assert peer.closed == (1012, "server_shutdown")


async def test_closing_at_once_writes_what_came_before_it(stage: Stage) -> None:
    ann = await stage.world.person()
    peer = await stage.connect(ann)
    for text in "ab":
        give(stage.hub, [ann], push(text))
    peer.driver.end(CloseReason.SESSION_REVOKED)
    assert kinds(new_messages(peer)) == ["message", "message", "connection_closing"]
    assert peer.closed == (1008, "session_revoked")


async def test_slow_reader_is_told_in_time_with_arrays_too(tmp_path: Path) -> None:
    async with staged(
        tmp_path, GatewayOptions(outbound_bytes_max=10_000, drained_bytes_max=1_000)
    ) as small:
        small.features = BATCH
        ann = await small.world.person()
        peer = await small.connect(ann)
        peer.transport.is_reading = False
        for text in "abc":
            give(small.hub, [ann], push(text, 4_000))
        await turns(2)
        assert peer.closed == (1008, "slow_consumer")
        assert kinds(new_messages(peer)) == [["message"] * 3, "error", "connection_closing"]


# In.


async def test_array_is_answered_frame_by_frame_in_order(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer, friend = await stage.connect(ann), await stage.connect(ben)
    sends = [a_send(number, chat_id, f"text {number}") for number in range(10)]
    assert peer.says_all(beat(0), *sends, beat(1)) == 12
    await turns(SETTLED)
    answers = peer.new_frames()
    assert [one["request_id"] for one in answers] == ["h0", "h1", *(f"r{n}" for n in range(10))]
    pushed = [one["payload"]["content"] for one in friend.new_frames()]
    assert pushed == [f"text {number}" for number in range(10)]
    received = stage.hub.counters.frames_received_by_type
    assert (received["send_message"], received["heartbeat"]) == (10, 2)


async def test_bad_elements_are_answered_alone_and_count_alone(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    bad = {"type": "send_message", "request_id": "bad", "payload": {}}
    unknown = {"type": "of_next_year", "request_id": "new", "payload": {}}
    assert peer.says_all(bad, a_send(1, chat_id), unknown, 5) == 4
    await turns(SETTLED)
    answers = [(one["type"], one.get("request_id")) for one in peer.new_frames()]
    assert answers == [
        ("error", "bad"),
        ("error", "new"),
        ("error", None),
        ("send_message_ack", "r1"),
    ]
    counters = stage.hub.counters
    assert (counters.frames_invalid, counters.frames_unknown) == (2, 1)


@pytest.mark.parametrize(
    "frames",
    [(), ([HEARTBEAT],), (HEARTBEAT, [HEARTBEAT]), (HEARTBEAT,) * (BATCH_FRAMES_MAX + 1)],
    ids=["empty", "nested", "nested later", "too many"],
)
async def test_array_beyond_its_bounds_is_one_invalid_frame(
    stage: Stage, frames: tuple[object, ...]
) -> None:
    peer = await stage.connect(await stage.world.person())
    assert peer.says_all(*frames) == 1
    await turns(2)
    [error] = peer.new_frames()
    assert (error["payload"]["code"], "request_id" in error) == ("INVALID_MESSAGE", False)
    for _ in range(stage.options.invalid_frames_max - 1):
        assert peer.closed is None
        peer.says_all(*frames)
    assert peer.closed == (1008, "protocol_error")
    assert stage.hub.counters.frames_received_by_type.get("heartbeat", 0) == 0


async def test_every_frame_of_an_array_counts_against_the_budget(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(control_burst=BATCH_FRAMES_MAX)) as tight:
        tight.features = BATCH
        peer = await tight.connect(await tight.world.person())
        assert peer.says_all(*[HEARTBEAT] * BATCH_FRAMES_MAX) == BATCH_FRAMES_MAX
        await turns(2)
        assert peer.new_types() == ["heartbeat_ack"] * BATCH_FRAMES_MAX
        peer.says_all(HEARTBEAT, HEARTBEAT)
        await turns(2)
        assert [one["payload"]["code"] for one in peer.new_frames()] == ["RATE_LIMITED"] * 2


async def test_bad_elements_end_the_connection_at_their_bound(stage: Stage) -> None:
    """And the rest of the array is not looked at."""
    peer = await stage.connect(await stage.world.person())
    assert peer.says_all(*[0] * BATCH_FRAMES_MAX) == stage.options.invalid_frames_max
    assert peer.closed == (1008, "protocol_error")
    assert peer.new_types() == ["error"] * stage.options.invalid_frames_max + ["connection_closing"]


async def test_open_requests_are_counted_one_by_one(tmp_path: Path) -> None:
    options = GatewayOptions(requests_waiting_max=3, send_chat_burst=100, send_user_burst=100)
    async with staged(tmp_path, options) as tight:
        tight.features = BATCH
        ann, _, chat_id = await tight.pair()
        peer = await tight.connect(ann)
        peer.says_all(*[a_send(number, chat_id) for number in range(5)])
        await turns(SETTLED)
        answers = {one["request_id"]: one for one in peer.new_frames()}
        assert {name: one["type"] for name, one in answers.items()} == {
            **dict.fromkeys(("r0", "r1", "r2"), "send_message_ack"),
            **dict.fromkeys(("r3", "r4"), "error"),
        }
        assert [answers[name]["payload"]["code"] for name in ("r3", "r4")] == ["SERVER_BUSY"] * 2


async def test_line_closes_within_an_array_and_opens_by_the_refused_one(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(send_chat_burst=2)) as tight:
        tight.features = BATCH
        ann, ben, chat_id = await tight.pair()
        other = await tight.world.direct(ann, await tight.world.person())
        peer = await tight.connect(ann)
        peer.says_all(*[a_send(number, chat_id) for number in range(4)], a_send(9, other))
        await turns(SETTLED)
        answers = {one["request_id"]: one["payload"] for one in peer.new_frames()}
        refused = f"{2:08x}-0000-4000-8000-000000000000"
        assert answers["r2"]["code"] == answers["r3"]["code"] == "RATE_LIMITED"
        assert answers["r3"]["details"]["after"] == refused
        assert "sequence" in answers["r9"], "another chat is another line"
        tight.clock.forward(5_000)
        # The later one first: it waits. Then in order, and both are stored.
        peer.says_all(a_send(3, chat_id), a_send(2, chat_id))
        await turns(SETTLED)
        first, second = sorted(peer.new_frames(), key=lambda one: str(one["type"]))
        assert first["payload"]["details"]["after"] == refused
        assert second["request_id"] == "r2"
        peer.says_all(a_send(3, chat_id))
        await turns(SETTLED)
        keys = [one.client_message_id[:8] for one in await tight.world.messages(ben, chat_id)]
        assert keys == ["00000000", "00000001", "00000002", "00000003"]


async def test_one_key_twice_in_an_array_is_one_message(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    peer.says_all(
        a_send(1, chat_id, "text", key=7),
        a_send(2, chat_id, "text", key=7),
        a_send(3, chat_id, "another", key=7),
    )
    await turns(SETTLED)
    answers = {one["request_id"]: one["payload"] for one in peer.new_frames()}
    assert answers["r1"]["sequence"] == answers["r2"]["sequence"]
    assert (answers["r1"]["deduplicated"], answers["r2"]["deduplicated"]) == (False, True)
    assert answers["r3"]["code"] == "IDEMPOTENCY_KEY_REUSED"
    [message] = await stage.world.messages(ben, chat_id)
    assert message.content == "text"


async def test_array_before_the_introduction_is_refused_frame_by_frame(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    stage.storage.gate.clear()
    peer = stage.arrives(ann)
    peer.says_all(a_send(1, chat_id), HEARTBEAT)
    await turns(SETTLED)
    stage.storage.gate.set()
    await turns(SETTLED)
    assert kinds(new_messages(peer)) == [
        "connection_established",
        "chat_digest",
        ["error", "heartbeat_ack"],
    ]


async def test_rest_of_an_array_is_not_heard_by_a_connection_that_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, ben, chat_id = await stage.pair()
    peer = await stage.connect(ann)

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stage.ingest, "submit_nowait", fail)
    assert peer.says_all(HEARTBEAT, a_send(1, chat_id), a_send(2, chat_id)) == 2
    assert peer.closed == (1011, "INTERNAL_ERROR")
    assert peer.new_types() == ["heartbeat_ack", "error"]
    assert await stage.world.messages(ben, chat_id) == []


async def test_resync_goes_with_what_else_is_due(stage: Stage) -> None:
    ann = await stage.world.person()
    peer = await stage.connect(ann)
    give(stage.hub, [ann], push("a"))
    stage.hub.resync([ann], ResyncReason.PUSHES_LOST)
    await turns(2)
    assert kinds(new_messages(peer)) == [["message", "resync"]]
