"""Passwords: argon2id, off the event loop, and the same work whether or not there is an account.

Few hashes run at a time, so that a core is left for the event loop. Others wait in a short queue;
senders with few requests lately come before senders with many (`login_limits.Turns`).
"""

import asyncio
import os
import unicodedata
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import argon2
import msgspec
from argon2.exceptions import InvalidHashError, VerificationError

from tidewire.accounts.login_limits import Rank, Turns
from tidewire.accounts.options import PasswordOptions
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import TooManyLogins
from tidewire.ports.runtime import RandomBytes, RunBlocking

SALT_BYTES: Final = 16
WAITING_MAX: Final = 64
"""How many requests may wait for a slot, those from busy addresses last. Beyond it the last one is
refused. One core serves 64 in 2 s."""
WAITING_MS_MAX: Final = 15_000
"""How long a request may wait; then it is refused. Clients wait about as long."""
RETRY_MS: Final = 2_000
"""When a client may try again after a full queue: by then the queue has been served."""

Result = TypeVar("Result")


class PasswordHasher(Protocol):
    """Hashes and checks passwords. Slow on purpose: both block their thread."""

    def hash(self, password: Secret) -> str: ...

    def matches(self, stored: str, password: Secret) -> bool: ...

    def is_outdated(self, stored: str) -> bool:
        """True if the hash was made with other parameters than new ones are."""
        ...


class Argon2Hasher:
    """argon2id with the parameters of the options, one thread for each hash."""

    def __init__(self, options: PasswordOptions, random_bytes: RandomBytes) -> None:
        self._argon2 = argon2.PasswordHasher(
            time_cost=options.passes, memory_cost=options.memory_kib, parallelism=1
        )
        self._random_bytes = random_bytes

    def hash(self, password: Secret) -> str:
        return self._argon2.hash(_bytes(password), salt=self._random_bytes(SALT_BYTES))

    def matches(self, stored: str, password: Secret) -> bool:
        try:
            return self._argon2.verify(stored, _bytes(password))
        except (VerificationError, InvalidHashError):
            return False

    def is_outdated(self, stored: str) -> bool:
        return self._argon2.check_needs_rehash(stored)


def operators() -> int:
    """The rank of an operator's request: before all others."""
    return 0


class PasswordCheck(msgspec.Struct, frozen=True):
    """`rehashed` is set if the password is right, but its hash is to be replaced."""

    is_right: bool
    rehashed: str | None = None


class Passwords:
    """Hashes and checks passwords without blocking the event loop."""

    def __init__(
        self,
        hasher: PasswordHasher,
        *,
        run_blocking: RunBlocking,
        random_bytes: RandomBytes,
        running_max: int | None = None,
        waiting_max: int = WAITING_MAX,
        waiting_ms_max: int = WAITING_MS_MAX,
    ) -> None:
        """`running_max` is how many hashes run at the same time. The default is one less than the
        cores of the processor, so that one is left for messages while many people log in."""
        self._hasher = hasher
        self._waiting_ms_max = waiting_ms_max
        self._run_blocking = run_blocking
        self._random_bytes = random_bytes
        self._running_max = running_max or max(1, _cores() - 1)
        # A slot that was given to a waiting request counts as taken, even before it is used.
        self._slots_taken = 0
        self._turns: Turns[asyncio.Future[None]] = Turns(waiting_max=waiting_max)
        self._nobodys_hash: str | None = None

    async def hash(self, password: Secret, *, rank: Rank = operators) -> str:
        """Raises TooManyLogins."""
        return await self._run(lambda: self._hasher.hash(password), rank)

    async def check(
        self, stored: str | None, password: Secret, *, rank: Rank = operators
    ) -> PasswordCheck:
        """Check a password against a hash. With None it is wrong, and that takes as long.

        `rank` is the place in the queue (`login_limits.Turns`). Raises TooManyLogins.
        """
        return await self._run(lambda: self._check(stored, password), rank)

    def _check(self, stored: str | None, password: Secret) -> PasswordCheck:
        if self._nobodys_hash is None:
            # Made at the very first login, for any account, so that its time tells nothing.
            self._nobodys_hash = self._hasher.hash(Secret(self._random_bytes(32).hex()))
        is_right = self._hasher.matches(stored or self._nobodys_hash, password)
        if stored is None or not is_right:
            return PasswordCheck(is_right=False)
        if self._hasher.is_outdated(stored):
            return PasswordCheck(is_right=True, rehashed=self._hasher.hash(password))
        return PasswordCheck(is_right=True)

    async def _run(self, work: Callable[[], Result], rank: Rank) -> Result:
        await self._take_slot(rank)
        try:
            return await self._run_blocking(work)
        finally:
            self._pass_on()

    async def _take_slot(self, rank: Rank) -> None:
        if self._slots_taken < self._running_max:
            self._slots_taken += 1
            return
        ticket = asyncio.get_running_loop().create_future()
        evicted = self._turns.enter(ticket, rank)
        if evicted is not None and not evicted.done():
            evicted.set_exception(TooManyLogins(retry_after_ms=RETRY_MS))
        try:
            async with asyncio.timeout(self._waiting_ms_max / 1000):
                await ticket
        except BaseException as error:
            self._turns.leave(ticket)
            if ticket.done() and not ticket.cancelled() and ticket.exception() is None:
                # The slot was given to this request just when it gave up.
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise TooManyLogins(retry_after_ms=RETRY_MS) from None
            raise

    def _pass_on(self) -> None:
        """Give a free slot to the next waiting request, if any."""
        ticket = self._turns.take()
        while ticket is not None and ticket.done():
            ticket = self._turns.take()
        if ticket is None:
            self._slots_taken -= 1
        else:
            ticket.set_result(None)


def _cores() -> int:
    """How many cores of the processor this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bytes(password: Secret) -> bytes:
    """The password in one Unicode form, because keyboards compose an é in different ways."""
    return unicodedata.normalize("NFC", password.reveal()).encode(errors="surrogatepass")


_CONFORMS: type[PasswordHasher] = Argon2Hasher
