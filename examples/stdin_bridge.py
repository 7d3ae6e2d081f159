"""Sends each line of standard input to somebody, as one message, in order.

    journalctl -f | TIDEWIRE_TOKEN=… python examples/stdin_bridge.py http://127.0.0.1:8080 alice

A line is on the disk before the next one is read. If the server is away, lines wait in the store
and go out when it is back, also in the next run.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator

from tidewire.client import Client
from tidewire.domain.limits import CONTENT_BYTES_MAX


def pieces(line: str) -> Iterator[str]:
    """A line in parts that fit into a message; a NUL has no place in one."""
    piece, size = "", 0
    for letter in line.rstrip("\n").replace("\0", "\ufffd"):
        letter_size = len(letter.encode())
        if size + letter_size > CONTENT_BYTES_MAX:
            yield piece
            piece, size = "", 0
        piece, size = piece + letter, size + letter_size
    if piece.strip():
        yield piece


async def main(url: str, token: str, store: str, username: str) -> None:
    async with Client(url, token=token, store=store) as me:
        chat = await me.direct(username)
        count = 0
        # A thread waits for input, so that the connection stays alive meanwhile.
        while line := await asyncio.to_thread(sys.stdin.readline):
            for piece in pieces(line):
                await chat.send(piece)
                count += 1
        for sent in chat.pending():
            await sent.stored()
        print(f"{count} messages sent, the last one is number {chat.last_sequence}")


if __name__ == "__main__":
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("username", help="to whom")
    parser.add_argument("--store", default="stdin_bridge.db")
    arguments = parser.parse_args()
    token = os.environ["TIDEWIRE_TOKEN"]
    asyncio.run(main(arguments.url, token, arguments.store, arguments.username))
