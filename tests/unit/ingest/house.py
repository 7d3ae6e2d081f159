"""A service with everything around it, and short words for what is done to it. Holds no test."""

import asyncio
from typing import TYPE_CHECKING

from tests.unit.ingest.fake_store import FakeStore
from tidewire.domain.audit import AuditAction
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, UlidSource, UserId
from tidewire.domain.messages import Amendment, Appended, AppendOutcome, MessageBody
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ports.audit import ORIGIN
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire.ports.storage import Appends


class JumpingClock(SystemClock):
    """The real clock, but the calendar says what the test wants."""

    def __init__(self) -> None:
        self.date_ms = 1_700_000_000_000
        self.passed_ms = 0

    def wall_ms(self) -> int:
        return self.date_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.passed_ms


class KeptTrail:
    """The audit trail, as a list of what was reported and from where."""

    def __init__(self) -> None:
        self.records: list[tuple[str | None, str, dict[str, object]]] = []

    def record(self, action: AuditAction, **fields: object) -> None:
        self.records.append((ORIGIN.get().address, action.value, fields))


class House:
    """A service with everything around it."""

    def __init__(
        self,
        store: FakeStore,
        *,
        edit_window_ms: int | None = None,
        appends: "Callable[[House], Appends] | None" = None,
        **options: int,
    ) -> None:
        """`appends` makes what stands before the store."""
        self.deaths: asyncio.Queue[BaseException] = asyncio.Queue()
        self.tasks = TaskSupervisor(lambda _name, error: self.deaths.put_nowait(error))
        self.clock = JumpingClock()
        self.store = store
        self.answers: dict[str, AppendOutcome] = {}
        self.order: list[str] = []
        self.trail = KeptTrail()
        self._news = asyncio.Event()
        self.service = IngestService(
            store=store if appends is None else appends(self),
            clock=self.clock,
            ids=UlidSource(lambda _bits: 7),
            tasks=self.tasks,
            options=IngestOptions(**options),
            edit_window_ms=edit_window_ms,
            trail=self.trail,
        )

    def submit(
        self,
        content: str,
        *,
        key: str | None = None,
        line: str | None = "phone",
        chat: str = "chat_1",
        sender: str = "user_anna",
        patience_ms: int | None = None,
        label: str | None = None,
        amends: Amendment | None = None,
        base: int | None = None,
    ) -> None:
        """Submit an entry; the answer will stand in `answers` under its label, or its content."""
        name = content if label is None else label

        def done(outcome: AppendOutcome) -> None:
            assert name not in self.answers, "answered twice"
            self.answers[name] = outcome
            self.order.append(name)
            self._news.set()

        self.service.submit_nowait(
            MessageBody(content=content),
            chat_id=ChatId(chat),
            sender_id=UserId(sender),
            client_message_id=client_message_id(content if key is None else key),
            done=done,
            origin_connection_id=None if line is None else ConnectionId(line),
            deadline_at_ms=None if patience_ms is None else self.in_ms(patience_ms),
            amends=amends,
            base=base,
        )

    async def send(
        self, content: str, *, key: str | None = None, patience_ms: int | None = None
    ) -> Appended:
        return await self.service.send(
            MessageBody(content=content),
            chat_id=ChatId("chat_1"),
            sender_id=UserId("user_anna"),
            client_message_id=client_message_id(content if key is None else key),
            deadline_at_ms=None if patience_ms is None else self.in_ms(patience_ms),
        )

    def in_ms(self, patience_ms: int) -> int:
        return self.clock.monotonic_ms() + patience_ms

    async def answered(self, *names: str) -> None:
        """Wait until all of these have their answers."""
        while not self.answers.keys() >= set(names):
            self._news.clear()
            await self._news.wait()

    def sequence(self, name: str) -> int:
        answer = self.answers[name]
        assert isinstance(answer, Appended)
        return answer.sequence


def client_message_id(name: str) -> ClientMessageId:
    """A UUID for each name."""
    return ClientMessageId(f"00000000-0000-4000-8000-{name.encode().hex()[:12]:0>12}")


async def next_turn() -> None:
    """Let everything run that is ready to."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
