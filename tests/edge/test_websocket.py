"""WebSocket rules on a real socket: what the library does, and what it leaves to us (RFC 6455)."""

import gc
import json
import ssl
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest

from tests.edge.conftest import EchoGateway, edge_server
from tests.edge.raw import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawPeer, frame
from tests.support.certificates import make_files
from tidewire.domain.limits import FRAME_BYTES_MAX
from tidewire.edge.options import EdgeOptions
from tidewire.edge.server import EdgeServer
from tidewire.wire.framing import frame_text

OF_A_HANDSHAKE = {"HttpProtocol", "UpgradeProtocol", "Logger", "CIMultiDict", "WSUpgradeResponse"}


async def test_http_and_websocket_share_a_port(server: EdgeServer, gateway: EchoGateway) -> None:
    plain = await RawPeer.connect(server.port)
    plain.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"hello" in await plain.reader.read()
    await plain.end()
    peer = await RawPeer.upgraded(server.port)
    peer.frame(TEXT, b"hi")
    assert await peer.receive() == (TEXT, b"hi")
    await peer.end()
    await gateway.conversations[0].is_lost.wait()
    assert not gateway.conversations[0].is_closed_by_peer


async def test_refusal_is_an_http_answer_and_reveals_nothing(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    peer = await RawPeer.connect(server.port)
    peer.send(
        b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    answer = await peer.reader.read()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.endswith(b'{"error":"invalid_token","message":"bad token"}')
    await peer.end()
    gateway.is_broken = True
    peer = await RawPeer.connect(server.port)
    head = await peer.upgrade()
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"secret" not in head + await peer.reader.read()
    await peer.end()


async def test_nothing_is_read_while_the_upgrade_is_undecided(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    gateway.gate.clear()
    peer = await RawPeer.connect(server.port)
    peer.ask()
    await gateway.asked.wait()
    peer.frame(TEXT, b"too early")
    gateway.gate.set()
    assert (await peer.head()).startswith(b"HTTP/1.1 101 ")
    assert await peer.receive() == (TEXT, b"too early")
    await peer.end()


@pytest.mark.parametrize("is_reset", [False, True])
async def test_peer_that_leaves_while_undecided_is_never_a_conversation(
    server: EdgeServer, gateway: EchoGateway, *, is_reset: bool
) -> None:
    """It would take the place of the same device, which has come back meanwhile."""
    gateway.gate.clear()
    peer = await RawPeer.connect(server.port)
    peer.ask()
    await gateway.asked.wait()
    if is_reset:
        linger = struct.pack("ii", 1, 0)
        peer.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
    await peer.end()
    gateway.gate.set()
    follower = await RawPeer.upgraded(server.port)
    follower.frame(TEXT, b"hi")
    assert await follower.receive() == (TEXT, b"hi")
    await follower.end()
    assert len(gateway.conversations) == 1


GOOD_KEY = "Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw=="


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("POST", GOOD_KEY),
        ("GET", "X-Other: no key at all"),
        ("GET", "Sec-WebSocket-Key: short"),
        ("GET", "Sec-WebSocket-Key: ????????????????????????"),
        ("GET", f"{GOOD_KEY}\r\n{GOOD_KEY}"),
        ("GET", f"{GOOD_KEY}\r\nContent-Length: 3"),
    ],
)
async def test_faulty_handshake_is_refused_in_flat_json(
    server: EdgeServer, method: str, key: str
) -> None:
    peer = await RawPeer.connect(server.port)
    peer.send(
        f"{method} /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n{key}\r\n\r\n".encode()
    )
    head = await peer.head()
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json")
    refusal = json.loads(await peer.reader.read())
    assert (set(refusal), refusal["error"]) == ({"error", "message"}, "invalid_request")
    await peer.end()


async def test_handshake_of_firefox_is_taken(server: EdgeServer) -> None:
    peer = await RawPeer.connect(server.port)
    peer.send(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Authorization: Bearer good\r\n" + GOOD_KEY.encode() + b"\r\n\r\n"
    )
    assert (await peer.head()).startswith(b"HTTP/1.1 101 ")
    peer.frame(TEXT, b"hello")
    assert await peer.receive() == (TEXT, b"hello")
    await peer.end()


async def test_subprotocol_is_answered_when_it_was_asked_for(server: EdgeServer) -> None:
    peer = await RawPeer.connect(server.port)
    head = await peer.upgrade("Sec-WebSocket-Protocol: tidewire.v1, bearer.x\r\n")
    assert b"sec-websocket-protocol: tidewire.v1\r\n" in head.lower()
    await peer.end()


async def test_fragments_are_put_together_with_control_frames_between(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    peer = await RawPeer.upgraded(server.port)
    peer.frame(TEXT, "grü".encode()[:3], fin=False)
    peer.frame(PING, b"still there?")
    peer.frame(CONTINUATION, "grü".encode()[3:] + b"n", fin=True)
    assert await peer.receive() == (PONG, b"still there?")
    assert await peer.receive() == (TEXT, "grün".encode())
    assert gateway.conversations[0].pongs == 1
    await peer.end()


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([frame(BINARY, b"x")], 1003),
        ([frame(TEXT, b"\xff")], 1007),
        ([frame(TEXT, b"\xc3", fin=False), frame(CONTINUATION, b"(")], 1007),
        ([frame(TEXT, b"x", rsv=4)], 1002),
        ([frame(PING, b"x", rsv=1)], 1002),
        ([frame(CONTINUATION, b"x")], 1002),
        ([frame(TEXT, b"x", fin=False), frame(TEXT, b"y")], 1002),
        ([frame(TEXT, b"x", mask=False)], 1002),
        ([frame(0x3, b"x")], 1002),
        ([frame(PING, b"x" * 126)], 1002),
        ([frame(PING, b"x", fin=False)], 1002),
        ([frame(TEXT, b"x" * (FRAME_BYTES_MAX + 1))], 1009),
        (
            [
                frame(TEXT, b"x" * FRAME_BYTES_MAX, fin=False),
                frame(CONTINUATION, b"y"),
            ],
            1009,
        ),
    ],
)
async def test_broken_rule_closes_with_its_code_and_others_go_on(
    server: EdgeServer, gateway: EchoGateway, frames: list[bytes], code: int
) -> None:
    other = await RawPeer.upgraded(server.port)
    peer = await RawPeer.upgraded(server.port)
    for one in frames:
        peer.send(one)
    assert await peer.close_code() == code
    # picows goes on parsing after an error of its own; the gateway must not hear of it.
    assert gateway.conversations[-1].texts == []
    await peer.end()
    other.frame(TEXT, b"still here")
    assert await other.receive() == (TEXT, b"still here")
    await other.end()


async def test_message_of_exactly_the_size_cap_passes(server: EdgeServer) -> None:
    peer = await RawPeer.upgraded(server.port)
    peer.frame(TEXT, b"x" * FRAME_BYTES_MAX)
    assert await peer.receive() == (TEXT, b"x" * FRAME_BYTES_MAX)
    await peer.end()


async def test_close_of_the_peer_is_answered_with_its_code(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    peer = await RawPeer.upgraded(server.port)
    peer.frame(CLOSE, (1001).to_bytes(2, "big") + b"bye")
    assert await peer.receive() == (CLOSE, (1001).to_bytes(2, "big"))
    assert await peer.reader.read() == b""
    await gateway.conversations[0].is_lost.wait()
    assert gateway.conversations[0].is_closed_by_peer
    await peer.end()


async def test_what_a_peer_says_right_before_its_close_is_heard_and_answered(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    """picows knows of the close while the text before it, in the same packet, is handled."""
    peer = await RawPeer.upgraded(server.port)
    goodbye = (1000).to_bytes(2, "big")
    peer.send(frame(TEXT, b"first") + frame(TEXT, b"last words") + frame(CLOSE, goodbye))
    assert await peer.receive() == (TEXT, b"first")
    assert await peer.receive() == (TEXT, b"last words")
    assert await peer.receive() == (CLOSE, goodbye)
    await gateway.conversations[0].is_lost.wait()
    await peer.end()


async def test_gateway_closes_with_a_code_and_nothing_is_sent_after_it(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    peer = await RawPeer.upgraded(server.port)
    peer.frame(TEXT, b"hi")
    assert await peer.receive() == (TEXT, b"hi")
    [conversation] = gateway.conversations
    conversation.transport.close(1008, "slow_consumer")
    conversation.transport.write(b"never seen")
    conversation.transport.close(1000, "again")
    assert await peer.receive() == (CLOSE, (1008).to_bytes(2, "big") + b"slow_consumer")
    await peer.end()


async def test_unsent_bytes_grow_when_the_peer_does_not_read(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    peer = await RawPeer.upgraded(server.port)
    peer.frame(TEXT, b"hi")
    assert await peer.receive() == (TEXT, b"hi")
    [conversation] = gateway.conversations
    assert conversation.transport.unsent_bytes() == 0
    for _ in range(200):
        conversation.transport.write(b"x" * 65_536)
    assert conversation.transport.unsent_bytes() > 1_000_000
    await peer.end()


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "tls"])
async def test_gateway_is_told_each_time_that_unsent_bytes_have_drained(
    gateway: EchoGateway, tmp_path: Path, *, is_secured: bool
) -> None:
    """What waits for it (the next page of a sync) would wait for ever without it."""
    options, tls = EdgeOptions(port=0), None
    if is_secured:
        ca, cert, key = make_files(tmp_path)
        options, tls = replace(options, tls_cert=cert, tls_key=key), ssl.create_default_context()
        tls.load_verify_locations(ca)
    async with edge_server(gateway, options) as server:
        peer = await RawPeer.upgraded(server.port, tls=tls)
        peer.frame(TEXT, b"hi")
        assert await peer.receive() == (TEXT, b"hi")
        [conversation] = gateway.conversations
        conversation.transport.tell_drained_below(50_000)
        for count in (1, 2, 3):
            conversation.heard.clear()
            for _ in range(200):
                conversation.transport.write(frame_text(b"x" * 65_536))
            assert conversation.transport.unsent_bytes() > 1_000_000
            assert conversation.drains == count - 1
            for _ in range(200):
                assert len((await peer.receive())[1]) == 65_536
            await conversation.heard.wait()
            assert conversation.drains == count
            assert conversation.transport.unsent_bytes() <= 50_000
        await peer.end()


async def test_ping_of_ours_brings_a_pong(server: EdgeServer, gateway: EchoGateway) -> None:
    peer = await RawPeer.upgraded(server.port)
    peer.frame(TEXT, b"hi")
    await peer.receive()
    [conversation] = gateway.conversations
    conversation.transport.ping()
    opcode, payload = await peer.receive()
    assert opcode == PING
    peer.frame(PONG, payload)
    await conversation.heard.wait()
    await peer.end()


async def test_open_websocket_keeps_nothing_of_its_handshake(
    server: EdgeServer, gateway: EchoGateway
) -> None:
    """Thousands are open and quiet: what was needed once to make them would be most of them."""

    def kept() -> Counter[str]:
        names = [type(one).__name__ for one in gc.get_objects()]
        return Counter(name for name in names if name in OF_A_HANDSHAKE)

    await (await RawPeer.upgraded(server.port)).end()
    gc.collect()
    gc.disable()
    try:
        before = kept()
        peers = [await RawPeer.upgraded(server.port) for _ in range(3)]
        for peer in peers:
            peer.frame(TEXT, b"hi")
            assert await peer.receive() == (TEXT, b"hi")
        more = kept() - before
    finally:
        gc.enable()
    for peer in peers:
        await peer.end()
    assert more == Counter()
