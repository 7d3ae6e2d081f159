"""kill -9 of a server while a crowd talks, again and again on the same data. Holds no test.

After every kill all clients come back and sync; then what is stored is held against all that was
acknowledged and seen, and every digest against what was shown before. A server of one process is
killed as a whole. Of a server of several (`TIDEWIRE_SERVER_PROCESSES=3`) each three rounds kill, in
an order that chance decides: the parent, which takes all along; the store process, whose parent
starts all again; and a gateway, while the clients of the others talk on.

`python -m tests.e2e.kills --rounds 40` does it at length, and in the end has `tidewire verify` look
at the data; `test_kill_server` does it briefly.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.e2e.commands import tidewire
from tests.e2e.crowds import Crowd, crowd
from tests.e2e.serving import parts_of
from tidewire_bench.frames import RISING

PAIRS: Final = 20
TALK_ON: Final = 50
"""How many more messages the clients of other gateways are promised before a round ends."""
WHOLE, STORE, GATEWAY = "the whole server", "the store process", "a gateway process"
ERRORS: Final = {
    WHOLE: {"unreachable"},
    STORE: {"closing_server_shutdown", "close_1012"},
    GATEWAY: {"unreachable"},
}
"""What clients may meet beside a connection that breaks off."""


class Kills:
    """The rounds of one crowd."""

    def __init__(self, people: Crowd) -> None:
        self.stored = 0
        self.killed: Counter[str] = Counter()
        self._people = people
        self._next: list[str] = []

    async def check(self) -> None:
        """All come back; everything that was promised is there, once."""
        people = self._people
        await people.arrive()
        assert await people.audit() == people.book.acked_count >= self.stored
        self.stored = people.book.acked_count
        assert people.outcome.faults.first == [], f"after {self.killed.total()} kills"

    async def round(self) -> None:
        """One kill under load."""
        people = self._people
        await self.check()
        tasks = await people.talk(people.generator.randrange(100, 800))
        assert people.under_way > 0, "nothing was on its way at the kill"
        parts = parts_of(people.server.process.pid)
        victim = self._victim() if parts else WHOLE
        self.killed[victim] += 1
        if victim == WHOLE:
            people.server.kill()
            await people.gone(tasks)
            await people.server.start()
        elif victim == STORE:
            os.kill(parts["store"], signal.SIGKILL)
            await people.gone(tasks)
            await self._replaced(parts)
        else:
            gateway = people.generator.choice(sorted(set(parts) - {"store"}))
            os.kill(parts[gateway], signal.SIGKILL)
            await people.until(lambda: any(one.transport is None for one in people.clients))
            promised = people.book.acked_count + TALK_ON
            await people.until(lambda: people.book.acked_count >= promised)
            assert any(one.transport is not None for one in people.clients)
            people.drop()
            await people.gone(tasks)
            await self._replaced({gateway: parts[gateway]})

    def final_check(self) -> None:
        """That the rounds were worth something."""
        people, kills = self._people, self.killed.total()
        assert self.stored > 100 * kills
        for name in RISING:
            shown = [getattr(one.shown[people.group], name) for one in people.clients]
            assert max(shown) > 0, f"no client was shown {name}, so nothing was proved of it"
        met, allowed = people.outcome.errors, set().union(*(ERRORS[one] for one in self.killed))
        assert set(met) <= allowed, met

    def _victim(self) -> str:
        """Each once in three rounds: one that dies three times in 30 s is not started again."""
        if not self._next:
            self._next = self._people.generator.sample((WHOLE, STORE, GATEWAY), 3)
        return self._next.pop()

    async def _replaced(self, gone: dict[str, int]) -> None:
        """Its parent has started others in their place."""
        pid = self._people.server.process.pid

        def is_so() -> bool:
            now = parts_of(pid)
            return all(name in now and now[name] != gone[name] for name in gone)

        await self._people.until(is_so)


async def _run(directory: Path, rounds: int, seed: int) -> None:
    async with crowd(directory, PAIRS, seed=seed) as people:
        kills = Kills(people)
        for number in range(rounds):
            await kills.round()
            print(f"\r{number + 1} of {rounds} kills ", end="", flush=True)
        await kills.check()
        kills.final_check()
        promised, errors = kills.stored, dict(people.outcome.errors)
    killed = ", ".join(f"{count} of {what}" for what, count in sorted(kills.killed.items()))
    print(f"\n{killed}; {promised} messages promised, all there, once; clients met {errors}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a server under load, and check it.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="tidewire-kills-") as directory:
        data_dir = Path(directory) / "data"
        asyncio.run(_run(data_dir, given.rounds, given.seed))
        done = tidewire("verify", "--data-dir", data_dir)
    print(done.out + done.err)
    return done.exit_code


if __name__ == "__main__":
    sys.exit(main())
