"""The workloads `pairs` and `group` on the sketch: starts it, puts the load on, prints the figures.

`python -m tidewire_bench.sketch_load pairs 100 4 --data-dir DIR`
"""

import argparse
import asyncio
import os
import sys
import time
import uuid
from array import array
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from tidewire_bench.figures import Figures, Meter
from tidewire_bench.frames import CONTENT
from tidewire_bench.sketch_server import Ack, Push, Send, SendAck
from tidewire_bench.target import Launch, OwnServer, Target, fresh_directory, raise_file_limit

ACK_AFTER: Final = 10
WARM_UP_S: Final = 2.0

_decode = msgspec.json.Decoder[SendAck | Push](SendAck | Push).decode


class Sender(WSListener):
    """Keeps a window of messages outstanding in one chat, in which it alone writes: so the sketch
    numbers its messages as it does itself."""

    def __init__(self, chat_id: str, meter: Meter) -> None:
        self.sent_s = array("d")
        self._chat_id = chat_id
        self._meter = meter

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def send(self) -> None:
        self.sent_s.append(time.perf_counter())
        frame = Send(str(len(self.sent_s)), str(uuid.uuid4()), self._chat_id, CONTENT)
        self._transport.send(WSMsgType.TEXT, msgspec.json.encode(frame))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        now_s = time.perf_counter()
        got = _decode(frame.get_payload_as_memoryview())
        assert type(got) is SendAck
        if self._meter.is_measuring:
            self._meter.acks_s.append(now_s - self.sent_s[got.sequence - 1])
        self.send()


class Receiver(WSListener):
    """Gets everything of one chat, and sends an ack after every tenth message."""

    def __init__(self, sender: Sender, meter: Meter) -> None:
        self._sent_s = sender.sent_s
        self._meter = meter
        self._unacked = 0

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        now_s = time.perf_counter()
        got = _decode(frame.get_payload_as_memoryview())
        assert type(got) is Push
        if self._meter.is_measuring:
            self._meter.deliveries_s.append(now_s - self._sent_s[got.sequence - 1])
        self._unacked += 1
        if self._unacked >= ACK_AFTER:
            self._unacked = 0
            ack = Ack(got.chat_id, got.sequence)
            transport.send(WSMsgType.TEXT, msgspec.json.encode(ack))


async def run(kind: str, count: int, window: int, seconds: float, directory: Path) -> Figures:
    """Start the sketch in a directory, and measure it. Raises LoadImpossible."""
    raise_file_limit(2 * count if kind == "pairs" else count)
    command = (sys.executable, "-m", "tidewire_bench.sketch_server")
    server = OwnServer(Launch(directory / "data", os.environ, command))
    try:
        target = await server.start()
        meter = Meter(target)
        senders = await _connect(target, meter, kind, count)
        for sender in senders:
            for _ in range(window):
                sender.send()
        await asyncio.sleep(WARM_UP_S)
        meter.start()
        await asyncio.sleep(seconds)
        meter.stop()
    finally:
        server.kill()
    messages = len(meter.acks_s)
    if kind == "pairs":
        messages = min(messages, len(meter.deliveries_s))
    figures = meter.figures(f"{kind} {count} {window}", messages)
    return msgspec.structs.replace(figures, system="sketch")


async def _connect(target: Target, meter: Meter, kind: str, count: int) -> list[Sender]:
    """Connect the members of `count` pairs, or of one group of so many; returns the senders."""
    if kind == "pairs":
        chats = [[f"a{number}", f"b{number}"] for number in range(count)]
    else:
        chats = [[f"g{number}" for number in range(count)]]
    address = target.url.replace("http", "ws")
    senders = []
    for author, *others in chats:
        sender = Sender("-".join([author, *others]), meter)
        senders.append(sender)
        await ws_connect(lambda sender=sender: sender, f"{address}/{author}")
        for other in others:
            await ws_connect(partial(Receiver, sender, meter), f"{address}/{other}")
    return senders


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=("pairs", "group"))
    parser.add_argument("count", type=int, help="pairs, or members of the group")
    parser.add_argument("window", type=int, help="messages outstanding per sender")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long it is measured (10)")
    parser.add_argument("--data-dir", type=Path, default=Path.cwd(), help="the disk to measure")
    parser.add_argument("--json", action="store_true", help="as 'tidewire bench' has it: always so")
    given = parser.parse_args()
    with fresh_directory(given.data_dir) as directory:
        done = uvloop.run(run(given.kind, given.count, given.window, given.seconds, directory))
    print(msgspec.json.encode(done).decode())
