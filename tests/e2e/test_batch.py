"""Arrays of frames on a real server and a plain socket: bounds, order, and what old clients see.

Slow: a real server.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.chatting import PATIENCE_S, Account, Site, new_key
from tests.e2e.test_hostile_sockets import upgrade_of
from tests.edge.raw import TEXT, RawPeer

pytestmark = pytest.mark.slow

HEARTBEAT = b'{"type":"heartbeat","payload":{}}'
FRAMES_MAX = 256
BYTES_MAX = 65_536
CONTROL_BURST = 600
BATCH = b"X-Tidewire-Features: entries-of-next-year, batch\r\n"
BROWSER = b"Sec-WebSocket-Protocol: tidewire.v1, with.batch\r\n"
ESTABLISHED_BEFORE = {
    "connection_id",
    "user_id",
    "device_id",
    "server_time",
    "heartbeat_interval_ms",
    "protocol_version",
    "epoch",
}
"""What the payload of `connection_established` had in 0.1.0."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(
        tmp_path_factory.mktemp("batch"),
        gateway__send_chat_rate_per_second=10_000,
        gateway__send_chat_burst=10_000,
        gateway__send_user_rate_per_second=10_000,
        gateway__send_user_burst=10_000,
        gateway__requests_waiting_max=1_000,
        gateway__control_burst=CONTROL_BURST,
        gateway__control_rate_per_second=5,
    ) as site:
        yield site
        assert site.server.process.poll() is None
        assert site.complaints() == []


class Peer(RawPeer):
    """Reads both forms, and keeps what it read."""

    established: dict[str, Any]
    head_of_answer: bytes
    messages: list[bytes]

    async def frames(self, count: int) -> list[dict[str, Any]]:
        """So many frames, in as many messages as it takes."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                opcode, message = await self.receive()
                assert opcode == TEXT, message
                self.messages.append(message)
                said = json.loads(message)
                found += said if isinstance(said, list) else [said]
        assert len(found) == count
        return found

    def say(self, *frames: object) -> None:
        self.frame(TEXT, json.dumps(frames).encode())


@asynccontextmanager
async def connected(site: Site, account: Account, offer: bytes = BATCH) -> AsyncIterator[Peer]:
    peer = await Peer.connect(site.port)
    assert isinstance(peer, Peer)
    peer.messages = []
    peer.send(upgrade_of(account).removesuffix(b"\r\n") + offer + b"\r\n")
    peer.head_of_answer = await peer.head()
    assert peer.head_of_answer.startswith(b"HTTP/1.1 101 "), peer.head_of_answer
    established, digest = await peer.frames(2)
    assert (established["type"], digest["type"]) == ("connection_established", "chat_digest")
    assert len(peer.messages) == 2, "both go alone"
    peer.established = established["payload"]
    yield peer
    await peer.end()


def a_send(chat_id: str, number: int, content: str, key: str | None = None) -> object:
    payload = {"chat_id": chat_id, "client_message_id": key or new_key(), "content": content}
    return {"type": "send_message", "request_id": f"r{number}", "payload": payload}


def sent_in(message: bytes) -> int:
    """How many frames came together."""
    said = json.loads(message)
    return len(said) if isinstance(said, list) else 1


@pytest.mark.parametrize(
    ("offer", "features"),
    [(b"", None), (BATCH, ["batch"]), (BROWSER, ["batch"])],
    ids=["nothing", "header", "subprotocol"],
)
async def test_what_is_offered_and_known_is_on(
    site: Site, offer: bytes, features: list[str] | None
) -> None:
    """A client of 0.1.0 offers nothing, and the server is to it what it was."""
    [ann] = await site.people("ann")
    async with connected(site, ann, offer) as peer:
        assert peer.established.get("features") == features
        assert set(peer.established) - {"features"} == ESTABLISHED_BEFORE
        is_named = b"sec-websocket-protocol: tidewire.v1\r\n" in peer.head_of_answer.lower()
        assert is_named == (offer == BROWSER)
        assert b"with.batch" not in peer.head_of_answer
        peer.frame(TEXT, b"[" + HEARTBEAT + b"," + HEARTBEAT + b"]")
        kinds = [one["type"] for one in await peer.frames(1 if features is None else 2)]
        assert kinds == (["error"] if features is None else ["heartbeat_ack"] * 2)
        assert len(peer.messages) == 3


@pytest.mark.parametrize("beyond", [0, 1])
async def test_array_has_at_most_256_frames(site: Site, beyond: int) -> None:
    [ann] = await site.people("ann")
    async with connected(site, ann) as peer:
        peer.frame(TEXT, b"[" + b",".join([HEARTBEAT] * (FRAMES_MAX + beyond)) + b"]")
        if beyond:
            [error] = await peer.frames(1)
            assert (error["type"], error["payload"]["code"]) == ("error", "INVALID_MESSAGE")
            assert "request_id" not in error
        else:
            answers = await peer.frames(FRAMES_MAX)
            assert {one["type"] for one in answers} == {"heartbeat_ack"}
        # And the connection goes on.
        peer.frame(TEXT, b'{"type":"heartbeat","request_id":"last","payload":{}}')
        [answer] = await peer.frames(1)
        assert answer["request_id"] == "last"


@pytest.mark.parametrize("beyond", [0, 1])
async def test_array_has_at_most_65536_bytes(site: Site, beyond: int) -> None:
    [ann] = await site.people("ann")
    async with connected(site, ann) as peer:
        array = b"[" + HEARTBEAT + b"," + HEARTBEAT
        peer.frame(TEXT, array.ljust(BYTES_MAX + beyond - 1) + b"]")
        if beyond:
            assert await peer.close_code() == 1009
        else:
            assert len(await peer.frames(2)) == 2


@pytest.mark.parametrize("kind", ["empty", "nested", "deep"])
async def test_array_that_may_not_be_is_one_invalid_frame(site: Site, kind: str) -> None:
    arrays = {
        "empty": b"[]",
        "nested": b"[" + HEARTBEAT + b",[" + HEARTBEAT + b"]]",
        "deep": b"[" * 60_000,
    }
    [ann] = await site.people("ann")
    async with connected(site, ann) as peer:
        for _ in range(10):
            peer.frame(TEXT, arrays[kind])
        *errors, closing = await peer.frames(11)
        assert [one["payload"]["code"] for one in errors] == ["INVALID_MESSAGE"] * 10
        assert closing["payload"]["reason"] == "protocol_error"
        assert sent_in(peer.messages[-1]) == 1
        assert await peer.close_code() == 1008


async def test_messages_arrive_once_and_in_order_in_arrays_of_at_most_65536_bytes(
    site: Site,
) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with (
        connected(site, ann) as sender,
        connected(site, bob) as reader,
        connected(site, await site.login(bob), b"") as old,
    ):
        contents = [f"{number}".ljust(4_000, ".") for number in range(150)]
        sends = [a_send(chat_id, number, text) for number, text in enumerate(contents)]
        for at in range(0, len(sends), 15):
            sender.say(*sends[at : at + 15])
        # Twice in one array, and once more: one message.
        key = new_key()
        sender.say(a_send(chat_id, 150, "twice", key), a_send(chat_id, 151, "twice", key))
        answers = await sender.frames(152)
        assert [one["request_id"] for one in answers] == [f"r{number}" for number in range(152)]
        numbers = [one["payload"]["sequence"] for one in answers]
        assert numbers[150] == numbers[151]
        assert [one["payload"]["deduplicated"] for one in answers] == [False] * 151 + [True]
        for peer in (reader, old):
            pushed = [one["payload"] for one in await peer.frames(151)]
            assert [one["content"] for one in pushed] == [*contents, "twice"]
            assert [one["prev_sequence"] for one in pushed] == [0, *numbers[:150]]
        assert max(map(sent_in, reader.messages)) > 1
        assert max(map(len, reader.messages)) <= BYTES_MAX
        assert set(map(sent_in, old.messages)) == {1}


async def test_bad_element_is_answered_alone(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with connected(site, ann) as peer:
        bad = {"type": "send_message", "request_id": "bad", "payload": {}}
        peer.say(a_send(chat_id, 1, "one"), bad, 7, a_send(chat_id, 2, "two"))
        answers = [(one["type"], one.get("request_id")) for one in await peer.frames(4)]
        assert sorted(answers, key=str) == [
            ("error", "bad"),
            ("error", None),
            ("send_message_ack", "r1"),
            ("send_message_ack", "r2"),
        ]


async def test_array_of_256_heartbeats_costs_256(site: Site) -> None:
    [ann] = await site.people("ann")
    array = b"[" + b",".join([HEARTBEAT] * FRAMES_MAX) + b"]"
    async with connected(site, ann) as peer:
        for _ in range(3):
            peer.frame(TEXT, array)
        answers = await peer.frames(3 * FRAMES_MAX)
        taken = [one for one in answers if one["type"] == "heartbeat_ack"]
        # The rest of the third, but for the few that a slow machine gives time for.
        assert CONTROL_BURST <= len(taken) < 3 * FRAMES_MAX
        refused = [one for one in answers if one["type"] == "error"]
        assert {one["payload"]["code"] for one in refused} == {"RATE_LIMITED"}
