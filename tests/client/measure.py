"""How fast the client is, on a server of its own: `python -m tests.client.measure`. Holds no test.

Catching up through the client, its store on the disk, next to a bare client of the protocol in the
same run; and sending and receiving in one process at the same time, with the durable outbox on.
Each part runs in a process of its own, so that its memory is its own.
"""

import argparse
import asyncio
import multiprocessing
import resource
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter, process_time

from tests.e2e.chatting import PASSWORD, Site
from tidewire.client import Client, ClientOptions, MessageReceived
from tidewire_bench.client import Client as BareClient
from tidewire_bench.frames import number_of
from tidewire_bench.ledger import Faults, Stream
from tidewire_bench.target import Person, Target

CHATS = 64
BUSY = ClientOptions(window=64, outbox_max=100_000)
TEXT = "Hello, world! " * 6


def rss_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def fill(url: str, folder: Path, count: int) -> None:
    """Messages to somebody who is not there."""
    for name in ("bare", "reader"):
        await (await Client.register(url, name, PASSWORD, store=folder / f"{name}.db")).close()
    async with await Client.register(url, "writer", PASSWORD, options=BUSY) as writer:
        await writer.ready()
        for chat in [await writer.direct("bare"), await writer.direct("reader")]:
            began = perf_counter()
            for begin in range(0, count, 2_000):
                batch = range(begin, min(begin + 2_000, count))
                sent = await asyncio.gather(*(chat.send(TEXT) for _ in batch))
                await sent[-1].stored()
            await writer.flush()
            report("sending, store in memory", count, perf_counter() - began)


async def catch_up(url: str, folder: Path, count: int) -> None:
    began = perf_counter()
    async with Client(url, store=folder / "reader.db") as reader:
        await reader.ready()
        [chat] = reader.known_chats()
        await reader.driver.waits.until_change(lambda: chat.last_sequence == count)
        await reader.driver.store.do(lambda tables: tables.position)
        seconds = perf_counter() - began
        memory = f", {rss_mb()} MB"
        assert len(await chat.messages(limit=count + 1)) == count
    report("catching up by the client", count, seconds, memory)


async def catch_up_bare(url: str, folder: Path, count: int) -> None:
    asking = Client(url, store=folder / "bare.db")
    device_id = await asking._open()
    token = await asking._credentials.token(False)
    me = await asking.me()
    await asking.close()
    bare = BareClient(Person(me.user_id, token, device_id), Counter())
    # As the workload `catch-up` does: checks the chain, stores nothing.
    stream = Stream("the bare client", Faults())
    began = perf_counter()
    await bare.connect(Target(url))
    [chat_id] = bare.heads
    while stream.last < count:
        page = await bare.sync_page(chat_id, stream.last)
        for item in page.messages:
            assert stream.take(item.sequence, item.prev_sequence, number_of(item.client_message_id))
        bare.ack(chat_id, stream.last)
    report("catching up, bare protocol", count, perf_counter() - began)
    bare.drop()


async def both_ways(url: str, folder: Path, count: int) -> None:
    """Two clients in this process write to each other in some chats, and hear each other."""
    one, other = [
        await Client.register(url, name, PASSWORD, store=folder / f"{name}.db")
        for name in ("one", "other")
    ]
    async with one, other:
        await one.ready()
        chats = [await one.group(f"group {n}", "other") for n in range(CHATS)]
        began = perf_counter()
        await asyncio.gather(
            *(talk(who, [who.chat(c.chat_id) for c in chats], count) for who in (one, other)),
            *(listen(who, count) for who in (one, other)),
        )
        report("sent and received in one process", 2 * count, perf_counter() - began)


async def talk(who: Client, chats: list, count: int) -> None:  # type: ignore[type-arg]
    for begin in range(0, count, 500):
        batch = range(begin, min(begin + 500, count))
        await asyncio.gather(*(chats[n % len(chats)].send(TEXT) for n in batch))
    await who.flush()


async def listen(who: Client, count: int) -> None:
    heard = 0
    async for event in who.events():
        heard += isinstance(event, MessageReceived)
        if heard == count:
            return


def report(what: str, count: int, seconds: float, more: str = "") -> None:
    cpu = f"{process_time() / count * 1e6:,.0f} µs of CPU a message, start included"
    print(f"{what}: {count / seconds:,.0f} messages/s, {cpu}{more}", flush=True)


def apart(part: object, *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=run, args=(part, *arguments))
    process.start()
    process.join()
    assert process.exitcode == 0


def run(part, *arguments) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(part(*arguments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as name, Site(Path(name) / "data") as site:
        folder = Path(name)
        apart(fill, site.url, folder, count)
        apart(catch_up_bare, site.url, folder, count)
        apart(catch_up, site.url, folder, count)
        apart(both_ways, site.url, folder, max(count // 10, 1_000))


if __name__ == "__main__":
    main()
