"""How the methods of the engine reach the database: writes in the next commit, reads beside it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from tidewire.domain.events import Event
from tidewire.engines.sqlite.readers import Readers
from tidewire.engines.sqlite.writer import Writer

Result = TypeVar("Result")
Given = ParamSpec("Given")


class SqliteCalls:
    """What the parts of the engine have in common: one writer, some readers."""

    def __init__(self, *, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer

    def _write(
        self,
        act: Callable[Concatenate[apsw.Connection, Given], tuple[Result, Sequence[Event]]],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Awaitable[Result]:
        """Do one of the acts in the next commit."""
        return self._writer.write(lambda database: act(database, *given, **named))

    def _read(
        self,
        query: Callable[Concatenate[apsw.Connection, Given], Result],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Awaitable[Result]:
        """Ask one of the queries in a read transaction of its own."""
        return self._readers.read(lambda database: query(database, *given, **named))
