"""Passwords: argon2id, off the event loop, and the same work whether or not there is an account."""

import asyncio
import unicodedata
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import argon2
import msgspec
from argon2.exceptions import InvalidHashError, VerificationError

from tidewire.accounts.options import PasswordOptions
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import Overloaded
from tidewire.ports.runtime import RandomBytes, RunBlocking

SALT_BYTES: Final = 16

Result = TypeVar("Result")


class PasswordHasher(Protocol):
    """Hashes and checks. Slow on purpose: both hold their thread up."""

    def hash(self, password: Secret) -> str: ...

    def matches(self, stored: str, password: Secret) -> bool: ...

    def is_outdated(self, stored: str) -> bool:
        """True if the hash was made with other parameters than new ones are."""
        ...


class Argon2Hasher:
    """argon2id with the parameters of the options."""

    def __init__(self, options: PasswordOptions, random_bytes: RandomBytes) -> None:
        self._argon2 = argon2.PasswordHasher(
            time_cost=options.passes, memory_cost=options.memory_kib, parallelism=options.lanes
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


class PasswordCheck(msgspec.Struct, frozen=True):
    """`rehashed` is set if the password is right, but its hash is to be replaced."""

    is_right: bool
    rehashed: str | None = None


class Passwords:
    """Hashes and checks passwords without holding the event loop up."""

    def __init__(
        self,
        hasher: PasswordHasher,
        *,
        options: PasswordOptions,
        run_blocking: RunBlocking,
        random_bytes: RandomBytes,
    ) -> None:
        self._hasher = hasher
        self._options = options
        self._run_blocking = run_blocking
        self._random_bytes = random_bytes
        self._turns = asyncio.Semaphore(options.running_max)
        self._waiting = 0
        self._nobodys_hash: str | None = None

    async def hash(self, password: Secret) -> str:
        return await self._run(lambda: self._hasher.hash(password))

    async def check(self, stored: str | None, password: Secret) -> PasswordCheck:
        """Is it the password of this hash? With None it is not, and that takes as long."""
        return await self._run(lambda: self._check(stored, password))

    def _check(self, stored: str | None, password: Secret) -> PasswordCheck:
        if self._nobodys_hash is None:
            # At the first login of all, whoever it is, so that it tells nothing.
            self._nobodys_hash = self._hasher.hash(Secret(self._random_bytes(32).hex()))
        is_right = self._hasher.matches(stored or self._nobodys_hash, password)
        if stored is None or not is_right:
            return PasswordCheck(is_right=False)
        if self._hasher.is_outdated(stored):
            return PasswordCheck(is_right=True, rehashed=self._hasher.hash(password))
        return PasswordCheck(is_right=True)

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._waiting >= self._options.running_max + self._options.waiting_max:
            raise Overloaded("too many are logging in at once; try again in a moment")
        self._waiting += 1
        try:
            async with self._turns:
                return await self._run_blocking(work)
        finally:
            self._waiting -= 1


def _bytes(password: Secret) -> bytes:
    """One form for one text: keyboards differ in how they compose an é."""
    return unicodedata.normalize("NFC", password.reveal()).encode(errors="surrogatepass")


_CONFORMS: type[PasswordHasher] = Argon2Hasher
