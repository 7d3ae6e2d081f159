"""Attacks a real server at its default settings while two people talk. Holds no test.

`make siege` runs every attack and prints the table of docs/security.md; `test_hostile_siege` runs
each of them for a moment. The bars are those of the table: the attacker is closed or bounded, the
server's memory grows by less than 32 MB, and the talkers' acks take less than five times what they
take without the attack (or less than 100 ms). What they take without it is measured in the same
seconds, on a second server that is not attacked.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.e2e.attacks import ATTACKS, Outcome
from tests.e2e.chatting import Account, Phone, PlainSite, Site, new_key
from tests.support.cores import core_time, kept_waiting_s

GROWTH_BYTES_MAX: Final = 32 * 1024 * 1024
SLOWER_MAX: Final = 5
ACK_MS_ALLOWED: Final = 100.0
TALK_EVERY_S: Final = 0.11
"""Each of the two; what the limit of a chat allows."""
ROUNDS: Final = 3
"""An attack is tried again if a bar on time was missed: of some forty acks the slowest decides, and
one slow sync of the disk may hit one server and not the other. A server that can be frozen misses
them always. Memory and the attacker's end are never tried again."""
WARM_UP_S: Final = 1.0
DEVICES: Final = 3
GOES_ON_S: Final = 15.0
"""By then a WebSocket that sends more than its budget has been closed: its burst lasts 2 s, and it
may be held back for 10 s. Until then its rate is the bound."""
_PAGE_BYTES: Final = 4096
_MB: Final = 1024 * 1024


class Attack(NamedTuple):
    """One line of the table."""

    name: str
    finding: str
    sentence: str
    is_held: Callable[[Outcome, float], bool]
    """Whether the attacker was closed or bounded, from what became of it in so many seconds."""


def _all_closed(outcome: Outcome, seconds: float) -> bool:
    return outcome.closed >= outcome.connections > 0


def _some_closed(outcome: Outcome, seconds: float) -> bool:
    return outcome.closed > 0


def _at_most(kb_at_once: int, kb_per_second: int) -> Callable[[Outcome, float], bool]:
    """So much is taken from all its connections together, kernel's buffers included."""

    def is_held(outcome: Outcome, seconds: float) -> bool:
        return outcome.sent_bytes <= 1024 * (kb_at_once + kb_per_second * seconds)

    return is_held


def _closed_or(kb_at_once: int, kb_per_second: int) -> Callable[[Outcome, float], bool]:
    """Read at the rate of its budget, and closed when it goes on for long."""
    is_bounded = _at_most(kb_at_once, kb_per_second)
    return lambda outcome, seconds: (
        _all_closed(outcome, seconds) or (seconds < GOES_ON_S and is_bounded(outcome, seconds))
    )


def _is_refused(outcome: Outcome, seconds: float) -> bool:
    """It is told to wait, or its connections are ended."""
    return outcome.answers.get("429", 0) > 0 or outcome.closed > 0


def _is_refused_or_late(outcome: Outcome, seconds: float) -> bool:
    """Few of its requests cost anything: each of the 20 names has ten tries at once and one more
    each 30 s, however fast the machine hashes; the others wait for their turn, or are refused."""
    costly = outcome.answers.get("401", 0)
    return _is_refused(outcome, seconds) or costly <= 20 * (10 + seconds / 30)


def _reads_at_most(kb_at_once: int, kb_per_second: int) -> Callable[[Outcome, float], bool]:
    def is_held(outcome: Outcome, seconds: float) -> bool:
        return outcome.received_bytes <= 1024 * (kb_at_once + kb_per_second * seconds)

    return is_held


SIEGE: Final = (
    Attack("endless_headers", "A1", "header after header on one socket", _all_closed),
    Attack("endless_header_value", "A1", "one header that never ends", _all_closed),
    Attack("endless_address", "A1", "an address that never ends", _all_closed),
    Attack("endless_empty_lines", "A1", "empty lines before a request", _all_closed),
    Attack(
        "pipelined_unread", "A2", "10 sockets of requests, answers unread", _at_most(4_000, 200)
    ),
    Attack("endless_body", "A2", "a body of 10 GB where there is nothing", _all_closed),
    Attack("endless_chunks", "A2", "a body of chunks without an end", _all_closed),
    Attack("endless_trailer", "A1", "a trailer that never ends", _all_closed),
    Attack("many_connections", "A2", "3000 sockets with half a head each", _some_closed),
    Attack("not_http", "A16", "bytes that are no HTTP", _some_closed),
    Attack("guessed_passwords", "A11", "20 addresses that guess passwords", _is_refused_or_late),
    Attack("broken_upgrades", "A16", "upgrades that are malformed", _is_refused),
    Attack("refused_upgrades", "A17", "upgrades with bad tokens", _is_refused),
    Attack("escapes", "A9", "64 KB of escapes to explain", _closed_or(3_000, 1_200)),
    Attack("lone_surrogates", "A9", "64 KB of half surrogates", _closed_or(3_000, 1_200)),
    Attack("heartbeats", "A3", "heartbeats without a pause", _closed_or(800, 300)),
    Attack("arrays_of_heartbeats", "A3", "arrays of 256 heartbeats", _closed_or(3_000, 300)),
    Attack(
        "arrays_of_unknown_types", "A9", "arrays of 256 unknown frames", _closed_or(3_000, 1_200)
    ),
    Attack(
        "arrays_of_garbage",
        "A9",
        "arrays of 32 767 numbers, or very deep",
        _closed_or(9_000, 3_600),
    ),
    Attack("syncs", "A17", "the same pages again and again", _reads_at_most(60_000, 8_000)),
    Attack("description", "A8", "openapi.json on 20 sockets", _is_refused),
    Attack("long_unknown_paths", "A17", "404s with paths of 30 KB", _is_refused),
    Attack("probes", "A14", "probes without a pause", _is_refused),
    Attack("pipelined_read", "A2", "requests without a pause, answers read", _is_refused),
    Attack("ping_burst", "A3", "5 MB of empty pings in bursts", _all_closed),
    Attack("ping_unread", "A4", "pings whose pongs are not read", _closed_or(800, 300)),
    Attack("pongs", "A3", "empty pongs", _all_closed),
    Attack("empty_fragments", "A7", "a message of empty fragments", _all_closed),
    Attack("unknown_types", "A3", "frames of an unknown type, answered", _closed_or(800, 300)),
    Attack(
        "silent_unknown_types", "A3", "frames of an unknown type, ignored", _closed_or(800, 300)
    ),
)
assert {attack.name for attack in SIEGE} == set(ATTACKS)


class Verdict(NamedTuple):
    """What an attack has done."""

    attack: Attack
    outcome: Outcome
    growth_bytes: int
    besieged_ms: list[float]
    control_ms: list[float]
    """Of the same seconds, from the server that is not attacked."""
    seconds: float

    @property
    def faults(self) -> list[str]:
        return [*self.lasting_faults, *self.slow]

    @property
    def lasting_faults(self) -> list[str]:
        """What no second try excuses."""
        told = []
        if not self.attack.is_held(self.outcome, self.seconds):
            told.append(f"the attacker was neither closed nor bounded: {self.outcome}")
        if self.growth_bytes >= GROWTH_BYTES_MAX:
            told.append(f"memory grew by {self.growth_bytes / _MB:.0f} MB")
        return told

    @property
    def slow(self) -> list[str]:
        """The median shows a server that is always slow, however late one ack of the control is."""
        told = []
        for percent in (50, 99):
            bar_ms = max(ACK_MS_ALLOWED, SLOWER_MAX * percentile(self.control_ms, percent))
            besieged_ms = percentile(self.besieged_ms, percent)
            if besieged_ms >= bar_ms:
                told.append(f"ack p{percent} is {besieged_ms:.0f} ms, above {bar_ms:.0f} ms")
        return told

    @property
    def line(self) -> str:
        def both(values: list[float]) -> str:
            return f"{percentile(values, 50):.1f} / {percentile(values, 99):.1f}"

        return (
            f"| {self.attack.finding} | {self.attack.sentence} | {self.told} "
            f"| {self.growth_bytes / _MB:.1f} | {both(self.control_ms)} | {both(self.besieged_ms)} "
            f"| {'; '.join(self.faults) or 'held'} |"
        )

    @property
    def told(self) -> str:
        """What happened to the attacker."""
        outcome = self.outcome
        parts = []
        if outcome.closed:
            parts.append(f"{outcome.closed} of {outcome.connections} closed")
        answers = ", ".join(f"{n} × {code}" for code, n in sorted(outcome.answers.items()))
        parts += [answers] if answers else []
        parts.append(f"{outcome.sent_bytes / _MB:.1f} MB taken")
        if outcome.received_bytes > _MB:
            parts.append(f"{outcome.received_bytes / _MB:.1f} MB sent back")
        return "; ".join(parts)


HEAD: Final = (
    "| finding | attack | what happened to the attacker | memory, MB "
    "| ack p50 / p99 of the control, ms | attacked, ms | verdict |\n|---|---|---|---|---|---|---|"
)


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


class Conversation:
    """A server at its default settings, and two people who talk on it."""

    def __init__(self, site: Site, talkers: tuple[Phone, Phone], chat_id: str) -> None:
        self.site = site
        self._talkers = talkers
        self._chat_id = chat_id

    async def talk(self, until: Callable[[], bool]) -> list[float]:
        """Both talk until it is so; how long their acks took, in ms.

        Without the time for which other programs kept the server from a core. An attack makes a
        server work, and who works waits for a core more often than the control, which is idle. Of a
        server of several processes nothing is left out: which of them an ack waits for is not seen.
        """
        pid = self.site.server.process.pid
        took_ms: list[float] = []

        async def one(phone: Phone) -> None:
            while not until():
                cores = core_time(pid)
                began_s = time.perf_counter()
                with suppress(TimeoutError):
                    await phone.say(self._chat_id, "hello")
                took_s = time.perf_counter() - began_s
                took_ms.append((took_s - kept_waiting_s(cores, core_time(pid))) * 1000)
                phone.inbox.clear()
                await asyncio.sleep(max(0.0, TALK_EVERY_S - took_s))

        await asyncio.gather(*map(one, self._talkers))
        return took_ms

    async def warm_up(self) -> None:
        ends_at_s = time.monotonic() + WARM_UP_S
        await self.talk(lambda: time.monotonic() >= ends_at_s)

    def memory_bytes(self) -> int:
        """Of all its processes; pages that they share count for each."""
        pages = (Path(f"/proc/{pid}/statm").read_text() for pid in self.site.server.pids())
        return sum(int(each.split()[1]) for each in pages) * _PAGE_BYTES


@asynccontextmanager
async def conversation(directory: Path) -> AsyncIterator[Conversation]:
    with PlainSite(directory) as site:
        ann, bob = [await site.person(name) for name in ("ann", "bob")]
        chat_id = await site.direct(ann, bob)
        async with site.phone(ann) as one, site.phone(bob) as other:
            talk = Conversation(site, (one, other), chat_id)
            await talk.warm_up()
            yield talk
            assert not one.is_over
            assert not other.is_over
            assert site.server.process.poll() is None
            assert site.complaints() == []


class Besieged:
    """A server to attack, a second one for comparison, and an account to attack with."""

    def __init__(
        self,
        attacked: Conversation,
        control: Conversation,
        devices: list[Account],
        attackers_chat_id: str,
    ) -> None:
        self.attacked = attacked
        self._control = control
        self._devices = devices
        self._attackers_chat_id = attackers_chat_id
        self._calm_bytes = attacked.memory_bytes()
        self._attacks = 0

    async def suffer(self, attack: Attack, seconds: float) -> Verdict:
        """One attack, from an address of its own.

        Memory is compared with that before the first attack: what one has left counts for the next.
        """
        highest_bytes = 0
        self._attacks += 1
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.e2e.attacks",
            attack.name,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        order = {
            "port": self.attacked.site.port,
            "address": f"127.0.0.{65 + self._attacks}",
            "seconds": seconds,
            "devices": [device.headers for device in self._devices],
            "chat_id": self._attackers_chat_id,
        }
        attacking = asyncio.create_task(process.communicate(json.dumps(order).encode()))

        async def watch() -> None:
            nonlocal highest_bytes
            while not attacking.done():
                highest_bytes = max(highest_bytes, self.attacked.memory_bytes())
                await asyncio.sleep(0.05)

        besieged_ms, control_ms, (told, _), _ = await asyncio.gather(
            self.attacked.talk(attacking.done),
            self._control.talk(attacking.done),
            attacking,
            watch(),
        )
        assert process.returncode == 0, "the attacker itself failed"
        return Verdict(
            attack=attack,
            outcome=Outcome(**json.loads(told)),
            growth_bytes=max(highest_bytes, self.attacked.memory_bytes()) - self._calm_bytes,
            besieged_ms=besieged_ms,
            control_ms=control_ms,
            seconds=seconds,
        )

    async def withstand(self, attack: Attack, seconds: float) -> Verdict:
        """The same, tried again if only the machine may have been slow."""
        for _ in range(ROUNDS - 1):
            verdict = await self.suffer(attack, seconds)
            if not verdict.slow or verdict.lasting_faults:
                return verdict
        return await self.suffer(attack, seconds)


@asynccontextmanager
async def besieged(directory: Path, control: Conversation) -> AsyncIterator[Besieged]:
    async with conversation(directory) as attacked:
        site = attacked.site
        eve = await site.person("eve")
        devices = [eve, *[await site.login(eve) for _ in range(DEVICES - 1)]]
        yield Besieged(attacked, control, devices, await _history(site, eve))


async def _history(site: Site, eve: Account) -> str:
    """A chat of the attacker's own, with something in it to read."""
    mallory = await site.person("mallory")
    chat_id = await site.direct(eve, mallory)
    async with site.phone(eve) as phone:
        for _ in range(20):
            await phone.say(chat_id, "x" * 4_000, new_key())
    return chat_id


async def _run(names: list[str], seconds: float) -> int:
    chosen = [attack for attack in SIEGE if not names or attack.name in names]
    failed = 0
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="tidewire-siege-") as directory:
        async with conversation(Path(directory) / "control") as control:
            for number, attack in enumerate(chosen):
                # Each has a server of its own: what one has left behind is not the next one's.
                async with besieged(Path(directory) / str(number), control) as scene:
                    verdict = await scene.withstand(attack, seconds)
                failed += bool(verdict.faults)
                print(verdict.line, flush=True)
    print(f"\n{len(chosen) - failed} of {len(chosen)} attacks held, {seconds:g} s each")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="attack", help="only these")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ATTACKS)
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    return asyncio.run(_run(arguments.names, arguments.seconds))


if __name__ == "__main__":
    sys.exit(main())
