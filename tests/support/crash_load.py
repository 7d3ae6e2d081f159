"""The load of the crash tests: senders that write, retry, acknowledge and read concurrently.

Every act is reported before and after (`crash_records`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

import msgspec

from tests.support import history
from tests.support.crash_cast import MEMBERS_MAX, START_MS, Cast
from tests.support.crash_changes import Changes, new_draft
from tests.support.crash_records import (
    PAGE_MESSAGES_MAX,
    Fault,
    OnLine,
    Placed,
    Record,
)
from tests.support.trace_entries import subject_of
from tidewire.domain.chats import Role
from tidewire.domain.delivery import Advance, Advanced
from tidewire.domain.errors import NotAMember, Refused, StoreUnusable, Unavailable
from tidewire.domain.events import Event, MessageAppended
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, MessageBody
from tidewire.ingest.service import IngestService
from tidewire.ports.event_log import CommitListener
from tidewire.ports.storage import Storage

OPS_PER_LIFE: Final = 1_000_000
KNOWN_MAX: Final = 64
"""How many of its own sends a sender remembers, to send them again."""


@dataclass(slots=True)
class _Sender:
    """One user on one device."""

    user_id: UserId
    connection: str
    random: Random
    chats: list[ChatId]
    sent: deque[history.Sent] = field(default_factory=lambda: deque(maxlen=KNOWN_MAX))
    cursors: dict[ChatId, int] = field(default_factory=dict)
    """How far the user has read, page by page, in this life."""


class Load:
    """Runs until it is stopped, or until the store gives up."""

    def __init__(
        self,
        storage: Storage,
        ingest: IngestService,
        cast: Cast,
        *,
        life: int,
        seed: str,
        report: Callable[[Record], None],
        pause_s: float,
    ) -> None:
        """`life` numbers the runs over one store. A sender pauses for up to `pause_s` between two
        acts."""
        self._storage = storage
        self._ingest = ingest
        self._cast = cast
        self._life = life
        self._seed = f"{seed}/{life}"
        self._report = report
        self._pause_s = pause_s
        self._ops = count(life * OPS_PER_LIFE)
        self._heads: dict[ChatId, int] = {}
        self._places: dict[UserId, deque[tuple[ChatId, int]]] = {}
        self._changes = Changes(cast)
        self._is_stopping = False

    def stop(self) -> None:
        """Let every sender finish its current act."""
        self._is_stopping = True

    async def look_back(self, again: Sequence[history.Sent]) -> None:
        """Only send again what an earlier life has sent, and read what is stored."""
        await self._repeat(again)
        for number, user_id in enumerate(self._cast.users):
            sender = self._sender(number, user_id)
            for _ in sender.chats:
                await self._read_on(sender)

    async def run(self, again: Sequence[history.Sent]) -> None:
        """Begin with sends of an earlier life, then go on until stopped. Raises only bugs."""
        people = (*self._cast.users, self._cast.guest)
        outcomes = await asyncio.gather(
            self._repeat(again),
            self._change_members(),
            *[self._send_and_read(number, user_id) for number, user_id in enumerate(people)],
            return_exceptions=True,
        )
        for outcome in outcomes:
            # The store may fail while the load runs: these tests make it fail.
            if isinstance(outcome, BaseException) and not isinstance(
                outcome, Unavailable | StoreUnusable
            ):
                raise outcome

    async def _repeat(self, again: Sequence[history.Sent]) -> None:
        await asyncio.gather(*[self._submit(sent) for sent in again])

    async def _send_and_read(self, number: int, user_id: UserId) -> None:
        sender = self._sender(number, user_id)
        random = sender.random
        acts = (
            (50, self._send_some),
            (30, self._change_some),
            (10, self._look_at_texts),
            (5, self._send_twice),
            (10, self._send_again),
            (25, self._advance),
            (10, self._read_on),
            (5, self._look),
            (5, self._ask_who_has),
        )
        weights = [weight for weight, _ in acts]
        try:
            while not self._is_stopping:
                [(_, act)] = random.choices(acts, weights)
                await act(sender)
                await asyncio.sleep(random.random() ** 3 * self._pause_s)
        except (Unavailable, StoreUnusable):
            self._is_stopping = True
            raise

    def _sender(self, number: int, user_id: UserId) -> _Sender:
        random = Random(f"{self._seed}/{number}")
        return _Sender(user_id, f"{self._life}-{number}", random, self._cast.chats_of(user_id))

    # Sending.

    async def _send_some(self, sender: _Sender) -> None:
        """One to three messages to one chat, on one connection, without waiting in between."""
        chat_id = sender.random.choice(sender.chats)
        count = sender.random.choice((1, 1, 1, 2, 3))
        drafts = [self._draft(sender, chat_id) for _ in range(count)]
        await asyncio.gather(*[self._submit(sent, sender.connection) for sent in drafts])

    async def _change_some(self, sender: _Sender) -> None:
        """One to three edits, deletions, reactions, replies or mentions in one chat, likewise."""
        chat_id = sender.random.choice(sender.chats)
        count = sender.random.choice((1, 1, 1, 2, 3))
        drafts = [self._changes.draft(sender.user_id, chat_id, sender.random) for _ in range(count)]
        sender.sent.extend(drafts)
        await asyncio.gather(*[self._submit(sent, sender.connection) for sent in drafts])

    async def _send_twice(self, sender: _Sender) -> None:
        """The same message twice at the same time, as an impatient device does."""
        sent = self._draft(sender, sender.random.choice(sender.chats))
        await asyncio.gather(self._submit(sent), self._submit(sent))

    async def _send_again(self, sender: _Sender) -> None:
        """A message from some time ago, as if its answer had been lost on the way."""
        if sender.sent:
            await self._submit(sender.random.choice(sender.sent))

    def _draft(self, sender: _Sender, chat_id: ChatId) -> history.Sent:
        sent = new_draft(sender.user_id, chat_id, sender.random)
        sender.sent.append(sent)
        return sent

    async def _submit(self, draft: history.Sent, line: str | None = None) -> None:
        """Submit an entry; `draft` gets its `op` here. Question and answer are reported at once."""
        answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
        sent = msgspec.structs.replace(draft, op=next(self._ops))

        def done(outcome: AppendOutcome) -> None:
            # Reported at once: what is known outside must have been known here before.
            self._take(sent, outcome)
            if not answer.done():
                answer.set_result(outcome)

        if line is not None:
            self._report(OnLine(line))
        self._report(sent)
        self._ingest.submit_nowait(
            MessageBody(content=sent.content, reply_to=sent.reply_to, mentions=sent.mentions),
            chat_id=sent.chat_id,
            sender_id=sent.user_id,
            client_message_id=sent.client_message_id,
            done=done,
            origin_connection_id=None if line is None else ConnectionId(line),
            amends=sent.amends,
            base=sent.base,
        )
        outcome = await answer
        if isinstance(outcome, Unavailable):
            raise outcome

    def _take(self, sent: history.Sent, outcome: AppendOutcome) -> None:
        if isinstance(outcome, Appended):
            self._report(
                Placed(
                    op=sent.op,
                    sequence=outcome.sequence,
                    prev_sequence=outcome.prev_sequence,
                    message_id=outcome.message_id,
                    created_at_ms=outcome.created_at_ms,
                    deduplicated=outcome.deduplicated,
                )
            )
            self._heads[sent.chat_id] = max(self._heads.get(sent.chat_id, 0), outcome.sequence)
            places = self._places.setdefault(sent.user_id, deque(maxlen=KNOWN_MAX))
            places.append((sent.chat_id, outcome.sequence))
            self._changes.placed(sent, outcome.sequence)
        elif isinstance(outcome, Refused):
            self._report(history.Refused(op=sent.op, code=outcome.code))
            if not self._changes.may_refuse(sent, outcome):
                self._report(Fault(f"{sent.client_message_id} was refused: {outcome}"))

    # Positions and reading.

    async def _advance(self, sender: _Sender) -> None:
        chat_id = sender.random.choice(sender.chats)
        upto = sender.random.randint(0, self._heads.get(chat_id, 0))
        wish = Advance(
            user_id=sender.user_id,
            chat_id=chat_id,
            delivered=upto,
            read=sender.random.choice((0, upto)),
        )
        op = next(self._ops)
        self._report(
            history.AdvanceSent(
                op=op,
                chat_id=chat_id,
                user_id=sender.user_id,
                delivered=wish.delivered,
                read=wish.read,
            )
        )
        [outcome] = await self._storage.advance([wish], now_ms=START_MS)
        if isinstance(outcome, Advanced):
            now = outcome.positions
            self._report(
                history.AdvanceAcked(
                    op=op, delivered=now.delivered, read=now.read, moved=outcome.moved
                )
            )
        elif isinstance(outcome, NotAMember):
            self._report(history.Refused(op=op, code=outcome.code))
        else:
            raise outcome

    async def _read_on(self, sender: _Sender) -> None:
        """The next page of a chat, from where the last one ended."""
        chat_id = sender.random.choice(sender.chats)
        # Not from the beginning in every life: that would take longer with each life.
        cursor = sender.cursors.get(chat_id, max(0, self._heads.get(chat_id, 0) - 20))
        op = next(self._ops)
        self._report(
            history.SyncAsked(op=op, chat_id=chat_id, user_id=sender.user_id, after=cursor)
        )
        try:
            page = await self._storage.messages_after(
                sender.user_id, chat_id, cursor, count_max=PAGE_MESSAGES_MAX, bytes_max=64 * 1024
            )
        except NotAMember as refusal:
            self._report(history.Refused(op=op, code=refusal.code))
            return
        sender.cursors[chat_id] = page.synced_through
        self._report(
            history.Synced(
                op=op,
                messages=page.messages,
                synced_through=page.synced_through,
                has_more=page.has_more,
            )
        )

    async def _look_at_texts(self, sender: _Sender) -> None:
        """The last messages as they are now, or the last one of the chat in the list of chats."""
        chat_id, who = sender.random.choice(sender.chats), sender.user_id
        way = sender.random.choice(("history", "the list of chats"))
        op = next(self._ops)
        self._report(history.TextsAsked(op=op, chat_id=chat_id, user_id=who, way=way))
        try:
            look = self._in_history if way == "history" else self._in_list
            texts = await look(who, chat_id)
        except NotAMember as refusal:
            self._report(history.Refused(op=op, code=refusal.code))
        else:
            self._report(history.TextsShown(op=op, texts=texts))

    async def _in_history(self, who: UserId, chat_id: ChatId) -> dict[int, str]:
        page = await self._storage.messages_before(
            who, chat_id, None, count_max=PAGE_MESSAGES_MAX, bytes_max=64 * 1024
        )
        found = [one.sequence for one in page.messages if one.amends is None]
        now = await self._storage.messages_now(who, chat_id, found)
        texts: dict[int, str] = {}
        for message in page.messages:
            subject = subject_of(message)
            if subject is not None:
                texts[subject] = texts.get(subject) or message.content
        return texts | {sequence: one.content or "" for sequence, one in now.items() if one.content}

    async def _in_list(self, who: UserId, chat_id: ChatId) -> dict[int, str]:
        listed = await self._storage.chat_list(who, cursor=None, count_max=MEMBERS_MAX)
        shown = [one.last_message for one in listed.items if one.chat.chat_id == chat_id]
        return {one.sequence: one.preview for one in shown if one is not None}

    async def _look(self, sender: _Sender) -> None:
        """The user's own positions in a chat, and the lowest of the others."""
        chat_id = sender.random.choice(sender.chats)
        mine, others = next(self._ops), next(self._ops)
        who = sender.user_id
        self._report(history.PositionAsked(op=mine, chat_id=chat_id, user_id=who))
        self._report(history.BoundaryAsked(op=others, chat_id=chat_id, user_id=who))
        page = await self._storage.digest(who, after=None, count_max=MEMBERS_MAX)
        for entry in page.entries:
            if entry.chat_id == chat_id:
                self._report(
                    history.PositionShown(op=mine, delivered=entry.delivered, read=entry.read)
                )
                self._report(
                    history.BoundaryShown(
                        op=others, delivered=entry.others_delivered, read=entry.others_read
                    )
                )

    async def _ask_who_has(self, sender: _Sender) -> None:
        """The delivery status of one of the user's own messages."""
        places = self._places.get(sender.user_id)
        if not places:
            return
        chat_id, sequence = sender.random.choice(places)
        author, op = sender.user_id, next(self._ops)
        self._report(
            history.SummaryAsked(op=op, chat_id=chat_id, user_id=author, sequence=sequence)
        )
        try:
            status = await self._storage.delivery_status(author, chat_id, sequence)
        except NotAMember as refusal:
            self._report(history.Refused(op=op, code=refusal.code))
            return
        self._report(
            history.SummaryShown(
                op=op,
                author_id=author,
                members=[
                    history.MemberShown(
                        member.user_id, member.joined_sequence, member.positions.delivered
                    )
                    for member in status.members
                ],
                delivered_count=status.summary.delivered_count,
                pending_count=status.summary.pending_count,
                all_delivered=status.summary.all_delivered,
            )
        )

    # Members.

    async def _change_members(self) -> None:
        """The owner of the first group adds and removes the guest, again and again."""
        chat_id, guest = self._cast.open_group, self._cast.guest
        owner = self._cast.groups[0][1][0]
        random = Random(f"{self._seed}/members")
        members = await self._storage.members(owner, chat_id, after=None, count_max=MEMBERS_MAX)
        joins = guest not in {member.user_id for member in members}
        while not self._is_stopping:
            op = next(self._ops)
            if joins:
                self._report(history.MemberAdding(op=op, chat_id=chat_id, user_id=guest))
                await self._storage.add_member(
                    owner, chat_id, guest, Role.MEMBER, members_max=MEMBERS_MAX, now_ms=START_MS
                )
            else:
                self._report(history.MemberRemoving(op=op, chat_id=chat_id, user_id=guest))
                await self._storage.remove_member(owner, chat_id, guest, now_ms=START_MS)
            self._report(history.MembershipDone(op=op))
            joins = not joins
            await asyncio.sleep(random.random() * 3 * self._pause_s)


def listener(report: Callable[[Record], None]) -> CommitListener:
    """Reports the events of messages, as the fan-out would get them."""

    def listen(events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MessageAppended):
                message = event.message
                report(history.Published(message.chat_id, message.sequence, message.prev_sequence))

    return listen
