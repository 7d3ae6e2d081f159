"""The list of checks: one per duty, by its id."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidewire_conformance.stage import Stage

Body = Callable[[Stage], Awaitable[None]]


class Level(StrEnum):
    MUST = "MUST"
    SHOULD = "SHOULD"


@dataclass(frozen=True, slots=True)
class Check:
    """A duty, and a function that sees whether a client does it."""

    id: str
    level: Level
    title: str
    body: Body

    @property
    def explanation(self) -> str:
        """The duty and how it is seen."""
        return " ".join((self.body.__doc__ or "").split())


CHECKS: Final[dict[str, Check]] = {}
"""All checks, in the order of the contract."""


def must(check_id: str, title: str) -> Callable[[Body], Body]:
    return _registered(check_id, Level.MUST, title)


def should(check_id: str, title: str) -> Callable[[Body], Body]:
    return _registered(check_id, Level.SHOULD, title)


def _registered(check_id: str, level: Level, title: str) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        assert check_id not in CHECKS, check_id
        assert body.__doc__, check_id
        CHECKS[check_id] = Check(check_id, level, title, body)
        return body

    return register
