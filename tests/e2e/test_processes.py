"""A server of several processes: whatever part of it dies or hangs, nothing is lost, and clients
notice a reconnect at most. Slow: real servers, signals and sockets."""

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.chatting import (
    PATIENCE_S,
    Account,
    Phone,
    Site,
    chained,
    eventually,
    eventually_metric,
    new_key,
    open_files_of,
    send_all,
    texts,
)
from tests.e2e.commands import tidewire
from tests.e2e.serving import ServerProcess, serving

pytestmark = pytest.mark.slow

PROCESSES = 3
PEOPLE = 9
RESTART = 1012
SOON_S = 5.0
"""What the kernel tells needs no time; a busy machine may keep a process from its turn, or from the
end of a write."""


def several(data_dir: Path, **settings: int | str) -> Site:
    return Site(data_dir, server__processes=PROCESSES, **settings)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One that no test does any harm to."""
    with several(tmp_path_factory.mktemp("processes"), accounts__sessions_max=20) as site:
        yield site
        assert site.complaints() == []


@asynccontextmanager
async def crowd(
    site: Site, count: int = PEOPLE
) -> AsyncIterator[tuple[str, list[Account], list[Phone]]]:
    """A group whose members are all connected, at every gateway at least one of them."""
    people = await site.people(*(f"p{number}" for number in range(count)))
    group = await site.group(*people)
    gateways = [pid for name, pid in site.server.parts().items() if name != "store"]
    async with AsyncExitStack() as stack:
        phones = [
            await stack.enter_async_context(phone_at(site, one, pid))
            for one, pid in zip_longest(people, gateways)
        ]
        yield group, people, phones


@asynccontextmanager
async def phone_at(site: Site, account: Account, pid: int | None) -> AsyncIterator[Phone]:
    """A device that connects until chance has led it to this gateway, or wherever."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            stack = AsyncExitStack()
            phone = await stack.enter_async_context(site.phone(account))
            if pid is None or at(pid, [phone]):
                break
            await stack.aclose()
    async with stack:
        yield phone


def has(phone: Phone, chat_id: str, count: int) -> bool:
    return len(phone.all_of("message", chat_id)) == count


def port_of(phone: Phone) -> int:
    return int(phone.connection.local_address[1])


def at(pid: int, phones: list[Phone]) -> list[Phone]:
    """Those whose sockets this process holds: theirs are its established connections."""
    inodes = {str(each).removeprefix("socket:[").removesuffix("]") for each in open_files_of(pid)}
    remote = {
        int(fields[2].rpartition(":")[2], 16)
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        if (fields := line.split())[9] in inodes
    }
    return [phone for phone in phones if port_of(phone) in remote]


def busiest(server: ServerProcess, phones: list[Phone]) -> tuple[str, list[Phone]]:
    """The gateway with most of them."""
    held = {name: at(pid, phones) for name, pid in server.parts().items() if name != "store"}
    name = max(held, key=lambda one: len(held[one]))
    assert held[name]
    return name, held[name]


async def ready(site: Site) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await site.call("GET", "/readyz")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.05)


# What works over all of them.


async def test_messages_ticks_and_typing_reach_members_at_every_gateway(site: Site) -> None:
    async with crowd(site) as (group, _, phones):
        held = [
            len(at(pid, phones)) for name, pid in site.server.parts().items() if name != "store"
        ]
        assert sum(held) == PEOPLE
        assert min(held) > 0
        for number, phone in enumerate(phones):
            await phone.say(group, f"number {number}")
        for number, phone in enumerate(phones):
            # Its own message is acknowledged, not pushed.
            await phone.until(partial(has, phone, group, PEOPLE - 1))
            got = texts(phone.all_of("message", group))
            assert got == [f"number {other}" for other in range(PEOPLE) if other != number]
            await phone.ack(group, PEOPLE)
        await phones[0].numbers(group, others_delivered=PEOPLE)
        await phones[0].post("typing_start", {"chat_id": group})
        for phone in phones[1:]:
            await phone.get("typing_indicator", chat_id=group)


async def test_device_that_connects_again_replaces_itself_at_whatever_gateway(site: Site) -> None:
    ann = await site.person("ann")
    async with AsyncExitStack() as stack:
        phones = [await stack.enter_async_context(site.phone(ann))]
        for _ in range(6):
            phones.append(await stack.enter_async_context(site.phone(ann)))
            closing = await phones[-2].get("connection_closing")
            assert closing["payload"]["reason"] == "duplicate_connection"
            await phones[-2].closed()
        assert not phones[-1].is_over


async def test_session_that_ends_ends_at_every_gateway(site: Site) -> None:
    ann = await site.person("ann")
    devices = [ann, *[await site.login(ann) for _ in range(4)]]
    async with AsyncExitStack() as stack:
        phones = [await stack.enter_async_context(site.phone(one)) for one in devices]
        await site.done("DELETE", "/sessions", by=ann)
        for phone in phones[1:]:
            assert (await phone.get("connection_closing"))["payload"]["reason"] == "session_revoked"
        for _ in range(6):
            # New sockets: whatever gateway is asked refuses at once.
            answer = await site.call("GET", "/api/v1/chats", by=devices[1])
            assert answer.status_code == 401
        assert not phones[0].is_over


async def test_user_has_no_more_connections_than_one_gateway_would_allow(site: Site) -> None:
    ann = await site.person("ann")
    devices = [ann, *[await site.login(ann) for _ in range(6)]]
    admitted = 0
    codes = []
    async with AsyncExitStack() as stack:
        for device in devices:
            connection = connect(site.socket_url, additional_headers=device.headers, proxy=None)
            try:
                phone = Phone(await stack.enter_async_context(connection))
            except InvalidStatus as refusal:
                codes.append(refusal.response.status_code)
                continue
            phone.listen()
            await phone.until(partial(bool, phone.inbox))
            admitted += phone.inbox[0]["type"] == "connection_established"
    assert admitted == 5
    assert set(codes) <= {429}


async def test_guesses_at_once_have_one_budget_whatever_gateway_they_reach(tmp_path: Path) -> None:
    bursts = {"accounts__throttle__login_name_burst": 4, "accounts__throttle__login_known_burst": 4}
    with several(tmp_path, **bursts) as site:
        ann = await site.person("ann")

        async def guess(number: int) -> int:
            body = {"username": ann.username, "password": "wrong", "device_id": new_key()}
            return (await site.call("POST", "/api/v1/auth/login", body)).status_code

        # Each on a connection of its own, all before any is answered.
        answers = await asyncio.gather(*map(guess, range(24)))
        assert Counter(answers) == {401: 4, 429: 20}
        records = (await asyncio.to_thread(tidewire, "audit", "--json", "--data-dir", tmp_path)).out
        failed = [line for line in records.splitlines() if '"login.failed"' in line]
        assert failed
        # What the store process writes down is where the client is, not where the gateway is.
        assert all('"127.0.0.1"' in line for line in failed)


async def test_metrics_are_of_all_processes(site: Site) -> None:
    before = await site.metric("gateway_messages_received_total")
    async with crowd(site, 6) as (group, _, phones):
        await eventually_metric(site, "gateway_connections_active", 6)
        for phone in phones:
            await phone.say(group, "counted")
        assert await site.metric("gateway_messages_received_total") >= before + 6
        page = (await site.call("GET", "/metrics")).text
        names = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names))
        assert "sqlite_wal_size_bytes" in names


async def test_key_that_is_dropped_ends_connections_at_every_gateway(tmp_path: Path) -> None:
    with several(tmp_path) as site:
        async with crowd(site, 6) as (_, _, phones):
            place = ("--data-dir", tmp_path)
            [old] = (await asyncio.to_thread(tidewire, "keys", "list", "--json", *place)).json[
                "keys"
            ]
            for command in (("rotate",), ("drop", old["key_id"])):
                done = await asyncio.to_thread(tidewire, "keys", *command, *place)
                assert done.exit_code == 0, done.err
            for phone in phones:
                assert (await phone.get("connection_closing"))["payload"][
                    "reason"
                ] == "token_expired"


# What dies, and what hangs.


async def test_clients_of_a_gateway_that_is_killed_come_back_complete(tmp_path: Path) -> None:
    with several(tmp_path) as site:
        async with crowd(site) as (group, people, phones):
            name, gone = busiest(site.server, phones)
            stay = [phone for phone in phones if phone not in gone]
            before = site.server.parts()
            wanted = {new_key(): f"number {number}" for number in range(60)}
            sender = people[phones.index(gone[0])]
            await send_all(gone[0], group, wanted)
            await gone[0].until(lambda: bool(gone[0].all_of("send_message_ack")))
            os.kill(before[name], signal.SIGKILL)
            for phone in gone:
                await phone.closed()
            async with site.phone(sender) as phone:
                acked = gone[0].all_of("send_message_ack")
                sequences = {one["client_message_id"]: one["sequence"] for one in acked}
                for key, content in wanted.items():
                    sequence = (await phone.say(group, content, key))["sequence"]
                    assert sequences.setdefault(key, sequence) == sequence
                assert len(set(sequences.values())) == len(wanted)
            for phone in stay:
                # They have missed nothing, and nothing came twice.
                await phone.until(partial(has, phone, group, len(wanted)))
                assert chained(phone.all_of("message", group))
            for account, phone in zip(people, phones, strict=True):
                if phone in gone:
                    async with site.phone(account) as again:
                        had = phone.all_of("message", group) if account is not sender else []
                        assert chained(had)
                        cursor = had[-1]["sequence"] if had else 0
                        missed = await again.sync(group, cursor)
                        assert chained(missed, cursor)
                        assert len(had) + len(missed) == len(wanted)
            assert not any(phone.is_over for phone in stay)
            await eventually(
                lambda: (
                    set(site.server.parts()) == set(before)
                    and site.server.parts()[name] != before[name]
                ),
                "the gateway is not started again",
            )
            assert site.server.parts()["store"] == before["store"]


async def test_gateways_that_are_killed_together_are_all_started_again(tmp_path: Path) -> None:
    with several(tmp_path) as site:
        for _ in range(2):
            before = site.server.parts()
            for name, pid in before.items():
                if name != "store":
                    os.kill(pid, signal.SIGKILL)
            await eventually(
                partial(are_replaced, site, before), "the gateways are not started again"
            )
            await ready(site)
            assert site.server.parts()["store"] == before["store"]


def are_replaced(site: Site, before: dict[str, int]) -> bool:
    now = site.server.parts()
    return set(now) == set(before) and len({*now.values()} & {*before.values()}) == 1


async def test_store_that_is_killed_takes_all_along_and_no_send_is_refused(tmp_path: Path) -> None:
    with several(tmp_path, gateway__requests_waiting_max=1_000) as site:
        async with crowd(site) as (group, people, phones):
            before = site.server.parts()
            wanted = {new_key(): f"number {number}" for number in range(400)}
            await send_all(phones[0], group, dict(list(wanted.items())[:200]))
            await phones[0].until(lambda: len(phones[0].all_of("send_message_ack")) >= 20)
            # So that some are on their way for certain.
            os.kill(before["store"], signal.SIGSTOP)
            await send_all(phones[0], group, dict(list(wanted.items())[200:]))
            started = time.monotonic()
            os.kill(before["store"], signal.SIGKILL)
            codes = {await phone.closed() for phone in phones}
            assert time.monotonic() - started < SOON_S
            assert codes == {RESTART}
            acked = {
                frame["client_message_id"]: frame["sequence"]
                for frame in phones[0].all_of("send_message_ack")
            }
            assert len(acked) < len(wanted), "nothing was on its way"
            assert phones[0].all_of("error") == []
        await eventually(
            lambda: (
                len(site.server.parts()) == PROCESSES + 1
                and not set(site.server.parts().values()) & set(before.values())
            ),
            "the parent has not started all of them again",
        )
        await ready(site)
        async with site.phone(people[0]) as phone:
            for key, content in wanted.items():
                answer = await phone.say(group, content, key)
                assert acked.get(key, answer["sequence"]) == answer["sequence"]
            messages = await phone.sync(group)
            assert chained(messages)
            assert len(messages) == len(wanted)


async def test_gateway_that_hangs_is_cut_off_and_holds_nobody_up(tmp_path: Path) -> None:
    with several(tmp_path, server__link_bytes_max=500_000) as site:
        async with crowd(site) as (group, people, phones):
            name, stuck = busiest(site.server, phones)
            free = [phone for phone in phones if phone not in stuck]
            before = site.server.parts()
            os.kill(before[name], signal.SIGSTOP)
            for number in range(400):
                # Answered at once: the store waits for no gateway.
                await free[0].say(group, f"{number} " + "x" * 3_000)
                if site.server.parts().get(name) != before[name]:
                    break
            else:
                raise AssertionError("it is not cut off")
            count = number + 1
            for phone in stuck:
                await phone.closed()
            await free[1].until(lambda: len(free[1].all_of("message", group)) == count)
            assert chained(free[1].all_of("message", group))
            account = people[phones.index(stuck[0])]
            async with site.phone(account) as phone:
                assert len(await phone.sync(group)) == count


def test_parts_whose_parent_is_killed_are_gone_at_once(tmp_path: Path) -> None:
    with several(tmp_path) as site:
        pids = site.server.parts().values()
        os.kill(site.server.parts()["gw-2"], signal.SIGSTOP)
        site.server.process.kill()
        site.server.process.wait()
        until = time.monotonic() + SOON_S
        while time.monotonic() < until and any(is_alive(pid) for pid in pids):
            time.sleep(0.02)
        assert not [pid for pid in pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def listeners(port: int) -> int:
    return sum(
        fields[1].endswith(f":{port:04X}") and fields[3] == "0A"
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        if (fields := line.split())
    )


def is_replaced(site: Site, pid: int) -> bool:
    """The first gateway is another process, or rests."""
    return site.server.parts().get("gw-1", pid) != pid or listeners(site.port) < PROCESSES


async def test_gateway_in_a_crash_loop_has_its_socket_closed(tmp_path: Path) -> None:
    with several(tmp_path) as site:
        assert listeners(site.port) == PROCESSES
        for _ in range(3):
            pid = site.server.parts()["gw-1"]
            os.kill(pid, signal.SIGKILL)
            await eventually(partial(is_replaced, site, pid), "it is not started again")
        await eventually(lambda: listeners(site.port) == PROCESSES - 1, "its socket is open")
        # Every new connection is served by the others.
        for _ in range(12):
            assert (await site.call("GET", "/readyz")).status_code == 200


@pytest.mark.parametrize("processes", [1, PROCESSES])
def test_second_server_on_the_port_is_refused(tmp_path: Path, processes: int) -> None:
    with several(tmp_path / "one") as site:
        with serving(
            tmp_path / "two", "--port", str(site.port), "--processes", str(processes)
        ) as second:
            assert not second.is_up
            code, err = second.wait()
        assert code != 0
        assert f"cannot listen on 127.0.0.1:{site.port}" in err
        with socket.create_connection(("127.0.0.1", site.port)):
            pass


def test_second_server_on_the_data_is_refused(tmp_path: Path) -> None:
    with several(tmp_path), serving(tmp_path, "--processes", str(PROCESSES)) as second:
        assert not second.is_up
        code, err = second.wait()
        assert code != 0
        assert "is in use by process" in err
