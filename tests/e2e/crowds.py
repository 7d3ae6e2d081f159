"""Many of the load tool's clients on a server that dies and comes back. Holds no test."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.e2e.commands import EVERY_OPTION
from tidewire_bench.book import Book
from tidewire_bench.client import ConnectFailed, Lost
from tidewire_bench.frames import message_key
from tidewire_bench.makers import RestMaker
from tidewire_bench.mixed_client import MixedClient
from tidewire_bench.run import bare_environment
from tidewire_bench.target import Launch, OwnServer, Target
from tidewire_bench.workload import Outcome

PATIENCE_S: Final = 60.0
COME_LATER: Final = ("close_1013", "http_503")

ROOMY: Final = {
    "ACCOUNTS_THROTTLE_REGISTER_IP_BURST": "10000",
    "ACCOUNTS_PASSWORDS_MEMORY_KIB": "64",
    "ACCOUNTS_PASSWORDS_PASSES": "1",
    "CHATS_STRANGERS_PER_HOUR": "1000000",
    "REST_ANONYMOUS_PER_MINUTE": "100000",
    "REST_WRITES_PER_MINUTE": "100000",
    "GATEWAY_IP_CONNECTS_PER_MINUTE": "1000000",
    "GATEWAY_USER_CONNECTS_PER_MINUTE": "10000",
    "GATEWAY_SEND_CHAT_RATE_PER_SECOND": "100000",
    "GATEWAY_SEND_CHAT_BURST": "100000",
    "GATEWAY_SEND_USER_RATE_PER_SECOND": "100000",
    "GATEWAY_SEND_USER_BURST": "100000",
    "REST_PROBES_PER_MINUTE": "100000",
    "SERVER_INBOUND_BYTES_PER_SECOND": "100000000",
    "SERVER_INBOUND_BURST_BYTES": "100000000",
    "SERVER_ADDRESS_HTTP_CONNECTIONS_MAX": "2000",
    "SERVER_ADDRESS_CONNECTIONS_MAX": "10000",
    "FANOUT_STATUS_INTERVAL_MS": "20",
    "LOG_LEVEL": "error",
}


class Crowd:
    """Pairs who talk, all of them in one group as well; what they were promised is remembered."""

    def __init__(self, server: OwnServer, generator: random.Random) -> None:
        self.server = server
        self.generator = generator
        self.outcome = Outcome()
        self.book = Book(self.outcome.faults, keeps_all=True)
        self.clients: list[MixedClient] = []
        self.group = ""

    @property
    def target(self) -> Target:
        return Target(f"http://127.0.0.1:{self.server.port}", self.server)

    @property
    def under_way(self) -> int:
        return sum(len(client.under_way) for client in self.clients)

    async def gather(self, pairs: int) -> None:
        """Register them and make their chats."""
        maker = RestMaker(self.target.url, lambda stage, done, total: None)
        people = await maker.people(2 * pairs)
        await maker.direct([(people[at], people[at + 1]) for at in range(0, 2 * pairs, 2)])
        self.group = await maker.group(people[0], people[1:])
        self.clients = [
            MixedClient(person, at, self.book, self.outcome) for at, person in enumerate(people)
        ]

    async def arrive(self) -> None:
        """Everybody connects, compares the digest, sends again and syncs, until nothing lacks."""
        await asyncio.gather(*(self._bring(client) for client in self.clients))
        await self.until(self._is_complete)
        self.book.check_complete()
        for client in self.clients:
            for chat_id in client.readers:
                client.acknowledge(chat_id, is_read=True)

    async def _bring(self, client: MixedClient) -> None:
        """A server whose store is too busy for a digest says so: come back later."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await client.arrive(self.target)
                except ConnectFailed as error:
                    if error.kind not in COME_LATER:
                        raise
                await asyncio.sleep(0.1)

    def _is_complete(self) -> bool:
        return self.under_way == 0 and all(
            reader.last >= chat.head for chat in self.book.chats.values() for reader in chat.readers
        )

    async def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE_S / 0.005)):
            if is_so():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it took too long", self.outcome.faults.first)

    async def talk(self, messages: int) -> list["asyncio.Task[None]"]:
        """Everybody writes; returns when so many more were acknowledged, with the writing tasks."""
        wanted = self.book.acked_count + messages
        tasks = [
            asyncio.create_task(self._write(client, random.Random(self.generator.random())))
            for client in self.clients
        ]
        await self.until(lambda: self.book.acked_count >= wanted)
        return tasks

    async def _write(self, client: MixedClient, generator: random.Random) -> None:
        """Write, acknowledge and read until the server is gone."""
        chats = list(client.readers)
        try:
            while client.transport is not None:
                chat_id = generator.choice(chats)
                await client.said(chat_id)
                client.say(chat_id)
                if generator.random() < 0.5:
                    client.acknowledge(chat_id, is_read=generator.random() < 0.5)
        except Lost:
            return

    async def gone(self, tasks: list["asyncio.Task[None]"]) -> None:
        """All have noticed that the server is gone."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(client.ended() for client in self.clients), *tasks)

    async def audit(self) -> int:
        """Hold all that is stored against all that was promised and seen; how much it is."""
        stored_count = 0
        for chat_id, chat in self.book.chats.items():
            readers = [client for client in self.clients if chat_id in client.readers]
            stored = await self.generator.choice(readers).history(chat_id)
            keys = [key for _, key in stored]
            promised = {
                message_key(sender, number)
                for sender, top in chat.acked.items()
                for number in range(top + 1)
            }
            assert len(set(keys)) == len(keys), f"{chat_id} has a message twice"
            assert set(keys) == promised, f"{chat_id} is not what was acknowledged"
            assert dict(stored) == chat.truth, f"{chat_id} is not what was seen"
            stored_count += len(stored)
        return stored_count

    def drop(self) -> None:
        for client in self.clients:
            client.drop()


@asynccontextmanager
async def crowd(data_dir: Path, pairs: int, seed: int) -> AsyncIterator[Crowd]:
    """A server and its crowd, registered but not connected."""
    raised = {f"TIDEWIRE_{name}": value for name, value in ROOMY.items()}
    server = OwnServer(Launch(data_dir, bare_environment() | raised, [*EVERY_OPTION, "serve"]))
    await server.start()
    made = Crowd(server, random.Random(seed))
    try:
        await made.gather(pairs)
        yield made
    finally:
        made.drop()
        server.kill()
