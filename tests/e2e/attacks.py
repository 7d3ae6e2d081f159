"""Attackers on plain sockets, in a process of their own. Holds no test.

Each attack sends bytes that were made before, from an address of its own, for a bounded time, and
says what became of its connections. They are cheap on purpose: server, talkers and attackers share
one machine. `tests.e2e.siege` starts this program: `python -m tests.e2e.attacks NAME`, with the
order as JSON on standard input and the outcome as JSON on standard output.
"""

import base64
import json
import os
import re
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.edge.raw import CONTINUATION, PING, PONG, TEXT

BUFFER_BYTES: Final = 64 * 1024
"""What the kernel holds of theirs, so that "sent" means "taken by the server", nearly."""
LINGER_S: Final = 3.0
"""How long after an attack the server may take to close what it has decided to close."""
PATIENCE_S: Final = 60.0
"""How long an attack that has to be refused goes on: on a busy machine it takes a while to ask as
often as the limit allows."""
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_MASK: Final = b"\0\0\0\0"


class Order(NamedTuple):
    """Whom to attack, for how long, and with which account."""

    port: int
    address: str
    """Where it comes from: elsewhere than the people whom it disturbs."""
    seconds: float
    devices: list[dict[str, str]]
    """Headers of one account on several devices."""
    chat_id: str


@dataclass(slots=True)
class Outcome:
    """What became of an attack."""

    connections: int = 0
    closed: int = 0
    """Connections that the server ended."""
    sent_bytes: int = 0
    received_bytes: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    """HTTP status codes, and close codes of WebSockets."""


class Attacker:
    """What all attacks need."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.outcome = Outcome()
        self.ends_at_s = time.monotonic() + order.seconds
        self.gives_up_at_s = self.ends_at_s + PATIENCE_S
        self.address = order.address
        self.answers: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_at_s

    @property
    def is_refused_and_over(self) -> bool:
        is_refused = self.answers["429"] > 0 or self.outcome.closed > 0
        return self.is_over and (is_refused or time.monotonic() >= self.gives_up_at_s)

    def connect(self) -> socket.socket:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES // 2)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES // 2)
        peer.bind((self.address, 0))
        peer.settimeout(5.0)
        peer.connect(("127.0.0.1", self.order.port))
        peer.settimeout(0.2)
        with self.lock:
            self.outcome.connections += 1
        return peer

    def upgraded(self, number: int = 0, *, features: str = "") -> socket.socket:
        """A WebSocket of the attacker's account."""
        peer = self.connect()
        offer = {"X-Tidewire-Features": features} if features else {}
        peer.sendall(upgrade_head(self.order.devices[number] | offer))
        peer.settimeout(5.0)
        head = b""
        while b"\r\n\r\n" not in head:
            head += peer.recv(1)
        assert b" 101 " in head, head
        peer.settimeout(0.2)
        return peer

    def flood(self, peer: socket.socket, chunk: bytes, *, is_reading: bool = False) -> None:
        """Send the same bytes again and again, until the server ends it or time is up."""
        sent_bytes = 0
        is_closed = False
        at = 0
        view = memoryview(chunk)
        try:
            while not self.is_over:
                try:
                    count = peer.send(view[at:])
                    sent_bytes += count
                    at = (at + count) % len(chunk)
                except TimeoutError:
                    pass
                if is_reading:
                    self.read_some(peer)
        except ConnectionError:
            is_closed = True
        if not is_closed:
            is_closed = self.outlast(peer)
        self.count(sent_bytes=sent_bytes, closed=int(is_closed))

    def read_some(self, peer: socket.socket) -> None:
        """What has come so far. Raises ConnectionError at the end of it."""
        if not has_come(peer):
            return
        data = peer.recv(BUFFER_BYTES)
        if not data:
            raise ConnectionResetError
        self.heard(data)

    def outlast(self, peer: socket.socket) -> bool:
        """True if the server ends the connection soon."""
        ends_at_s = time.monotonic() + LINGER_S
        peer.settimeout(LINGER_S)
        try:
            while time.monotonic() < ends_at_s:
                data = peer.recv(BUFFER_BYTES)
                if not data:
                    return True
                self.heard(data)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return False

    def heard(self, data: bytes) -> None:
        statuses = [found.decode() for found in _STATUS.findall(data)]
        with self.lock:
            self.outcome.received_bytes += len(data)
            self.answers.update(statuses)

    def count(self, *, sent_bytes: int = 0, closed: int = 0) -> None:
        with self.lock:
            self.outcome.sent_bytes += sent_bytes
            self.outcome.closed += closed

    def on_many(self, count: int, work: Callable[[int], None]) -> None:
        """The same on several sockets at once."""
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def ask_again_and_again(self, request: bytes, connections: int = 4) -> None:
        """Requests one after the other, each answer read, on a few connections that are made anew
        when the server ends one. Goes on until it was refused."""

        def work(_: int) -> None:
            while not self.is_refused_and_over:
                try:
                    with self.connect() as peer:
                        self._ask_on(peer, request)
                except OSError:
                    self.count(closed=1)

        self.on_many(connections, work)

    def _ask_on(self, peer: socket.socket, request: bytes) -> None:
        while not self.is_refused_and_over:
            peer.settimeout(2.0)
            peer.sendall(request)
            self.count(sent_bytes=len(request))
            data = read_answer(peer)
            if not data:
                raise ConnectionResetError
            self.heard(data)

    def with_another(self, address: str, attack: Callable[["Attacker"], None]) -> None:
        """Let another one attack from its own address, and count what becomes of it as ours."""
        other = Attacker(self.order)
        other.ends_at_s = self.ends_at_s
        other.gives_up_at_s = self.gives_up_at_s
        other.address = address
        attack(other)
        with self.lock:
            self.outcome.connections += other.outcome.connections
            self.outcome.closed += other.outcome.closed
            self.outcome.sent_bytes += other.outcome.sent_bytes
            self.outcome.received_bytes += other.outcome.received_bytes
            self.answers.update(other.answers)

    def finished(self) -> Outcome:
        self.outcome.answers = dict(self.answers)
        return self.outcome


def has_come(peer: socket.socket) -> bool:
    """True if there is something to read, be it the end."""
    waiting = select.poll()
    waiting.register(peer, select.POLLIN)
    return bool(waiting.poll(0))


def read_answer(peer: socket.socket) -> bytes:
    """One answer with a Content-Length; what came of it if the server ends the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = peer.recv(BUFFER_BYTES)
        if not part:
            return data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    missing = size - len(body)
    while missing > 0:
        part = peer.recv(BUFFER_BYTES)
        if not part:
            break
        missing -= len(part)
        data += part
    return data


def upgrade_head(headers: dict[str, str], *, key: str | None = None) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode() if key is None else key
    lines = [
        "GET /v1/ws HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def masked(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A client's frame. A mask of zeros is legal, and cheap."""
    head = bytes([(0x80 if fin else 0) | opcode])
    if len(payload) < 126:
        head += bytes([0x80 | len(payload)])
    elif len(payload) < 65_536:
        head += bytes([0x80 | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", len(payload))
    return head + _MASK + payload


def _text(content: dict[str, object]) -> bytes:
    return masked(TEXT, json.dumps(content).encode())


def _filled(frame: bytes, size: int = BUFFER_BYTES) -> bytes:
    return frame * max(1, size // len(frame))


_GET: Final = "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


# The attacks. Without an account.


def endless_headers(attacker: Attacker) -> None:
    with attacker.connect() as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\n")
        attacker.flood(peer, _filled(b"X-Field: 0123456789\r\n"))


def endless_header_value(attacker: Attacker) -> None:
    with attacker.connect() as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nX-Field: ")
        attacker.flood(peer, b"a" * BUFFER_BYTES)


def endless_address(attacker: Attacker) -> None:
    with attacker.connect() as peer:
        peer.sendall(b"GET /")
        attacker.flood(peer, b"a" * BUFFER_BYTES)


def endless_empty_lines(attacker: Attacker) -> None:
    with attacker.connect() as peer:
        attacker.flood(peer, b"\r\n" * (BUFFER_BYTES // 2))


def pipelined_unread(attacker: Attacker) -> None:
    chunk = _filled(_GET.format(path="/api/v1/").encode())

    def work(_: int) -> None:
        with attacker.connect() as peer:
            attacker.flood(peer, chunk)

    attacker.on_many(10, work)


def pipelined_read(attacker: Attacker) -> None:
    chunk = _filled(_GET.format(path="/api/v1/").encode())
    with attacker.connect() as peer:
        attacker.flood(peer, chunk, is_reading=True)


def endless_body(attacker: Attacker) -> None:
    head = "POST /api/v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000\r\n\r\n"
    with attacker.connect() as peer:
        peer.sendall(head.encode())
        attacker.flood(peer, b"a" * BUFFER_BYTES)


def endless_chunks(attacker: Attacker) -> None:
    head = (
        "POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with attacker.connect() as peer:
        peer.sendall(head.encode())
        attacker.flood(peer, _filled(b"4\r\n\r\n\r\n\r\n"))


def endless_trailer(attacker: Attacker) -> None:
    head = (
        "POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with attacker.connect() as peer:
        peer.sendall(head.encode() + b"0\r\nX-Field: ")
        attacker.flood(peer, b"a" * BUFFER_BYTES)


def many_connections(attacker: Attacker) -> None:
    peers = []
    try:
        for _ in range(3_000):
            if attacker.is_over:
                break
            with suppress(OSError):
                peer = attacker.connect()
                peers.append(peer)
                peer.sendall(b"GET /healthz HTTP/1.1\r\nX-Field: " + b"a" * 30_000)
    finally:
        while not attacker.is_over:
            time.sleep(0.05)
        for peer in peers:
            # A refusal, or a reset.
            attacker.count(closed=int(has_come(peer)))
            peer.close()


def not_http(attacker: Attacker) -> None:
    attacker.ask_again_and_again(b"\x16\x03\x01 this is not HTTP\r\n\r\n")


def description(attacker: Attacker) -> None:
    request = _GET.format(path="/api/v1/openapi.json").encode()
    attacker.ask_again_and_again(request, connections=20)


def long_unknown_paths(attacker: Attacker) -> None:
    attacker.ask_again_and_again(_GET.format(path="/" + "a" * 30_000).encode())


def probes(attacker: Attacker) -> None:
    paths = ("/healthz", "/readyz", "/metrics", "/api/v1/health")

    def work(number: int) -> None:
        request = _GET.format(path=paths[number]).encode()
        attacker.with_another(attacker.address, lambda each: each.ask_again_and_again(request, 2))

    attacker.on_many(len(paths), work)


def guessed_passwords(attacker: Attacker) -> None:
    """From many addresses, at many names: each guess costs a hash. Few get so far as a refusal."""
    attacker.gives_up_at_s = attacker.ends_at_s

    def work(number: int) -> None:
        body = json.dumps(
            {
                "username": f"somebody{number}",
                "password": "not the right one",
                "device_id": "6f1c2b5e-0d8a-4c56-9a3f-0c2f6a0b7a11",
            }
        )
        request = (
            "POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        address = f"127.0.1.{number + 1}"
        attacker.with_another(address, lambda each: each.ask_again_and_again(request, 1))

    attacker.on_many(20, work)


def broken_upgrades(attacker: Attacker) -> None:
    attacker.ask_again_and_again(upgrade_head({}, key="abc"))


def refused_upgrades(attacker: Attacker) -> None:
    headers = {
        "Authorization": "Bearer x.y.z",
        "X-Device-ID": "00000000-0000-0000-0000-000000000000",
    }
    attacker.ask_again_and_again(upgrade_head(headers))


# With an account.


def ping_burst(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        attacker.flood(peer, _filled(masked(PING), 5_000_000), is_reading=True)


def ping_unread(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        attacker.flood(peer, _filled(masked(PING, b"a" * 125)))


def pongs(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        attacker.flood(peer, _filled(masked(PONG)))


def empty_fragments(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        peer.sendall(masked(TEXT, fin=False))
        attacker.flood(peer, _filled(masked(CONTINUATION, fin=False)))


def unknown_types(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        frame = _text({"type": "dance", "request_id": "r", "payload": {}})
        attacker.flood(peer, _filled(frame), is_reading=True)


def silent_unknown_types(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        attacker.flood(peer, _filled(_text({"type": "dance", "payload": {}})))


def escapes(attacker: Attacker) -> None:
    said = b'{"type":"send_message","request_id":"r","payload":{"content":"' + b"\\u0041" * 10_800
    with attacker.upgraded() as peer:
        attacker.flood(peer, masked(TEXT, said), is_reading=True)


def lone_surrogates(attacker: Attacker) -> None:
    said = b'{"type":"heartbeat","request_id":"r","payload":{"x":"' + b"\\ud800" * 10_000 + b'"}}'
    with attacker.upgraded() as peer:
        attacker.flood(peer, masked(TEXT, said), is_reading=True)


def heartbeats(attacker: Attacker) -> None:
    with attacker.upgraded() as peer:
        frame = _text({"type": "heartbeat", "request_id": "r", "payload": {}})
        attacker.flood(peer, _filled(frame), is_reading=True)


def arrays_of_heartbeats(attacker: Attacker) -> None:
    """As many as one array may have, again and again."""
    beats = b",".join([b'{"type":"heartbeat","request_id":"r","payload":{}}'] * 256)
    with attacker.upgraded(features="batch") as peer:
        attacker.flood(peer, masked(TEXT, b"[" + beats + b"]"), is_reading=True)


def arrays_of_unknown_types(attacker: Attacker) -> None:
    """64 KB in 256 elements that are looked at one by one, and are not counted as invalid."""
    unknown = b",".join([b'{"type":"dance","x":"' + b"\\u0041" * 38 + b'"}'] * 256)
    with attacker.upgraded(features="batch") as peer:
        attacker.flood(peer, masked(TEXT, b"[" + unknown + b"]"), is_reading=True)


def arrays_of_garbage(attacker: Attacker) -> None:
    """64 KB each: more elements than an array may have, or deeper than one may be."""
    garbage = masked(TEXT, b"[" + b",".join([b"0"] * 32_767) + b"]") + masked(TEXT, b"[" * 65_000)

    def work(number: int) -> None:
        with attacker.upgraded(number, features="batch") as peer:
            attacker.flood(peer, garbage, is_reading=True)

    attacker.on_many(len(attacker.order.devices), work)


def syncs(attacker: Attacker) -> None:
    frame = _text(
        {
            "type": "sync_request",
            "request_id": "r",
            "payload": {"chat_id": attacker.order.chat_id, "last_acked_sequence": 0, "limit": 500},
        }
    )

    def work(number: int) -> None:
        with attacker.upgraded(number) as peer:
            # As many as may wait, and one more for each answer: not one of them is refused.
            peer.sendall(frame * 50)
            marks = 0
            while not attacker.is_over:
                try:
                    data = peer.recv(BUFFER_BYTES)
                except TimeoutError:
                    continue
                except ConnectionError:
                    data = b""
                if not data:
                    attacker.count(closed=1)
                    return
                attacker.heard(data)
                found = data.count(b'"sync_response"')
                marks += found
                if found:
                    peer.sendall(frame * found)
            attacker.count(sent_bytes=marks * len(frame))

    attacker.on_many(len(attacker.order.devices), work)


ATTACKS: Final[dict[str, Callable[[Attacker], None]]] = {
    attack.__name__: attack
    for attack in (
        endless_headers,
        endless_header_value,
        endless_address,
        endless_empty_lines,
        pipelined_unread,
        pipelined_read,
        endless_body,
        endless_chunks,
        endless_trailer,
        many_connections,
        not_http,
        description,
        long_unknown_paths,
        probes,
        guessed_passwords,
        broken_upgrades,
        refused_upgrades,
        ping_burst,
        ping_unread,
        pongs,
        empty_fragments,
        unknown_types,
        silent_unknown_types,
        escapes,
        lone_surrogates,
        heartbeats,
        arrays_of_heartbeats,
        arrays_of_unknown_types,
        arrays_of_garbage,
        syncs,
    )
}


def main() -> None:
    # An attacker has a machine of its own; here it comes after the others, but gets its turns.
    os.nice(5)
    order = Order(**json.loads(sys.stdin.read()))
    attacker = Attacker(order)
    ATTACKS[sys.argv[1]](attacker)
    outcome = attacker.finished()
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}))


if __name__ == "__main__":
    main()
