"""The client without `async`, for scripts and notebooks: the same names, each call waits.

>>> with Client.register(url, "carol", "correct horse") as me:
...     chat = me.direct("bob")
...     sent = chat.send("hi")
...     sequence = sent.stored(timeout_s=10)
...     [message.text for message in chat.messages()]
['hi']

A thread of its own runs the event loop; the connection stays up while the program does other
things.

The classes are made from the async ones when this module is imported. Type checkers and editors
read `blocking.pyi`, which `tools/blocking_stub.py` writes.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tidewire.client import chat as chats
from tidewire.client import client as clients
from tidewire.client import sent as sents
from tidewire.client.errors import ClientClosed
from tidewire.client.model import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from tidewire.client.model import Event

TIMED = frozenset({"Client.ready", "Client.flush", "Client.wait_closed"}) | frozenset(
    {"Sent.stored", "Sent.delivered", "Sent.read"}
)
"""These also take `timeout_s`, and raise TimeoutError."""
DIRECT = frozenset({"Client.chat", "Client.reply_id"})
"""These only compute: they need no loop, and work after `close` and in a callback of the client."""
LEFT_OUT = frozenset({"driver", "people", "replica", "names", "acts"})
"""The inside of the client, which no other thread may touch."""


class _Loop:
    """A thread that runs an event loop and takes work from other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tidewire-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """Run the work and return its result, awaited if needed. After TimeoutError it is ended."""

        async def bounded() -> Any:
            async with asyncio.timeout(timeout_s):
                result = work()
                return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C while waiting: the work must not go on without its caller.
            future.cancel()
            raise

    def end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class _Blocking:
    """An object of the async client, `inner`, and the loop that it lives on."""

    def __init__(self, loop: _Loop, inner: Any) -> None:
        self._loop = loop
        self.inner = inner

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.inner == self.inner  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)


def _bridge(cls: type[_Blocking], original: type) -> None:
    """Give a class every public name of the async one that it does not define itself."""
    members = dict.fromkeys(original.__annotations__) | vars(original)
    for name, member in members.items():
        if name.startswith("_") or name in LEFT_OUT or name in vars(cls):
            continue
        if isinstance(member, classmethod):
            setattr(cls, name, classmethod(_making(member.__func__)))
        elif inspect.isfunction(member):
            full_name = f"{cls.__name__}.{name}"
            make = _timed if full_name in TIMED else _direct if full_name in DIRECT else _waiting
            setattr(cls, name, make(member))
        else:
            setattr(cls, name, _attribute(name, None if member is None else member.__doc__))


def _attribute(name: str, doc: str | None) -> property:
    return property(lambda self: getattr(self.inner, name), doc=doc)


def _direct(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as it is; it runs in its caller's thread."""

    def calling(self: _Blocking, *given: Any, **named: Any) -> Any:
        return _outer(self._loop, method(self.inner, *map(_inner, given), **named))

    return _described(calling, method)


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as a call that waits for its result."""

    def waiting(self: _Blocking, *given: Any, **named: Any) -> Any:
        given = tuple(map(_inner, given))
        named = {name: _inner(value) for name, value in named.items()}
        return _outer(self._loop, self._loop.run(lambda: method(self.inner, *given, **named)))

    return _described(waiting, method)


def _timed(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same with a timeout, for a method without arguments that may take long."""

    def waiting(self: _Blocking, timeout_s: float | None = None) -> Any:
        return _outer(self._loop, self._loop.run(lambda: method(self.inner), timeout_s))

    signature = inspect.signature(waiting)
    described = _described(waiting, method)
    described.__signature__ = signature.replace(  # type: ignore[attr-defined]
        return_annotation=inspect.signature(method).return_annotation
    )
    return described


def _making(method: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a method that makes an async client into one that makes a client of this module."""

    def making(cls: type[Client], *given: Any, **named: Any) -> Client:
        client = cls.__new__(cls)
        client._start(lambda: method(clients.Client, *given, **named))
        return client

    return _described(making, method)


def _described(call: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """The call with the name, signature and docstring of the async method."""
    described = functools.wraps(method)(call)
    described.__doc__ = blocking_doc(method.__doc__)
    return described


def blocking_doc(doc: str | None) -> str | None:
    """A docstring of the async client, without its examples: these would not run here."""
    if doc is None:
        return None
    text = doc.split(">>>", maxsplit=1)[0].rstrip()
    return text.replace("async with await ", "with ").replace("async for ", "for ")


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, _Blocking) else value


def _outer(loop: _Loop, value: Any) -> Any:
    """Results of the async client as objects of this module."""
    if isinstance(value, list):
        return [_outer(loop, one) for one in value]
    if isinstance(value, chats.Chat):
        return Chat(loop, value)
    if isinstance(value, Message):
        return _message(loop, value)
    return Sent(loop, value) if isinstance(value, sents.Sent) else value


def _message(loop: _Loop, message: Message) -> Message:
    """The same message with a chat of this module behind its methods, so that these wait."""
    quoted = None if message.quoted is None else _message(loop, message.quoted)
    acts = None if message.acts is None else Chat(loop, message.acts)
    return msgspec.structs.replace(message, acts=acts, quoted=quoted)


def _event(loop: _Loop, event: Event) -> Event:
    messages = {
        name: _message(loop, value)
        for name in event.__struct_fields__
        if isinstance(value := getattr(event, name), Message)
    }
    return msgspec.structs.replace(event, **messages)


class Client(_Blocking):
    """See `tidewire.client.Client`. Use it in `with`."""

    @functools.wraps(clients.Client.__init__)
    def __init__(self, *given: Any, **named: Any) -> None:
        self._start(lambda: clients.Client(*given, **named))

    def _start(self, make: Callable[[], Any]) -> None:
        loop = _Loop()
        try:
            super().__init__(loop, loop.run(make))
        except BaseException:
            loop.end()
            raise

    def __enter__(self) -> Self:
        try:
            self._loop.run(self.inner.__aenter__)
        except BaseException:
            self._loop.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(linger_s=clients.LINGER_S if error is None else 0.0)

    def close(self, linger_s: float = 0.0) -> None:
        """Close the client. The outbox gets `linger_s` to be sent; the rest stays on the disk."""
        try:
            self._loop.run(lambda: self.inner.close(linger_s))
        finally:
            self._loop.end()

    def events(self, timeout_s: float | None = None) -> Iterator[Event]:
        """As in the async client. Ends if nothing comes for `timeout_s`, or the client closes."""
        events = self.inner.events()
        while True:
            try:
                event = self._loop.run(lambda: anext(events, None), timeout_s)
            except TimeoutError:
                return
            if event is None:
                return
            yield _event(self._loop, event)


class Chat(_Blocking):
    """See `tidewire.client.Chat`."""


class Sent(_Blocking):
    """See `tidewire.client.Sent`. The waits raise TimeoutError."""


_bridge(Client, clients.Client)
_bridge(Chat, chats.Chat)
_bridge(Sent, sents.Sent)

__all__ = ["Chat", "Client", "ClientClosed", "Message", "Sent"]
