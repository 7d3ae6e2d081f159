"""Twelve people in four groups, whose members come and go, while one part of the cluster after the
other fails. Holds no test.

`python -m tests.cluster.endurance --minutes 10` has servers, gateways and workers of its own, with
default settings except for limits and partitions. Ten people use the SDK, two a client that was
written from docs/protocol.md alone (`stranger`). At the end all are members again, and must have
everything: each acknowledged message once, in one order, the same on every device; nothing that was
refused; every tick blue; no position ever fell; `tidewire verify --cluster` finds nothing.
"""

import argparse
import asyncio
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.cluster.crowd import OPTIONS, SETTLED_S, until
from tests.cluster.running import Balancer, Cluster, Endpoints, Member
from tests.cluster.servers import OwnServers, own_servers
from tests.cluster.stranger import Stranger
from tests.cluster.watching import PositionWatch, watching
from tests.e2e.chatting import PASSWORD, Account
from tests.support.dynamodb_proxy import Fate, Proxy
from tidewire.client import (
    Client,
    MessageRefused,
    RefusedByServer,
    Sent,
    ServerUnreachable,
    Tick,
    TicksMoved,
)
from tidewire.domain.errors import ErrorCode
from tidewire.engines.redis.options import RedisOptions

PEOPLE: Final = 12
STRANGERS: Final = (5, 8)
"""Those of them with the other client: each leaves and joins one group, and stays in another."""
GROUPS: Final = 4
MEMBERS: Final = 6
STEADY: Final = 3
"""How many members of a group, its owner first, are never taken out."""
PAUSE_S: Final = 0.6
"""Between two messages of one person."""
AHEAD_MAX: Final = 50
OUT_S_MAX: Final = 2.0
"""How long a member is out of a group, and how long until the next one is taken out."""
FAULT_S: Final = 8.0
QUIET_S: Final = 6.0
"""Between two faults."""
INSIST_S_MAX: Final = 60.0
"""How long changes of members may fail at most: longer than any of the faults lasts."""
LATE_S_MAX: Final = 120.0
"""How long it may take at the end, on a busy machine, until all people know everything."""


TWO_TICKS: Final = (Tick.DELIVERED, Tick.READ)


class Group(NamedTuple):
    chat_id: str
    members: tuple[int, ...]
    """By number, the owner first."""


class Person:
    """A person with the SDK."""

    def __init__(self, number: int, username: str, client: Client) -> None:
        self.number = number
        self.username = username
        self.client = client
        self.sent: list[Sent] = []
        self.faults: list[str] = []
        self.steady: dict[str, list[Person]] = {}
        """By chat: the others with the SDK who are always in it."""

    def is_in(self, chat_id: str) -> bool:
        return self.client.chat(chat_id).is_member

    async def write(self, chat_id: str, text: str) -> None:
        if len(self.sent) >= AHEAD_MAX:
            waiting = self.sent[-AHEAD_MAX]
            await until(
                lambda: waiting.sequence is not None or waiting.code is not None, LATE_S_MAX
            )
        self.sent.append(await self.client.chat(chat_id).send(text))

    async def listen(self) -> None:
        async for event in self.client.events():
            match event:
                case MessageRefused() if event.code != ErrorCode.NOT_A_MEMBER:
                    self.faults.append(f"refused: {event}")
                case TicksMoved():
                    self._look_at_ticks(event.chat_id)
                case _:
                    pass

    def _look_at_ticks(self, chat_id: str) -> None:
        """Steady members must have what is shown as delivered."""
        shown = max(
            (
                one.sequence
                for one in self.sent[-AHEAD_MAX:]
                if one.chat_id == chat_id and one.sequence and one.tick in TWO_TICKS
            ),
            default=0,
        )
        for other in self.steady.get(chat_id, ()):
            if other is not self and other.client.chat(chat_id).last_sequence < shown:
                self.faults.append(f"{shown} has two ticks, and {other.number} has not got it")


class Run:
    def __init__(
        self,
        cluster: Cluster,
        servers: OwnServers,
        proxy: Proxy,
        balancer: Balancer,
        people: dict[int, Person],
        strangers: dict[int, Stranger],
        user_ids: list[str],
        groups: list[Group],
        random: Random,
    ) -> None:
        self.cluster, self.servers, self.proxy, self.balancer = cluster, servers, proxy, balancer
        self.people, self.strangers, self.user_ids = people, strangers, user_ids
        self.groups, self.random = groups, random
        self.is_over = False
        self.changes = 0
        self.met: Counter[str] = Counter()

    # What people do.

    async def talk(self, number: int) -> None:
        who = self.people.get(number) or self.strangers[number]
        own = [group.chat_id for group in self.groups if number in group.members]
        turn = 0
        while not self.is_over:
            chat_id = own[turn % len(own)]
            turn += 1
            if who.is_in(chat_id):
                await who.write(chat_id, f"{number}-{turn}")
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * PAUSE_S)

    async def change_members(self, group: Group) -> None:
        """Take one member after the other out, and back in."""
        turn = 0
        while not self.is_over:
            number = group.members[STEADY + turn % (MEMBERS - STEADY)]
            turn += 1
            chat = self.people[group.members[0]].client.chat(group.chat_id)
            await self._insist(lambda: chat.remove(self.user_ids[number]))  # noqa: B023 - awaited
            await asyncio.sleep(self.random.uniform(0, OUT_S_MAX))
            await self._insist(lambda: chat.add(self.user_ids[number]))  # noqa: B023 - awaited
            self.changes += 2
            await asyncio.sleep(self.random.uniform(0, OUT_S_MAX))

    @staticmethod
    async def _insist(act: Callable[[], Awaitable[None]]) -> None:
        """Repeat until it is done: a try whose answer was lost may have done it."""
        deadline_s = time.monotonic() + INSIST_S_MAX
        while True:
            try:
                return await act()
            except (RefusedByServer, ServerUnreachable) as error:
                reason = error.reason if isinstance(error, RefusedByServer) else None
                if reason == ErrorCode.USER_NOT_FOUND:
                    # No longer a member: an earlier try has removed the user.
                    return None
                if time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(0.3)

    # What fails.

    async def fail(self, name: str) -> None:
        self.met[name] += 1
        await FAULTS[name](self)
        await asyncio.sleep(QUIET_S)

    async def kill_a_gateway(self) -> None:
        await self._replace(self.cluster.gateways)

    async def kill_a_worker(self) -> None:
        await self._replace(self.cluster.workers)

    async def _replace(self, members: Sequence[Member]) -> None:
        member = self.random.choice(members)
        member.kill()
        await asyncio.sleep(FAULT_S)
        await member.start()

    async def stop_a_gateway(self) -> None:
        member = self.random.choice(self.cluster.gateways)
        assert await member.stop() == 0
        await asyncio.sleep(FAULT_S)
        await member.start()

    async def pause_a_gateway(self) -> None:
        """Pause it for longer than its routes live."""
        member = self.random.choice(self.cluster.gateways)
        member.pause()
        await asyncio.sleep(2 + RedisOptions().life_ms / 1000)
        member.go_on()

    async def pause_a_worker(self) -> None:
        member = self.random.choice(self.cluster.workers)
        member.pause()
        await asyncio.sleep(2 * FAULT_S)
        member.go_on()

    async def kill(self, part: str) -> None:
        self.servers.kill(part)
        await asyncio.sleep(FAULT_S)
        await self.servers.start(part)

    async def pause(self, part: str) -> None:
        self.servers.pause(part)
        await asyncio.sleep(FAULT_S)
        self.servers.go_on(part)

    async def empty_redis(self) -> None:
        await self.servers.empty_redis()

    async def cut_everybody(self) -> None:
        self.balancer.cut()

    async def leave_everybody_half_open(self) -> None:
        self.balancer.half_open()
        await asyncio.sleep(FAULT_S)
        self.balancer.cut()

    async def lose_answers(self) -> None:
        for fate in (Fate.SWALLOW, Fate.FAIL, Fate.THROTTLE, Fate.CONFLICT, Fate.UNAVAILABLE):
            self.proxy.rule("TransactWriteItems", fate, times=3)
            self.proxy.rule("UpdateItem", fate, times=3)
        await asyncio.sleep(FAULT_S)
        self.proxy.rules.clear()

    # The end.

    async def check(self, watch: PositionWatch) -> str:
        """Assert that all people have everything; return a line that says how much that was."""
        assert self.changes > 0, "nobody came or went"
        for group in self.groups:
            chat = self.people[group.members[0]].client.chat(group.chat_id)
            for number in group.members[1:]:
                await self._insist(lambda: chat.add(self.user_ids[number]))  # noqa: B023 - awaited
        await until(self._is_answered, LATE_S_MAX)
        truth = {group.chat_id: await self._stored(group) for group in self.groups}
        await until(lambda: self._is_everybody_complete(truth), LATE_S_MAX)
        for group in self.groups:
            for number in group.members:
                if number in self.people:
                    await self.people[number].client.chat(group.chat_id).read()
        await until(lambda: self._is_all_read(truth), LATE_S_MAX)
        for group in self.groups:
            await self._compare(group, truth[group.chat_id])
        faults = [fault for person in self.people.values() for fault in person.faults]
        faults += [fault for stranger in self.strangers.values() for fault in stranger.faults]
        assert faults == [], faults[:10]
        await watch.look()
        assert watch.falls == [], watch.falls
        assert watch.has_seen_everybody
        await asyncio.to_thread(self.cluster.verify)
        refused = sum(one.code is not None for who in self.people.values() for one in who.sent)
        refused += sum(
            one.refused is not None for who in self.strangers.values() for one in who.drafts
        )
        return (
            f"{sum(map(len, truth.values()))} messages, {self.changes} changes of members, "
            f"{refused} sends of people who were out, {self.met.total()} faults: {dict(self.met)}"
        )

    def _is_answered(self) -> bool:
        sent = [one for who in self.people.values() for one in who.sent]
        drafts = [one for who in self.strangers.values() for one in who.drafts]
        return all(one.sequence is not None or one.code is not None for one in sent) and all(
            one.sequence is not None or one.refused is not None for one in drafts
        )

    async def _stored(self, group: Group) -> dict[int, str]:
        """All messages, as a new device of the owner syncs them, which has nothing yet."""
        gateway = self.cluster.gateways[0]
        account = await gateway.login(self.people[group.members[0]].username)
        async with gateway.phone(account) as phone:
            return {one["sequence"]: one["content"] for one in await phone.sync(group.chat_id)}

    def _is_everybody_complete(self, truth: dict[str, dict[int, str]]) -> bool:
        return all(
            self._cursor(number, group.chat_id) >= max(truth[group.chat_id])
            for group in self.groups
            for number in group.members
        )

    def _cursor(self, number: int, chat_id: str) -> int:
        if number in self.people:
            return self.people[number].client.chat(chat_id).last_sequence
        return self.strangers[number].logs[chat_id].cursor

    def _is_all_read(self, truth: dict[str, dict[int, str]]) -> bool:
        sent = [one for who in self.people.values() for one in who.sent]
        logs = [
            (who.logs[group.chat_id].others_read, max(truth[group.chat_id]))
            for group in self.groups
            for number, who in self.strangers.items()
            if number in group.members
        ]
        return all(one.tick is Tick.READ for one in sent if one.sequence is not None) and all(
            read >= head for read, head in logs
        )

    async def _compare(self, group: Group, truth: dict[int, str]) -> None:
        chat_id = group.chat_id
        for number in group.members:
            if number in self.people:
                who = self.people[number]
                shown = await who.client.chat(chat_id).messages(limit=1_000_000)
                held = [(one.sequence, one.text) for one in shown]
                own = {one.sequence: one.text for one in who.sent if one.chat_id == chat_id}
                refused = {one.text for one in who.sent if one.code and one.chat_id == chat_id}
            else:
                stranger = self.strangers[number]
                held = list(stranger.logs[chat_id].texts.items())
                drafts = [one for one in stranger.drafts if one.chat_id == chat_id]
                own = {one.sequence: one.text for one in drafts}
                refused = {one.text for one in drafts if one.refused is not None}
            assert held == sorted(truth.items()), f"{number} has something else of {chat_id}"
            own.pop(None, None)
            of_this_one = {at: text for at, text in truth.items() if text.startswith(f"{number}-")}
            assert of_this_one == own, f"what {number} was promised is not what is stored"
            assert not refused & set(of_this_one.values()), f"stored, and refused to {number}"


FAULTS: Final[dict[str, Callable[[Run], Awaitable[None]]]] = {
    "kill -9 of a gateway": Run.kill_a_gateway,
    "Redis emptied": Run.empty_redis,
    "kill -9 of a worker": Run.kill_a_worker,
    "answers of DynamoDB lost": Run.lose_answers,
    "Kafka stands still": lambda run: run.pause("kafka"),
    "all connections cut": Run.cut_everybody,
    "a gateway stands still": Run.pause_a_gateway,
    "kill -9 of Redis": lambda run: run.kill("redis"),
    "DynamoDB stands still": lambda run: run.pause("dynamodb"),
    "a gateway is stopped": Run.stop_a_gateway,
    "kill -9 of Kafka": lambda run: run.kill("kafka"),
    "all connections half open": Run.leave_everybody_half_open,
    "Redis stands still": lambda run: run.pause("redis"),
    "kill -9 of DynamoDB": lambda run: run.kill("dynamodb"),
    "a worker stands still": Run.pause_a_worker,
}


@asynccontextmanager
async def prepared(
    cluster: Cluster, servers: OwnServers, proxy: Proxy, balancer: Balancer, random: Random
) -> AsyncIterator[Run]:
    """A run in which all people are registered, in their groups, and connected."""
    run_id = uuid.uuid4().hex[:8]
    async with AsyncExitStack() as stack:
        people: dict[int, Person] = {}
        strangers: dict[int, Stranger] = {}
        user_ids: list[str] = []
        for number in range(PEOPLE):
            if number in STRANGERS:
                account: Account = await cluster.gateways[0].person(f"s{number}")
                strangers[number] = Stranger(balancer, account)
                user_ids.append(account.user_id)
                continue
            store = cluster.directory / f"{number}.db"
            username = f"p{number}-{run_id}"
            client = await Client.register(
                balancer.url, username, PASSWORD, store=store, options=OPTIONS
            )
            await stack.enter_async_context(client)
            people[number] = Person(number, username, client)
            user_ids.append(client.user_id or "")
        groups = []
        for number in range(GROUPS):
            first = number * PEOPLE // GROUPS
            members = tuple((first + one) % PEOPLE for one in range(MEMBERS))
            owner = people[members[0]]
            chat = await owner.client.group(f"group {number}", people[members[1]].username)
            for one in members[2:]:
                await chat.add(user_ids[one])
            groups.append(Group(chat.chat_id, members))
            steady = [people[one] for one in members[:STEADY] if one in people]
            for one in members:
                if one in people:
                    people[one].steady[chat.chat_id] = steady
        tasks = [asyncio.create_task(who.listen()) for who in people.values()]
        tasks += [asyncio.create_task(who.run()) for who in strangers.values()]
        run = Run(cluster, servers, proxy, balancer, people, strangers, user_ids, groups, random)
        try:
            for group in groups:
                for one in group.members:
                    who = people.get(one) or strangers[one]
                    await until(lambda: who.is_in(group.chat_id), SETTLED_S)  # noqa: B023 - awaited
            yield run
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for who in strangers.values():
                await who.end()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def endure(
    cluster: Cluster, servers: OwnServers, proxy: Proxy, seconds: float, seed: str
) -> str:
    """Run for so many seconds; return a line with the result."""
    random = Random(seed)
    async with (
        Balancer(*cluster.gateways) as balancer,
        prepared(cluster, servers, proxy, balancer, random) as run,
    ):
        places = [
            (run.user_ids[one], group.chat_id) for group in run.groups for one in group.members
        ]
        async with watching(cluster, places) as watch, asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(watch.keep_looking())
            for number in range(PEOPLE):
                tasks.create_task(run.talk(number))
            changing = [tasks.create_task(run.change_members(group)) for group in run.groups]
            deadline_s = time.monotonic() + seconds
            names: list[str] = []
            while time.monotonic() < deadline_s:
                names = names or list(FAULTS)
                name = names.pop(0)
                left_s = deadline_s - time.monotonic()
                print(f"{left_s:4.0f} s left, {run.changes} changes of members: {name}", flush=True)
                await run.fail(name)
            run.is_over = True
            await asyncio.wait(changing)
            print("over: everybody comes back", flush=True)
            found = await run.check(watch)
            looking.cancel()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=uuid.uuid4().hex[:8], help="of pauses and victims")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory, own_servers() as servers:
        asyncio.run(_run(Path(directory), servers, options.minutes * 60, options.seed))


async def _run(directory: Path, servers: OwnServers, seconds: float, seed: str) -> None:
    async with Proxy.running(servers.endpoints.dynamodb_port) as proxy:
        # Operators' commands bypass the proxy; gateways and workers go through it.
        bent = replace(servers.endpoints, dynamodb_port=proxy.port)
        cluster = Cluster(directory / "cluster", servers.endpoints)
        cluster.directory.mkdir()
        try:
            await asyncio.to_thread(_launch, cluster, bent)
            print(await endure(cluster, servers, proxy, seconds, seed))
        except BaseException:
            for name, tail in cluster.logs():
                print(f"{name}:\n{tail}", file=sys.stderr)
            raise
        finally:
            await asyncio.to_thread(cluster.close)


def _launch(cluster: Cluster, endpoints: Endpoints) -> None:
    cluster.prepare()
    members = [cluster.add(role, endpoints) for role in ("gateway", "fanout") for _ in range(2)]
    cluster.launch(*members)


if __name__ == "__main__":
    main()
