"""Peers that break every rule, on plain sockets. Slow: a real server, thousands of connections.

After each attack the server lives, has no connection or file left over, and two people who chatted
all the while have noticed nothing.
"""

import asyncio
import base64
import json
import os
import random
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from tests.e2e.chatting import PATIENCE_S, Account, Phone, Site, eventually, eventually_metric
from tests.edge.raw import BINARY, CLOSE, CONTINUATION, PING, TEXT, RawPeer, frame
from tests.support.cores import core_time, kept_waiting_s

pytestmark = pytest.mark.slow

HEADER_TIMEOUT_MS = 3_000
OTHERS_WAIT_S = 5.0
"""How long a message of others may take while somebody attacks. The time for which other programs
kept the server or this test from a core is not the attack's doing, and does not count."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(
        tmp_path_factory.mktemp("hostile"),
        server__header_timeout_ms=HEADER_TIMEOUT_MS,
        gateway__ping_interval_ms=500,
        # Longer than the one loop that attacks and chats is busy with a thousand sockets.
        gateway__pong_timeout_ms=5_000,
        gateway__user_connections_max=1_000,
        # A thousand at once are what these tests are about; the bounds themselves are others'.
        server__address_http_connections_max=2_000,
        server__address_connections_max=2_000,
        server__address_faults_per_minute=10_000,
    ) as site:
        yield site
        assert site.server.process.poll() is None
        assert site.complaints() == []


class Others:
    """Two people who chat, whatever happens around them."""

    def __init__(self, site: Site, chat_id: str, one: Phone, other: Phone) -> None:
        self.chat_id = chat_id
        self._pids = [*site.server.pids(), os.getpid()]
        self._one = one
        self._other = other
        self._count = 0

    async def talk(self) -> None:
        self._count += 1
        cores = [core_time(pid) for pid in self._pids]
        began_s = time.perf_counter()
        await self._one.say(self.chat_id, f"number {self._count}")
        await self._other.get("message", content=f"number {self._count}")
        took_s = time.perf_counter() - began_s
        for pid, before in zip(self._pids, cores, strict=True):
            took_s -= kept_waiting_s(before, core_time(pid))
        assert took_s < OTHERS_WAIT_S

    async def talk_while(self, attack: "asyncio.Task[None]") -> None:
        while not attack.done():
            await self.talk()
            await asyncio.sleep(0.01)
        await attack


@asynccontextmanager
async def unharmed(site: Site) -> AsyncIterator[tuple[Others, Account]]:
    """Others who chat before, during and after; in the end everything is as it was."""
    ann, bob, eve = await site.people("ann", "bob", "eve")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as one, site.phone(bob) as other:
        others = Others(site, chat_id, one, other)
        await others.talk()
        connections = await site.metric("gateway_connections_active")
        files = site.files()
        yield others, eve
        await others.talk()
        try:
            await eventually(lambda: site.open_files() <= len(files), "files stay open")
        except AssertionError:
            assert site.opened_since(files) == []
            raise
        # Those who left while their request was looked at are let in, and then gone.
        await eventually_metric(site, "gateway_connections_active", connections)
        assert not one.is_over
        assert not other.is_over
        history = await other.sync(chat_id)
        assert [m["content"] for m in history] == [f"number {n + 1}" for n in range(len(history))]


def upgrade_of(account: Account) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /v1/ws HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        *(f"{name}: {value}" for name, value in account.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def connected(site: Site, account: Account) -> RawPeer:
    """Past the handshake, with a good token."""
    peer = await RawPeer.connect(site.port)
    peer.send(upgrade_of(account))
    head = await peer.head()
    assert head.startswith(b"HTTP/1.1 101 "), head
    return peer


async def outlast(peer: RawPeer) -> bytes:
    """Read until the server ends the connection; everything that came."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await peer.reader.read()
        except ConnectionError:
            return b""


async def drop(peer: RawPeer) -> None:
    """Go away with a reset, as if the cable had been cut."""
    peer.writer.transport.abort()
    with suppress(ConnectionError):
        await peer.writer.wait_closed()


async def test_random_bytes_instead_of_http(site: Site) -> None:
    async with unharmed(site) as (others, _):

        async def attack() -> None:
            generator = random.Random(1)
            for _ in range(100):
                peer = await RawPeer.connect(site.port)
                peer.send(generator.randbytes(generator.randrange(1, 4_000)))
                if generator.random() < 0.5:
                    peer.writer.write_eof()
                    await outlast(peer)
                await drop(peer)

        await others.talk_while(asyncio.create_task(attack()))


async def test_random_bytes_instead_of_frames(site: Site) -> None:
    async with unharmed(site) as (others, eve):

        async def attack() -> None:
            generator = random.Random(2)
            for _ in range(60):
                peer = await connected(site, eve)
                peer.send(generator.randbytes(generator.randrange(1, 20_000)))
                peer.writer.write_eof()
                await outlast(peer)
                await drop(peer)

        await others.talk_while(asyncio.create_task(attack()))


async def test_random_json_in_good_frames(site: Site) -> None:
    types = ["send_message", "ack", "read", "sync_request", "digest_request", "typing_start", "x"]
    values: list[object] = [None, 0, -1, 2**63, 1e300, "", "\0", "a" * 5_000, [], {}, [[[]]], True]
    async with unharmed(site) as (others, eve):

        async def attack() -> None:
            generator = random.Random(3)
            for _ in range(20):
                peer = await connected(site, eve)
                for _ in range(30):
                    names = ["chat_id", "content", "client_message_id", "last_acked_sequence"]
                    payload = {name: generator.choice(values) for name in names}
                    said: dict[str, object] = {
                        "type": generator.choice(types),
                        "request_id": generator.choice(["r1", None, 7, "a" * 100]),
                        "payload": generator.choice([payload, None, [], "text"]),
                    }
                    peer.frame(TEXT, json.dumps(said).encode())
                assert await peer.close_code() == 1008
                await drop(peer)

        await others.talk_while(asyncio.create_task(attack()))


def _masked_wrongly() -> bytes:
    return frame(TEXT, b'{"type":"heartbeat","payload":{}}', mask=False)


BROKEN: dict[str, tuple[Callable[[], bytes], int]] = {
    "no mask": (_masked_wrongly, 1002),
    "reserved bits": (lambda: frame(TEXT, b"{}", rsv=4), 1002),
    "reserved opcode": (lambda: frame(0x3, b""), 1002),
    "reserved control opcode": (lambda: frame(0xB, b""), 1002),
    "continuation of nothing": (lambda: frame(CONTINUATION, b"x"), 1002),
    "text inside a text": (lambda: frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
    "fragmented ping": (lambda: frame(PING, b"", fin=False), 1002),
    "long ping": (lambda: frame(PING, b"x" * 126), 1002),
    "binary": (lambda: frame(BINARY, b"{}"), 1003),
    "not UTF-8": (lambda: frame(TEXT, b"\xff\xfe"), 1007),
    "too long": (lambda: frame(TEXT, b"x" * 70_000), 1009),
    "too long in parts": (
        lambda: b"".join(
            frame(TEXT if n == 0 else CONTINUATION, b"x" * 30_000, fin=False) for n in range(3)
        ),
        1009,
    ),
    "huge length": (lambda: b"\x81\xff" + struct.pack("!Q", 2**62) + b"abcd", 1009),
    "length with the top bit": (lambda: b"\x81\xff" + struct.pack("!Q", 2**64 - 1) + b"ab", 1002),
}


async def test_broken_frames_are_closed_with_their_code(site: Site) -> None:
    async with unharmed(site) as (others, eve):
        codes: dict[str, int] = {}
        for name, (make, _) in BROKEN.items():
            peer = await connected(site, eve)
            peer.send(make())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    codes[name] = await peer.close_code()
            except (asyncio.IncompleteReadError, ConnectionError):
                codes[name] = 0
            await drop(peer)
            await others.talk()
        expected = {name: code for name, (_, code) in BROKEN.items()}
        assert codes == expected


async def test_truncated_frames_and_sudden_ends(site: Site) -> None:
    async with unharmed(site) as (others, eve):

        async def attack() -> None:
            generator = random.Random(4)
            whole = frame(TEXT, json.dumps({"type": "heartbeat", "payload": {}}).encode() * 20)
            for _ in range(60):
                peer = await connected(site, eve)
                peer.send(whole[: generator.randrange(1, len(whole))])
                if generator.random() < 0.5:
                    peer.writer.write_eof()
                    await outlast(peer)
                await drop(peer)

        await others.talk_while(asyncio.create_task(attack()))


async def test_frames_byte_by_byte_are_understood(site: Site) -> None:
    async with unharmed(site) as (_, eve):
        peer = await connected(site, eve)
        data = frame(TEXT, b'{"type":"heartbeat","request_id":"slow","payload":{}}')
        for index in range(len(data)):
            peer.send(data[index : index + 1])
            await peer.writer.drain()
        while True:
            opcode, payload = await peer.receive()
            if opcode == TEXT and json.loads(payload).get("request_id") == "slow":
                break
        peer.frame(CLOSE, struct.pack("!H", 1000))
        await outlast(peer)
        await drop(peer)


async def test_slow_loris_handshakes_are_ended(site: Site) -> None:
    async with unharmed(site) as (others, eve):

        async def drip(head: bytes) -> None:
            peer = await RawPeer.connect(site.port)
            ended = asyncio.create_task(outlast(peer))
            for index in range(len(head) - 2):
                peer.send(head[index : index + 1])
                done, _ = await asyncio.wait({ended}, timeout=0.02)
                if done:
                    break
            assert ended.done(), "the server waited for the whole head"
            assert b"101" not in await ended
            await drop(peer)

        async def attack() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(50):
                    group.create_task(drip(upgrade_of(eve)))

        await others.talk_while(asyncio.create_task(attack()))


def begin_handshakes(site: Site, head: bytes) -> list[socket.socket]:
    """A thousand sockets that have said a part of their request, each another one. The server
    stands still meanwhile, so that it meets them all at once, however long this takes."""
    peers = []
    with stopped(site.server.pids()):
        for number in range(1_000):
            peer = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_S)
            peer.sendall(head[: number % (len(head) - 4)])
            peers.append(peer)
    return peers


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def outlast_all(peers: list[socket.socket]) -> list[bytes]:
    """Read until the server has ended every one of them; what each was told."""
    answers = []
    for peer in peers:
        with peer:
            answer = b""
            with suppress(ConnectionError):
                while part := peer.recv(4_096):
                    answer += part
            answers.append(answer)
    return answers


async def test_thousand_half_open_handshakes(site: Site) -> None:
    async with unharmed(site) as (others, eve):

        async def attack() -> None:
            # In a thread: a thousand streams would keep the loop from those who chat on it.
            peers = await asyncio.to_thread(begin_handshakes, site, upgrade_of(eve))
            try:
                await eventually(lambda: site.open_files() >= 1_000, "they are not held at once")
                # The server ends them all; not one of them has to be dropped by us.
                answers = await asyncio.to_thread(outlast_all, peers)
            finally:
                for peer in peers:
                    peer.close()
            assert not any(b" 101 " in answer for answer in answers)

        await others.talk_while(asyncio.create_task(attack()))


async def test_peer_that_went_silent_is_found(site: Site) -> None:
    async with unharmed(site) as (_, eve):
        peer = await connected(site, eve)
        # Reads, but never answers a ping: as good as a cable that was cut.
        came: dict[int, bytes] = {}
        async with asyncio.timeout(PATIENCE_S):
            while CLOSE not in came:
                opcode, payload = await peer.receive()
                came[opcode] = payload
        assert PING in came
        assert came[CLOSE] == struct.pack("!H", 4000) + b"idle_timeout"
        await drop(peer)


async def test_peers_that_leave_in_the_middle_of_the_handshake(site: Site) -> None:
    async with unharmed(site) as (others, eve):

        async def attack() -> None:
            for _ in range(200):
                peer = await RawPeer.connect(site.port)
                peer.send(upgrade_of(eve))
                await drop(peer)

        await others.talk_while(asyncio.create_task(attack()))


async def test_broken_upgrades_get_an_answer_and_no_connection(site: Site) -> None:
    async with unharmed(site) as (others, eve):
        whole = upgrade_of(eve).decode()
        key = next(line for line in whole.splitlines() if line.startswith("Sec-WebSocket-Key"))
        broken = {
            "no key": whole.replace(f"{key}\r\n", ""),
            "short key": whole.replace(key, "Sec-WebSocket-Key: abc"),
            "old version": whole.replace("Version: 13", "Version: 8"),
            "no version": whole.replace("Sec-WebSocket-Version: 13\r\n", ""),
            "posted": whole.replace("GET ", "POST ", 1),
            "another path": whole.replace("/v1/ws", "/v1/ws/../ws", 1),
            "another protocol version": whole.replace("/v1/ws", "/v2/ws", 1),
            "no device": whole.replace(eve.device_id, ""),
        }
        for name, request in broken.items():
            peer = await RawPeer.connect(site.port)
            peer.send(request.encode())
            async with asyncio.timeout(PATIENCE_S):
                status = (await peer.reader.readline()).split(b" ")[1]
            assert status.startswith(b"4"), (name, status)
            assert b"Traceback" not in await outlast(peer)
            await drop(peer)
        await others.talk()


async def test_bodies_that_never_end_are_ended(site: Site) -> None:
    async with unharmed(site) as (others, _):

        async def attack() -> None:
            head = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\n"
            length = b"Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
            peers = await asyncio.gather(*(RawPeer.connect(site.port) for _ in range(50)))
            for peer in peers:
                peer.send(head + length)
            await asyncio.gather(*map(outlast, peers))
            for peer in peers:
                await drop(peer)

        await others.talk_while(asyncio.create_task(attack()))
