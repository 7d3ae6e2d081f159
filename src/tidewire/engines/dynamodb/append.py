"""Appending: the phases of ADR-004, batched and fenced (decision 0015).

Phase 0 reads, phase 1 moves the counter ahead, phase 2 commits all or nothing: the head row moves
from where it was read to the last entry; entries, their keys, what they amend and the outbox row
are written. Plain messages into a chat whose end is known are committed without the phases before.
A commit that comes too late changes nothing; everything is read and decided anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import msgspec

from tidewire.domain.access import Operation, may
from tidewire.domain.amendments import moderated_by
from tidewire.domain.append import Author, ChatEnd, EarlierSend, answer_of, judge
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import CounterMissing, StoreUnavailable
from tidewire.domain.events import ChangeEvent, Event, MessageAppended
from tidewire.domain.ids import SYSTEM, ChatId, UserId, placed
from tidewire.domain.limits import APPEND_SENDS_MAX
from tidewire.domain.messages import MENTION_ALL, Appended, AppendOutcome, Message, SendMessage
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.acts import CONFLICT_STEPS_MAX, act
from tidewire.engines.dynamodb.amended import Amended
from tidewire.engines.dynamodb.amending import (
    NONE_CONCERNED,
    Concerned,
    Plan,
    amendment_writes,
    unswept_after,
)
from tidewire.engines.dynamodb.authors import Authors, Stored
from tidewire.engines.dynamodb.backoff import Hindrance, hindrance_of
from tidewire.engines.dynamodb.commit_rows import commit_writes, number
from tidewire.engines.dynamodb.concerned import Found, look_closer, places_concerned, read_concerned
from tidewire.engines.dynamodb.database import Database, Wanted
from tidewire.engines.dynamodb.entries import earlier_send_of, entry_of, table_of
from tidewire.engines.dynamodb.errors import AnswerLost, Cancelled, ConditionFailed
from tidewire.engines.dynamodb.member_cache import MemberCache, latest
from tidewire.engines.dynamodb.numbers import Counter, counter_of, move_ahead
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.rows import Row
from tidewire.engines.dynamodb.schema_version import ENTRIES, KEY, PLACED, SeenVersion
from tidewire.engines.dynamodb.tails import Tail, Tails
from tidewire.engines.dynamodb.values import MemberState
from tidewire.ports.storage import AppendDone, MessageStore

Senders = MemberCache[MemberState | None]
"""The memberships of users who write or are mentioned; None: not a member."""


class Known(msgspec.Struct, frozen=True):
    """What phase 0 has read: the head row first, the memberships after it or under its version; or
    what is known without phase 0."""

    head: int
    membership_version: int
    last_message: int
    """The last entry of the chat that is a message."""
    earlier: list[EarlierSend | None]
    """One for each send."""
    authors: dict[UserId, Author]
    """Senders who are members, and the server itself."""
    counter: Counter | None = None
    """None: it is missing."""
    seen_at_s: float = 0.0
    """When the counter was seen."""
    positions: Mapping[UserId, Positions | None] = {}
    """As far as they were read; None: no row yet."""
    concerned: Concerned = NONE_CONCERNED
    is_guess: bool = False
    """True if nothing was read for this."""

    def is_same_end(self, other: "Known") -> bool:
        return (self.head, self.membership_version) == (other.head, other.membership_version)


@dataclass(eq=False, repr=False)
class Batch:
    """Stores sends of one chat: from the first one on, as many as one transaction takes."""

    database: Database
    cache: Senders
    rosters: MemberCache[MemberState]
    tails: Tails
    version: SeenVersion
    on_overtaken: Callable[[ChatId], None]
    sends: Sequence[SendMessage]
    now_ms: int

    def __post_init__(self) -> None:
        assert 0 < len(self.sends) <= SENDS_PER_TRANSACTION_MAX
        self._chat_id = self.sends[0].chat_id
        self._is_plain = all(send.is_plain for send in self.sends)
        self._outcomes: dict[int, AppendOutcome] = {}
        self._has_tried = False
        self._conflicts = 0
        self.stored: list[Stored] = []
        self.unswept: list[int] = []
        """Deleted messages that still have reactions, which mean nothing any more."""

    async def append(self) -> dict[int, AppendOutcome]:
        """The answers by the index of the send; sends without an answer wait for the next batch."""
        tried = 0
        known = self._guess()
        while True:
            if known is None:
                known = await self._look()
            plan, own = self._judge(known)
            if own:
                # The listener gets one transaction as one commit: the rest is another commit.
                await self._note_own(own, known)
                return self._outcomes
            try:
                if not plan.indexes or await self._commit(known, plan):
                    return self._outcomes
            except Cancelled as cancelled:
                known = await self._after(cancelled, known, tried)
                tried = min(tried + 1, CONFLICT_STEPS_MAX + 1)
            except BaseException:
                # It is not known whether the commit was made.
                self.tails.forget(self._chat_id)
                raise

    async def _after(self, cancelled: Cancelled, before: Known, tried: int) -> Known:
        """Read what the next try needs: without a pause after the first failure, and while another
        transaction is in the way, because the same commit would only fail again."""
        self.tails.forget(self._chat_id)
        if hindrance_of(cancelled.codes) is None:
            self.database.counts.fences_failed += 1
            if tried:
                await self.database.pause(Hindrance.CONFLICT, tried - 1)
            known = await self._look()
            if known.head > before.head:
                self.on_overtaken(self._chat_id)
            return known
        self.on_overtaken(self._chat_id)
        known = await self._look()
        if known.is_same_end(before):
            # The other transaction is not done yet.
            await self.database.pause(Hindrance.CONFLICT, self._conflicts)
        self._conflicts += 1
        return known

    # Without phase 0.

    def _guess(self) -> Known | None:
        """What is known without reading, if it is enough to store all of these sends. If a sender
        is to be refused, or a send is not plain, everything is read."""
        chat_id, sends = self._chat_id, self.sends
        tail = self.tails.find(chat_id, len(sends), time.monotonic()) if self._is_plain else None
        if tail is None:
            return None
        senders = list(dict.fromkeys(send.sender_id for send in sends))
        members = self._remembered(senders, tail.membership_version)
        states = [members.get(user_id) for user_id in senders]
        if any(state is None or state.is_blocked for state in states):
            return None
        end = ChatEnd(tail.membership_version, tail.head, tail.head)
        return Known(
            tail.head,
            tail.membership_version,
            tail.head,
            [None] * len(sends),
            _authors(end, senders, members, {}),
            tail.counter,
            tail.seen_at_s,
            is_guess=True,
        )

    # Phase 0.

    async def _look(self) -> Known:
        sends = self.sends
        senders = list(dict.fromkeys(s.sender_id for s in sends if s.sender_id != SYSTEM))
        found = await self._found(senders)
        head_row = found[schema.CHATS]
        chat = values.chat_of(head_row)
        earlier = [
            earlier_send_of(found[schema.KEYS, index], send, now_ms=self.now_ms)
            for index, send in enumerate(sends)
        ]
        positions: dict[UserId, Positions | None] = {}
        for user in senders:
            row = found[schema.POSITIONS, user]
            positions[user] = None if row is None else values.positions_of(row)
        any_chat = values.any_chat_of(head_row)
        if head_row is None or any_chat is None:
            return Known(0, 0, 0, earlier, {})
        head, version = any_chat.head, any_chat.membership_version
        counter = counter_of(found[schema.COUNTERS])
        if counter is not None and counter.last < head:
            # Rows of one request are not of one instant. A writer moves the counter before the
            # head, so a second read shows whether the counter really is behind.
            [row] = await self.database.get_each(schema.COUNTERS, [self._chat_id])
            counter = counter_of(row)
        seen_at_s = time.monotonic()
        end = ChatEnd(version, None if counter is None else min(counter.last, head), head)
        authors = {SYSTEM: Author(end, 0, NOWHERE, is_blocked=False, is_admin=True)}
        members: Mapping[UserId, MemberState | None] = {}
        if chat is not None:
            mentioned = [one for send in sends for one in send.mentions if one != MENTION_ALL]
            wanted = list(dict.fromkeys([*senders, *mentioned]))
            members = await self._members(wanted, chat.membership_version)
            authors |= _authors(end, senders, members, positions)
        last_message = values.last_message(head_row)
        concerned = NONE_CONCERNED
        if not self._is_plain:
            concerned = read_concerned(
                sends,
                found,
                [one for one, state in members.items() if state is not None],
                takes_entries=self.version.has(ENTRIES),
            )
            concerned = await look_closer(self.database, sends, concerned, earlier, authors)
        return Known(
            head,
            version,
            last_message,
            earlier,
            authors,
            counter,
            seen_at_s,
            positions,
            concerned,
        )

    async def _found(self, senders: Sequence[UserId]) -> Found:
        """All rows whose keys are known beforehand, read together."""
        chat_id, sends = self._chat_id, self.sends
        wanted: dict[object, Wanted] = {
            schema.CHATS: (schema.CHATS, {"chat_id": chat_id}),
            schema.COUNTERS: (schema.COUNTERS, {"chat_id": chat_id}),
        }
        for index, send in enumerate(sends):
            key = {"chat_id": chat_id, "client_message_id": send.client_message_id}
            wanted[schema.KEYS, index] = (schema.KEYS, key)
        for user in senders:
            place = {"user_id": user, "chat_id": chat_id}
            wanted[schema.POSITIONS, user] = (schema.POSITIONS, place)
        if not self._is_plain:
            wanted |= places_concerned(chat_id, sends)
            if not self.version.has(ENTRIES):
                wanted[schema.STORE] = (schema.STORE, KEY)
        rows_found = await self.database.get_many(list(wanted.values()))
        found = dict(zip(wanted, rows_found, strict=True))
        if schema.STORE in found:
            self.version.see(found[schema.STORE])
        return found

    def _remembered(
        self, users: Iterable[UserId], version: int
    ) -> dict[UserId, MemberState | None]:
        """Memberships known under this version: those of earlier senders, and those of `users` in a
        roster that was read for another reason."""
        roster = self.rosters.find(self._chat_id, version) or {}
        known: dict[UserId, MemberState | None] = {
            one: roster[one] for one in users if one in roster
        }
        return known | dict(self.cache.find(self._chat_id, version) or {})

    async def _members(
        self, users: Sequence[UserId], version: int
    ) -> dict[UserId, MemberState | None]:
        """The users' memberships: read after the head row, or known under its version."""
        known = self._remembered(users, version)
        missing = [user_id for user_id in users if user_id not in known]
        if missing:
            found = await self.database.get_many(
                [
                    (schema.MEMBERSHIPS, {"chat_id": self._chat_id, "user_id": user_id})
                    for user_id in missing
                ]
            )
            known |= {
                user_id: values.member_state_of(row)
                for user_id, row in zip(missing, found, strict=True)
            }
            # If the version has moved since the head was read, the fence will fail, and whatever
            # is remembered here under the old version is never asked for again.
            self.cache.remember(self._chat_id, version, latest(known))
        return known

    def _judge(self, known: Known) -> tuple[Plan, list[int]]:
        """Answer every send that needs no commit, up to the first that must wait for the next
        transaction. Return the plan of sends to store now, and the sends that are stored already.
        """
        plan = Plan(self._chat_id, known.concerned)
        own: list[int] = []
        for index, send in enumerate(self.sends):
            if index in self._outcomes:
                continue
            if plan.must_wait(send):
                break
            author = known.authors.get(send.sender_id)
            outcome = judge(send, known.earlier[index], author, plan.facts)
            if outcome is None:
                if not plan.take(index, send):
                    break
            elif plan.touches(send):
                break
            elif self._is_own_commit(send, outcome):
                own.append(index)
            else:
                self._outcomes[index] = outcome
        return plan, own

    def _is_own_commit(self, send: SendMessage, outcome: AppendOutcome) -> bool:
        """True if a commit of ours seemed to fail but was made: the key has the id of this send."""
        return (
            self._has_tried
            and isinstance(outcome, Appended)
            and outcome.message_id == placed(send.message_id, outcome.sequence)
        )

    async def _note_own(self, own: Sequence[int], known: Known) -> None:
        """Note entries that an earlier try stored, as they are now: deleted since, perhaps."""
        wanted: list[Wanted] = []
        for index in own:
            first = known.earlier[index]
            assert first is not None
            table, sequence = table_of(self.sends[index].amends), first.answer.sequence
            wanted.append((table, {"chat_id": self._chat_id, "sequence": sequence}))

        async def look() -> list[Row] | None:
            found = [row for row in await self.database.get_many(wanted) if row is not None]
            return found if len(found) == len(wanted) else None

        for index, row in zip(own, await self.database.until_shown(look), strict=True):
            self._note(index, entry_of(row), known)

    # Phase 1.

    async def _counter_for(self, count: int, known: Known) -> Counter | None:
        """The counter with `count` open numbers above the head; None if it is missing or of no use.

        It is moved ahead from where it was read: if another process was quicker, or the answer was
        lost, the numbers are there all the same."""
        counter, lost = known.counter, 0
        while counter is not None and not counter.has(count, known.head):
            step = counter.step(count, known.head, self.now_ms)
            if step is None:
                return None
            write = move_ahead(self._chat_id, counter, step, head=known.head, now_ms=self.now_ms)
            try:
                counter = counter_of(await self.database.write(write, returned="ALL_NEW"))
            except ConditionFailed as failed:
                counter = counter_of(failed.row)
            except AnswerLost:
                await self.database.pause(Hindrance.LOST, lost)
                lost += 1
        return counter

    # Phase 2.

    async def _commit(self, known: Known, plan: Plan) -> bool:
        """True: every planned send has its answer now. Raises Cancelled."""
        waiting = plan.indexes
        counter = await self._counter_for(len(waiting), known)
        if counter is None:
            self._outcomes |= {index: CounterMissing(self._chat_id) for index in waiting}
            return True
        seen_at_s = known.seen_at_s if counter is known.counter else time.monotonic()
        sends = [self.sends[index] for index in waiting]
        messages = number(
            sends,
            first=counter.first(known.head),
            head=known.head,
            now_ms=self.now_ms,
            counts=plan.counts,
        )
        self._has_tried = True
        writes = commit_writes(
            messages,
            [send.origin_connection_id for send in sends],
            membership_version=known.membership_version,
            now_ms=self.now_ms,
            last_message=known.last_message,
            are_indexed=not await self.version.look_for(PLACED, self.database),
        )
        writes += amendment_writes(messages, known.concerned)
        try:
            await self.database.transact(writes, tries_conflicts=False)
        except Cancelled as cancelled:
            self._check_sequences_are_free(cancelled, len(messages))
            raise
        tail = Tail(messages[-1].sequence, known.membership_version, counter, seen_at_s)
        self.tails.committed(self._chat_id, tail)
        for index, message in zip(waiting, messages, strict=True):
            self._note(index, message, known)
        return True

    def _check_sequences_are_free(self, cancelled: Cancelled, count: int) -> None:
        """Raise if there is an entry above the head, under a number that the counter gave out just
        now: then the head row is wrong, and only an operator can say what is true."""
        entries = cancelled.rows[3 : 2 + 2 * count : 2]
        if cancelled.rows[0] is None and any(row is not None for row in entries):
            raise StoreUnavailable(
                f"{self._chat_id} has messages above its head; run 'tidewire verify --cluster'"
            )

    def _note(self, index: int, message: Message, known: Known) -> None:
        send = self.sends[index]
        sender_id = send.sender_id
        # The commit after a gap counts it, because the process that left the gap may have died.
        self.database.counts.sequences_skipped += message.sequence - message.prev_sequence - 1
        self._outcomes[index] = answer_of(
            message, deduplicated=False, moderated=_moderated(send, known.concerned)
        )
        self.unswept += unswept_after(message, known.concerned)
        self.stored.append(
            Stored(
                index=index,
                event=MessageAppended(message, known.membership_version, send.origin_connection_id),
                seen_sequence=send.seen_sequence,
                author=None if sender_id == SYSTEM else known.authors.get(sender_id),
                before=known.positions.get(sender_id),
                is_before_known=sender_id in known.positions,
            )
        )


def _authors(
    end: ChatEnd,
    senders: Iterable[UserId],
    members: Mapping[UserId, MemberState | None],
    positions: Mapping[UserId, Positions | None],
) -> dict[UserId, Author]:
    """Those of the senders who are members."""
    return {
        user: Author(
            end,
            state.member.joined_sequence,
            positions.get(user) or NOWHERE,
            is_blocked=state.is_blocked,
            is_admin=may(state.member.role, Operation.MODERATE),
        )
        for user in senders
        if (state := members[user]) is not None
    }


def _moderated(send: SendMessage, concerned: Concerned) -> UserId | None:
    """The author of the message that a deletion took away, if it was another user's."""
    stored = None if send.amends is None else concerned.targets.get(send.amends.target)
    return None if stored is None else moderated_by(send, stored.target(""))


class Appending(Authors, Amended, MessageStore):
    _senders: Senders
    _tails: Tails
    on_overtaken: Callable[[ChatId], None]

    @property
    def appends_per_chat(self) -> bool:
        return True

    @act
    async def takes_entries(self) -> bool:
        return await self._version.look_for(ENTRIES, self._database)

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        assert len(sends) <= APPEND_SENDS_MAX
        assert len({(send.chat_id, send.client_message_id) for send in sends}) == len(sends)
        self._begin(self._append(sends, now_ms)).add_done_callback(partial(_tell, done))

    async def _append(self, sends: Sequence[SendMessage], now_ms: int) -> list[AppendOutcome]:
        """Append chat by chat; the planes give sends of one chat, at most one transaction's."""
        by_chat: dict[ChatId, list[int]] = {}
        for index, send in enumerate(sends):
            by_chat.setdefault(send.chat_id, []).append(index)
        outcomes: dict[int, AppendOutcome] = {}
        stored: dict[ChatId, list[Stored]] = {}
        async with AsyncExitStack() as locks:
            # Locked in one order everywhere, so that two batches never wait for each other.
            for chat_id in sorted(by_chat):
                await locks.enter_async_context(self._locks.held(chat_id))
            for chat_id, indexes in by_chat.items():
                waiting = indexes
                while waiting:
                    chunk = waiting[:SENDS_PER_TRANSACTION_MAX]
                    batch = Batch(
                        self._database,
                        self._senders,
                        self._rosters,
                        self._tails,
                        self._version,
                        self.on_overtaken,
                        [sends[index] for index in chunk],
                        now_ms,
                    )
                    with self._database.within_budget():
                        answers = await batch.append()
                    outcomes |= {chunk[at]: answer for at, answer in answers.items()}
                    waiting = [index for index in waiting if index not in outcomes]
                    # The listener gets each commit at once, whatever happens to the rest, and by
                    # itself: a commit is one outbox row.
                    committed = sorted(batch.stored, key=lambda one: one.index)
                    self._committed([one.event for one in committed])
                    stored.setdefault(chat_id, []).extend(committed)
                    self._sweep_soon(chat_id, batch.unswept)
            for chat_id, own in stored.items():
                with self._database.within_budget():
                    self._committed(await self._move_authors(chat_id, own, now_ms))
        return [outcomes[index] for index in range(len(sends))]

    def _committed(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MessageAppended):
                self._known.saw_head(event.message.chat_id, event.message.sequence)
            elif isinstance(event, ChangeEvent):
                # Members or name have changed: the fence would notice, but costs a failed commit.
                self._tails.forget(event.chat.chat_id)
        super()._committed(events)

    def heard_head(self, chat_id: ChatId, head: int, membership_version: int) -> None:
        super().heard_head(chat_id, head, membership_version)
        if membership_version:
            self._tails.heard(chat_id, head, membership_version)


def _tell(done: AppendDone, append: asyncio.Task[list[AppendOutcome]]) -> None:
    """Pass on how an append has ended: by itself, or because the process ends."""
    if append.cancelled():
        done(StoreUnavailable("the store broke off; send the same message again"))
    else:
        error = append.exception()
        done(error if isinstance(error, Exception) else append.result())
