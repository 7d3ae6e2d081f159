"""Proxies in a gateway process for objects of the store process: every method calls the same
method over the link.

They are generated from the class (for the store, from the port `ports.storage.Storage`), so a
method that is added there is here too. For objects other than the store (`offer`, `reach`) the name
of an act begins with that of the object, and the origin of the request goes with each call.
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
"""The methods of the store that a gateway may call, beside `append_nowait`."""


class _RemoteStore:
    def __init__(self, link: Link, epoch: str, appends_per_chat: bool) -> None:
        self.epoch = epoch
        self.appends_per_chat = appends_per_chat
        self._link: Link | None = link

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        self._open().call_back("append_nowait", sends, now_ms=now_ms, done=done)

    append = MessageStore.append

    async def close(self) -> None:
        """Use the store no more from here on. It is not closed: it belongs to the other process."""
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
    """A proxy for the store at the other end."""
    return cast("Storage", _RemoteStore(link, *await link.call("hello")))


# Other things than the store.


def offer(name: str, thing: object) -> Acts:
    """The acts with which other processes may use this object."""
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
    """A proxy for the object of this name at the other end: its coroutine methods, and the
    attributes in `known`."""

    def caller(each: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            return await link.call(f"{name}.{each}", ORIGIN.get(), *args, **named)

        return call

    calls = {each: caller(each) for each in _calls_of(kind)}
    return cast("Thing", SimpleNamespace(**calls, **known))
