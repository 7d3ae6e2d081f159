"""A sketch, not a product: the least that any server of this kind has to do.

It decodes, numbers and stores with a sync what it does not have already, acknowledges and pushes;
nothing else. Users and chats are made up by name: a user connects to `/<user>`, and a chat's id is
its members joined by dashes. `python -m tidewire_bench.sketch_server DIRECTORY --port PORT`
"""

import argparse
import asyncio
import sqlite3
import threading
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from picows import (
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    ws_create_server,
)

BATCH_MAX: Final = 512
SCHEMA: Final = """
PRAGMA journal_mode = wal;
PRAGMA synchronous = full;
PRAGMA cache_size = -65536;
PRAGMA wal_autocheckpoint = 4000;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY, chat TEXT, sequence INTEGER, id TEXT, sender TEXT, key TEXT,
    content TEXT, at INTEGER, UNIQUE (chat, sequence), UNIQUE (chat, key)
);
CREATE TABLE positions (
    user TEXT, chat TEXT, sequence INTEGER, PRIMARY KEY (user, chat)
) WITHOUT ROWID;
"""
FIND: Final = "SELECT sequence, id FROM messages WHERE chat = ? AND key = ?"
INSERT: Final = """
INSERT INTO messages (chat, sequence, id, sender, key, content, at) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
MOVE: Final = """
INSERT INTO positions VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET sequence = max(sequence, excluded.sequence)
"""


class Send(msgspec.Struct, tag="send_message", tag_field="type"):
    request_id: str
    client_message_id: str
    chat_id: str
    content: str


class Ack(msgspec.Struct, tag="ack", tag_field="type"):
    chat_id: str
    last_acked_sequence: int


class SendAck(msgspec.Struct, tag="send_message_ack", tag_field="type"):
    request_id: str
    sequence: int
    message_id: str


class Push(msgspec.Struct, tag="message", tag_field="type"):
    chat_id: str
    sequence: int
    message_id: str
    sender_id: str
    content: str
    created_at: int


_decode = msgspec.json.Decoder[Send | Ack](Send | Ack).decode
_encode = msgspec.json.Encoder().encode

Waiting = tuple[WSTransport, str, Send]
Stored = tuple[WSTransport, str, Send, int, str, int]


class Sketch:
    """Who is connected, what waits to be stored, and the thread that stores it."""

    def __init__(self, file: Path) -> None:
        self.connected: defaultdict[str, set[WSTransport]] = defaultdict(set)
        self.waiting: deque[Waiting] = deque()
        self.positions: dict[tuple[str, str], int] = {}
        self.work = threading.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._write, args=(file,), daemon=True).start()

    def _write(self, file: Path) -> None:
        database = sqlite3.connect(file, isolation_level=None)
        database.executescript(SCHEMA)
        heads: defaultdict[str, int] = defaultdict(int)
        count = 0
        while True:
            self.work.wait()
            self.work.clear()
            while self.waiting:
                now_ms = int(time.time() * 1000)
                stored: list[Stored] = []
                rows = []
                database.execute("BEGIN IMMEDIATE")
                while self.waiting and len(stored) < BATCH_MAX:
                    transport, user, send = self.waiting.popleft()
                    chat, key = send.chat_id, send.client_message_id
                    known = database.execute(FIND, (chat, key)).fetchone()
                    if known is not None:
                        stored.append((transport, user, send, *known, now_ms))
                        continue
                    count += 1
                    heads[chat] += 1
                    sequence, message_id = heads[chat], f"msg_{count:026d}"
                    rows.append((chat, sequence, message_id, user, key, send.content, now_ms))
                    stored.append((transport, user, send, sequence, message_id, now_ms))
                database.executemany(INSERT, rows)
                moved = dict(self.positions)
                self.positions.clear()
                database.executemany(MOVE, [(*who, at) for who, at in moved.items()])
                database.execute("COMMIT")
                self._loop.call_soon_threadsafe(self._tell, stored)

    def _tell(self, stored: list[Stored]) -> None:
        for transport, user, send, sequence, message_id, now_ms in stored:
            transport.send(WSMsgType.TEXT, _encode(SendAck(send.request_id, sequence, message_id)))
            push = Push(send.chat_id, sequence, message_id, user, send.content, now_ms)
            frame = _framed(_encode(push))
            for member in send.chat_id.split("-"):
                if member != user:
                    for other in self.connected[member]:
                        other.underlying_transport.write(frame)


def _framed(payload: bytes) -> bytes:
    """A text frame, built once for all recipients."""
    size = len(payload)
    if size < 126:
        return bytes((0x81, size)) + payload
    return bytes((0x81, 126)) + size.to_bytes(2, "big") + payload


class Connection(WSListener):
    def __init__(self, sketch: Sketch, user: str) -> None:
        self._sketch = sketch
        self._user = user

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._sketch.connected[self._user].add(transport)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._sketch.connected[self._user].discard(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        sketch = self._sketch
        if frame.msg_type == WSMsgType.TEXT:
            got = _decode(frame.get_payload_as_memoryview())
            if type(got) is Send:
                sketch.waiting.append((transport, self._user, got))
                sketch.work.set()
            elif type(got) is Ack:
                sketch.positions[self._user, got.chat_id] = got.last_acked_sequence
        elif frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()


async def serve(directory: Path, port: int) -> None:
    sketch = Sketch(directory / "sketch.db")

    def accept(request: WSUpgradeRequest) -> Connection:
        return Connection(sketch, request.path.decode()[1:])

    server = await ws_create_server(accept, "127.0.0.1", port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where its file goes; made if it is missing")
    parser.add_argument("--port", type=int, default=0, help="default: one that is free")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    uvloop.run(serve(given.directory, given.port))
