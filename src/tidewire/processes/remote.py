"""What is in the store process, as a gateway process has it: every method is a call of the same
method over the link.

Generated from the class (of the store: from the port, `ports.storage.Storage`), so a method that is
added there is here too. Of other things than the store (`offer`, `reach`) the acts have the name of
the thing before their own, and the origin of the request goes with them.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.messages import SendMessage
from tidewire.ports.audit import ORIGIN, Origin, origin_noted
from tidewire.ports.storage import AppendDone, MessageStore, Storage
from tidewire.processes.link import Acts, Link

_OWN: Final = frozenset({"append", "close"})

Thing = TypeVar("Thing")


def _calls_of(kind: type) -> list[str]:
    return [
        name
        for name in dir(kind)
        if not name.startswith("_") and iscoroutinefunction(getattr(kind, name))
    ]


CALLS: Final = tuple(name for name in _calls_of(Storage) if name not in _OWN)
"""What a gateway may have the store do, beside `append_nowait`."""


class _RemoteStore:
    def __init__(self, link: Link, epoch: str, appends_per_chat: bool) -> None:
        self.epoch = epoch
        self.appends_per_chat = appends_per_chat
        self._link: Link | None = link

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        self._open().call_back("append_nowait", sends, now_ms=now_ms, done=done)

    append = MessageStore.append

    async def close(self) -> None:
        """It is not ours to close; from here on we ask it nothing."""
        self._link = None

    def _open(self) -> Link:
        if self._link is None:
            raise StoreUnavailable("the store is closed")
        return self._link


def _call(name: str) -> Callable[..., Awaitable[Any]]:
    async def method(self: _RemoteStore, *args: Any, **named: Any) -> Any:
        return await self._open().call(name, *args, **named)

    method.__name__ = name
    return method


for _name in CALLS:
    setattr(_RemoteStore, _name, _call(_name))


async def reach_store(link: Link) -> Storage:
    """The store at the other end."""
    return cast("Storage", _RemoteStore(link, *await link.call("hello")))


# Other things than the store.


def offer(name: str, thing: object) -> Acts:
    """The acts with which others may use it."""
    return {
        f"{name}.{each}": partial(_carry_out, getattr(thing, each))
        for each in _calls_of(type(thing))
    }


async def _carry_out(
    act: Callable[..., Awaitable[Any]], origin: Origin, *args: Any, **named: Any
) -> Any:
    with origin_noted(origin):
        return await act(*args, **named)


def reach(name: str, kind: type[Thing], link: Link, **known: object) -> Thing:
    """What the other end offers by this name: its coroutine methods, and what is `known` of it."""

    def caller(each: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            return await link.call(f"{name}.{each}", ORIGIN.get(), *args, **named)

        return call

    calls = {each: caller(each) for each in _calls_of(kind)}
    return cast("Thing", SimpleNamespace(**calls, **known))
