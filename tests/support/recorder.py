"""Calls a store and records each question and its answer, as a history."""

from collections.abc import Awaitable, Sequence
from itertools import count
from typing import TypeVar

from tests.support.history import (
    Acked,
    AdvanceAcked,
    AdvanceSent,
    BoundaryAsked,
    BoundaryShown,
    Entry,
    FinalState,
    MemberAdding,
    MemberRemoving,
    MembershipDone,
    MemberShown,
    PositionAsked,
    PositionShown,
    Published,
    Question,
    Refused,
    Sent,
    SummaryAsked,
    SummaryShown,
    SyncAsked,
    Synced,
)
from tests.support.world import PLENTY, World
from tidewire.domain import errors
from tidewire.domain.delivery import Advance, Advanced, Positions
from tidewire.domain.events import MessageAppended
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Appended
from tidewire.ports.inspection import Inspector

Result = TypeVar("Result")


class Recorder:
    """Each method asks the store one thing. Refusals are recorded like any other answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[Entry] = []
        self._ops = count(1)

    async def send(
        self, user_id: UserId, chat_id: ChatId, key: ClientMessageId, content: str
    ) -> None:
        op = self._ask(
            Sent(
                op=next(self._ops),
                chat_id=chat_id,
                user_id=user_id,
                client_message_id=key,
                content=content,
            )
        )
        outcome = await self.world.try_send(chat_id, user_id, content, key=key)
        if isinstance(outcome, Appended):
            self.entries.append(
                Acked(
                    op=op,
                    sequence=outcome.sequence,
                    message_id=outcome.message_id,
                    created_at_ms=outcome.created_at_ms,
                    deduplicated=outcome.deduplicated,
                )
            )
        else:
            self._refused(op, outcome)

    async def sync(self, user_id: UserId, chat_id: ChatId, after: int, count_max: int) -> None:
        op = self._ask(SyncAsked(op=next(self._ops), chat_id=chat_id, user_id=user_id, after=after))
        reading = self.world.storage.messages_after(
            user_id, chat_id, after, count_max=count_max, bytes_max=PLENTY
        )
        if (page := await self._try(op, reading)) is not None:
            self.entries.append(
                Synced(
                    op=op,
                    messages=page.messages,
                    synced_through=page.synced_through,
                    has_more=page.has_more,
                )
            )

    async def advance(self, user_id: UserId, chat_id: ChatId, delivered: int, read: int) -> None:
        question = AdvanceSent(
            op=next(self._ops), chat_id=chat_id, user_id=user_id, delivered=delivered, read=read
        )
        op = self._ask(question)
        wish = Advance(user_id=user_id, chat_id=chat_id, delivered=delivered, read=read)
        [outcome] = await self.world.storage.advance([wish], now_ms=self.world.now())
        if isinstance(outcome, Advanced):
            now = outcome.positions
            self.entries.append(
                AdvanceAcked(op=op, delivered=now.delivered, read=now.read, moved=outcome.moved)
            )
        else:
            self._refused(op, outcome)

    async def look(self, user_id: UserId, chat_id: ChatId) -> None:
        """Look at the user's own positions and the others' boundary, as the digest shows them."""
        own = self._ask(PositionAsked(op=next(self._ops), chat_id=chat_id, user_id=user_id))
        others = self._ask(BoundaryAsked(op=next(self._ops), chat_id=chat_id, user_id=user_id))
        page = await self.world.storage.digest(user_id, after=None, count_max=PLENTY)
        for entry in page.entries:
            if entry.chat_id == chat_id:
                self.entries += [
                    PositionShown(op=own, delivered=entry.delivered, read=entry.read),
                    BoundaryShown(
                        op=others, delivered=entry.others_delivered, read=entry.others_read
                    ),
                ]

    async def summary(self, user_id: UserId, chat_id: ChatId, sequence: int) -> None:
        question = SummaryAsked(
            op=next(self._ops), chat_id=chat_id, user_id=user_id, sequence=sequence
        )
        op = self._ask(question)
        asking = self.world.storage.delivery_status(user_id, chat_id, sequence)
        if (status := await self._try(op, asking)) is not None:
            stored = await self.world.engine.messages(chat_id)
            authors = [one.sender_id for one in stored if one.sequence == sequence]
            self.entries.append(
                SummaryShown(
                    op=op,
                    author_id=authors[0] if authors else None,
                    members=[
                        MemberShown(one.user_id, one.joined_sequence, one.positions.delivered)
                        for one in status.members
                    ],
                    delivered_count=status.summary.delivered_count,
                    pending_count=status.summary.pending_count,
                    all_delivered=status.summary.all_delivered,
                )
            )

    async def add(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> None:
        op = self._ask(MemberAdding(op=next(self._ops), chat_id=chat_id, user_id=user_id))
        if await self._try(op, self.world.add(actor, chat_id, user_id)) is not None:
            self.entries.append(MembershipDone(op=op))

    async def remove(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> None:
        op = self._ask(MemberRemoving(op=next(self._ops), chat_id=chat_id, user_id=user_id))

        async def removing() -> bool:
            await self.world.remove(actor, chat_id, user_id)
            return True

        if await self._try(op, removing()):
            self.entries.append(MembershipDone(op=op))

    def there_from_the_start(self, chat_id: ChatId, *user_ids: UserId) -> None:
        for user_id in user_ids:
            op = self._ask(MemberAdding(op=next(self._ops), chat_id=chat_id, user_id=user_id))
            self.entries.append(MembershipDone(op=op))

    def take_events(self) -> None:
        """Record the events that the listener got."""
        self.entries += [
            Published(event.message.chat_id, event.message.sequence, event.message.prev_sequence)
            for event in self.world.new_events()
            if isinstance(event, MessageAppended)
        ]

    def _ask(self, question: Question) -> int:
        self.entries.append(question)
        return question.op

    async def _try(self, op: int, asking: Awaitable[Result]) -> Result | None:
        try:
            return await asking
        except errors.Refused as refusal:
            self._refused(op, refusal)
            return None

    def _refused(self, op: int, error: errors.TidewireError) -> None:
        assert isinstance(error, errors.Refused), error
        self.entries.append(Refused(op=op, code=error.code))


async def final_state(world: World, inspector: Inspector, chat_ids: Sequence[ChatId]) -> FinalState:
    """What is in the store at the end."""
    counters = {chat_id: await world.engine.counter(chat_id) for chat_id in chat_ids}
    positions = {
        (UserId(row.user_id), row.chat_id): Positions(row.delivered, row.read)
        for rows in inspector.positions()
        for row in rows
    }
    inspector.close()
    return FinalState(
        messages={chat_id: await world.engine.messages(chat_id) for chat_id in chat_ids},
        counters={chat_id: counter for chat_id, counter in counters.items() if counter is not None},
        positions=positions,
        leaves_gaps=world.engine.leaves_gaps,
    )
