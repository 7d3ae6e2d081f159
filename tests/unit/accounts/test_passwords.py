"""Passwords: real argon2id with small parameters, off the loop, the same work for everybody."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import pytest

from tests.unit.accounts.parts import PlainHasher
from tidewire.accounts import passwords as module
from tidewire.accounts.options import PasswordOptions
from tidewire.accounts.passwords import RETRY_MS, Argon2Hasher, PasswordCheck, Passwords
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import TooManyLogins

SMALL = PasswordOptions(memory_kib=8, passes=1)
PASSWORD = Secret("correct horse")
OTHER = Secret("battery staple")

Result = TypeVar("Result")


def argon2(options: PasswordOptions = SMALL, seed: int = 1) -> Argon2Hasher:
    return Argon2Hasher(options, Random(seed).randbytes)


class Worker:
    """Runs blocking work when it is told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0
        self.running_max = 0

    def __call__(self, work: Callable[[], Result]) -> Awaitable[Result]:
        async def run() -> Result:
            self.running += 1
            self.running_max = max(self.running, self.running_max)
            try:
                await self.gate.wait()
                return work()
            finally:
                self.running -= 1

        return run()


def passwords(
    hasher: Argon2Hasher | PlainHasher,
    worker: Worker | None = None,
    **bounds: int,
) -> Passwords:
    return Passwords(
        hasher, run_blocking=worker or Worker(), random_bytes=Random(2).randbytes, **bounds
    )


def test_argon2_hash_is_argon2id_with_a_salt_and_matches_its_password_only() -> None:
    hasher = argon2()
    stored = hasher.hash(PASSWORD)
    assert stored.startswith("$argon2id$v=19$m=8,t=1,p=1$")
    assert hasher.hash(PASSWORD) != stored
    assert hasher.matches(stored, PASSWORD)
    assert not hasher.matches(stored, OTHER)
    assert PASSWORD.reveal() not in stored


@pytest.mark.parametrize("stored", ["", "plain", "$argon2id$", "$argon2id$v=19$m=8,t=1,p=1$x$y"])
def test_argon2_hash_that_is_none_matches_nothing(stored: str) -> None:
    assert not argon2().matches(stored, PASSWORD)


def test_argon2_takes_one_text_in_either_composition_and_any_text() -> None:
    hasher = argon2()
    stored = hasher.hash(Secret("caf\u00e9 caf\u00e9"))
    assert hasher.matches(stored, Secret("cafe\u0301 cafe\u0301"))
    assert not hasher.matches(stored, Secret("cafe cafe"))
    assert not hasher.matches(stored, Secret("\ud800"))


def test_argon2_hash_with_other_parameters_is_outdated_but_good() -> None:
    weak, strong = argon2(), argon2(PasswordOptions(memory_kib=16, passes=2))
    stored = weak.hash(PASSWORD)
    assert strong.matches(stored, PASSWORD)
    assert strong.is_outdated(stored)
    assert not weak.is_outdated(stored)


def test_default_parameters_are_not_weaker_than_owasps() -> None:
    options = PasswordOptions()
    assert (options.memory_kib, options.passes) >= (19 * 1024, 2)


async def test_check_says_whether_the_password_is_right() -> None:
    checker = passwords(argon2())
    stored = await checker.hash(PASSWORD)
    assert await checker.check(stored, PASSWORD) == PasswordCheck(is_right=True)
    assert await checker.check(stored, OTHER) == PasswordCheck(is_right=False)
    assert await checker.check(None, PASSWORD) == PasswordCheck(is_right=False)


async def test_check_without_a_hash_does_the_same_work() -> None:
    hasher = PlainHasher()
    checker = passwords(hasher)
    stored = await checker.hash(PASSWORD)
    # The first check of all makes the hash of nobody.
    await checker.check(stored, PASSWORD)
    hasher.calls.clear()
    await checker.check(stored, OTHER)
    wrong, hasher.calls = hasher.calls, []
    await checker.check(None, OTHER)
    assert wrong == hasher.calls == ["matches"]


async def test_check_never_takes_nobodys_password() -> None:
    """Not even the very text that the hash of nobody was made from."""
    hasher = PlainHasher()
    checker = passwords(hasher)
    nobodys = Secret(Random(2).randbytes(32).hex())
    assert await checker.check(None, nobodys) == PasswordCheck(is_right=False)


async def test_check_with_an_outdated_hash_gives_a_new_one() -> None:
    old = await passwords(PlainHasher(version=1)).hash(PASSWORD)
    checker = passwords(PlainHasher(version=2))
    assert await checker.check(old, PASSWORD) == PasswordCheck(
        is_right=True, rehashed="v2:correct horse"
    )
    assert (await checker.check(old, OTHER)).rehashed is None


async def test_checks_run_a_few_at_a_time_and_are_refused_beyond_the_bound() -> None:
    worker = Worker()
    worker.gate.clear()
    checker = passwords(PlainHasher(), worker, running_max=2, waiting_max=3)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(checker.hash(PASSWORD)) for _ in range(5)]
        while worker.running < 2:
            await asyncio.wait(waiting, timeout=0)
        for _ in range(2):
            with pytest.raises(TooManyLogins):
                await checker.hash(PASSWORD)
        assert not any(task.done() for task in waiting)
        worker.gate.set()
    assert worker.running_max == 2
    # There is room again.
    await checker.hash(PASSWORD)


async def turns_of(ranks: list[int], *, waiting_max: int) -> list[int | None]:
    """One hash runs while the others come, in this order: who is served when, None for who is
    refused."""
    worker = Worker()
    worker.gate.clear()
    checker = passwords(PlainHasher(), worker, running_max=1, waiting_max=waiting_max)
    served: list[int] = []

    async def come(number: int, rank: int) -> None:
        try:
            await checker.hash(PASSWORD, rank=lambda: rank)
        except TooManyLogins:
            return
        served.append(number)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(checker.hash(PASSWORD))
        while not worker.running:
            await asyncio.wait([running], timeout=0)
        for number, rank in enumerate(ranks):
            group.create_task(come(number, rank))
        await asyncio.wait([running], timeout=0.001)
        worker.gate.set()
    assert worker.running_max == 1
    return [served.index(number) if number in served else None for number in range(len(ranks))]


async def test_least_busy_is_served_first_and_equals_in_order() -> None:
    assert await turns_of([5, 1, 5, 2, 1], waiting_max=5) == [3, 0, 4, 2, 1]


async def test_full_queue_gives_up_its_last_place_for_a_better_one() -> None:
    assert await turns_of([5, 5, 5, 1, 9, 4], waiting_max=3) == [2, None, None, 0, None, 1]


async def test_one_who_gives_up_leaves_the_slot_to_the_next() -> None:
    worker = Worker()
    worker.gate.clear()
    checker = passwords(PlainHasher(), worker, running_max=1, waiting_max=9)
    tasks = [asyncio.get_running_loop().create_task(checker.hash(PASSWORD)) for _ in range(5)]
    await asyncio.wait(tasks, timeout=0.001)
    for task in tasks[:4]:
        task.cancel()
    worker.gate.set()
    await asyncio.wait_for(tasks[4], 30)
    # As often as one likes: no slot was lost.
    for _ in range(3):
        await asyncio.wait_for(checker.hash(PASSWORD), 30)
    await asyncio.wait(tasks)


async def test_one_who_gives_up_in_the_moment_of_the_turn_passes_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the slot would be lost, and with the last slot every login."""
    worker = Worker()
    worker.gate.clear()
    checker = passwords(PlainHasher(), worker, running_max=1, waiting_max=9)
    tasks = [asyncio.get_running_loop().create_task(checker.hash(PASSWORD)) for _ in range(3)]
    await asyncio.wait(tasks, timeout=0.001)
    pass_on = checker._pass_on

    def pass_on_and_give_up() -> None:
        pass_on()
        # It has the turn now, and has not heard of it yet.
        tasks[1].cancel()

    monkeypatch.setattr(checker, "_pass_on", pass_on_and_give_up)
    worker.gate.set()
    await asyncio.wait_for(tasks[2], 30)
    assert tasks[1].cancelled()
    await asyncio.wait_for(checker.hash(PASSWORD), 30)


async def test_one_who_waits_too_long_is_refused() -> None:
    worker = Worker()
    worker.gate.clear()
    checker = passwords(PlainHasher(), worker, running_max=1, waiting_max=9, waiting_ms_max=1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(checker.hash(PASSWORD))
        await asyncio.wait([first], timeout=0.001)
        with pytest.raises(TooManyLogins) as refused:
            await checker.hash(PASSWORD)
        assert refused.value.retry_after_ms == RETRY_MS
        worker.gate.set()
    await checker.hash(PASSWORD)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7)])
def test_core_is_left_for_the_event_loop(
    cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_cores", lambda: cores)
    assert passwords(PlainHasher())._running_max == threads
    assert passwords(PlainHasher(), running_max=3)._running_max == 3


def test_cores_are_those_that_this_process_may_use() -> None:
    assert 1 <= module._cores() <= (os.cpu_count() or 1)
