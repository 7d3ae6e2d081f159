"""Appending: the phases of ADR-004, batched and fenced (DESIGN 4).

Phase 0 reads, phase 1 takes a range of numbers, phase 2 commits: the head row from where it was
seen to the last message, the messages, their keys and the outbox row, all or nothing. A commit that
comes too late changes nothing; everything is read again and decided anew.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from tidewire.domain.chats import Member
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import CounterMissing, StoreUnavailable
from tidewire.domain.events import Event, MessageAppended
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, UserId
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.messages import Appended, AppendOutcome, Message, SendMessage
from tidewire.engines.dynamodb import outbox_rows, rows, schema, values
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, Cancelled, ConditionFailed
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.position_rows import moved
from tidewire.engines.dynamodb.rows import Write
from tidewire.engines.dynamodb.sender_cache import SenderCache
from tidewire.engines.dynamodb.values import MemberState, StoredKey
from tidewire.engines.dynamodb.verdicts import Known, author_moves, judge, number


class Stored(msgspec.Struct, frozen=True):
    """A message of this batch that is committed, with what its author's positions depend on."""

    index: int
    """Which of the sends it was."""
    event: MessageAppended
    seen_sequence: int | None
    author: MemberState | None
    """None: he is out by now, and his positions stay where they are."""
    before: Positions | None


class Batch:
    """Some sends of one chat, few enough for one transaction, on their way into the store."""

    def __init__(
        self, database: Database, cache: SenderCache, sends: Sequence[SendMessage], now_ms: int
    ) -> None:
        assert 0 < len(sends) <= SENDS_PER_TRANSACTION_MAX
        self._database = database
        self._cache = cache
        self._sends = sends
        self._chat_id = sends[0].chat_id
        self._now_ms = now_ms
        self._outcomes: dict[int, AppendOutcome] = {}
        self._first: int | None = None
        """The range of numbers that is ours: from here on, one for each that had to be stored."""
        self._taken = 0
        self._has_tried = False
        self.stored: list[Stored] = []

    async def append(self) -> list[AppendOutcome]:
        tried = 0
        while True:
            known = await self._look()
            waiting = self._judge(known)
            if not waiting or await self._commit(known, waiting):
                break
            self._database.counts.fences_failed += 1
            await self._database.pause(Hindrance.CONFLICT, tried)
            # A fence that keeps failing is a busy chat, not a fault: only the budget ends it.
            tried = min(tried + 1, 2)
        return [self._outcomes[index] for index in range(len(self._sends))]

    # Phase 0.

    async def _look(self) -> Known:
        chat_id, sends = self._chat_id, self._sends
        senders = list(dict.fromkeys(send.sender_id for send in sends))
        found = await self._database.get_many(
            [
                (schema.CHATS, {"chat_id": chat_id}),
                *(
                    (
                        schema.KEYS,
                        {"chat_id": chat_id, "client_message_id": send.client_message_id},
                    )
                    for send in sends
                ),
                *((schema.POSITIONS, {"user_id": user, "chat_id": chat_id}) for user in senders),
            ]
        )
        head_row, *rest = found
        chat = values.chat_of(head_row)
        keys: dict[ClientMessageId, StoredKey] = {}
        for send, row in zip(sends, rest, strict=False):
            key = values.key_of(row, now_ms=self._now_ms)
            if key is not None:
                keys[send.client_message_id] = key
        is_taken = any(
            key.sender_id != send.sender_id
            for send in sends
            if (key := keys.get(send.client_message_id)) is not None
        )
        position_rows = rest[len(sends) :]
        return Known(
            chat=chat,
            # Who is to get a number hears it from the counter. It is read for those who get none:
            # that it is missing comes before somebody else's key.
            has_counter=not is_taken or await self._has_counter(0 if chat is None else chat.head),
            keys=keys,
            members={} if chat is None else await self._members(senders, chat.membership_version),
            positions={
                user: None if row is None else values.positions_of(row)
                for user, row in zip(senders, position_rows, strict=True)
            },
        )

    async def _has_counter(self, head: int) -> bool:
        row = await self._database.get(schema.COUNTERS, {"chat_id": self._chat_id})
        return row is not None and head <= row["sequence_counter"] < SEQUENCE_MAX

    async def _members(
        self, senders: Sequence[UserId], version: int
    ) -> dict[UserId, MemberState | None]:
        """Read after the head row, or under the version that the head row shows."""
        known = self._cache.known(self._chat_id, version)
        missing = [user_id for user_id in senders if user_id not in known]
        if missing:
            found = await self._database.get_many(
                [
                    (schema.MEMBERSHIPS, {"chat_id": self._chat_id, "user_id": user_id})
                    for user_id in missing
                ]
            )
            read = {
                user_id: values.member_state_of(row)
                for user_id, row in zip(missing, found, strict=True)
            }
            # If the version has moved since the head was read, the fence will fail, and whatever
            # is remembered here under the old version is never asked for again.
            self._cache.remember(self._chat_id, version, read)
            known |= read
        return known

    def _judge(self, known: Known) -> list[int]:
        """Give every send that needs no commit its answer; those that wait for one."""
        waiting = []
        for index, send in enumerate(self._sends):
            if index in self._outcomes:
                continue
            outcome = judge(send, known)
            if outcome is None:
                waiting.append(index)
                continue
            if self._is_own_commit(send, outcome):
                assert isinstance(outcome, Appended)
                assert known.chat is not None
                message = _message_of(send, outcome)
                version = known.chat.membership_version
                self._note(index, message, version, known)
            else:
                if isinstance(outcome, CounterMissing):
                    self._database.counts.counters_missing += 1
                self._outcomes[index] = outcome
        return waiting

    def _is_own_commit(self, send: SendMessage, outcome: AppendOutcome) -> bool:
        """A commit of ours that we were told had failed: the key carries the id of this send."""
        return (
            self._has_tried
            and isinstance(outcome, Appended)
            and outcome.message_id == send.message_id
        )

    # Phase 1.

    async def _allocate(self, count: int, head: int) -> int | None:
        """The first of so many numbers; None if the counter is missing or of no use."""
        tried = 0
        while True:
            try:
                take = take_numbers(self._chat_id, count, head=head, now_ms=self._now_ms)
                row = await self._database.write(take, returned="UPDATED_NEW")
            except ConditionFailed:
                return None
            except AnswerLost:
                # Perhaps these numbers are taken now and stay unused: a gap is legal.
                await self._database.pause(Hindrance.LOST, tried)
                tried += 1
            else:
                last: int = row["sequence_counter"]
                return last - count + 1

    # Phase 2.

    async def _commit(self, known: Known, waiting: Sequence[int]) -> bool:
        """True if everything that waits has its answer now."""
        chat = known.chat
        assert chat is not None
        if self._first is None or self._first <= chat.head or self._taken < len(waiting):
            first = await self._allocate(len(waiting), chat.head)
            if first is None:
                self._database.counts.counters_missing += len(waiting)
                self._outcomes |= {index: CounterMissing(self._chat_id) for index in waiting}
                return True
            self._first, self._taken = first, len(waiting)
        sends = [self._sends[index] for index in waiting]
        messages = number(sends, first=self._first, prev_sequence=chat.head, now_ms=self._now_ms)
        self._has_tried = True
        try:
            await self._database.transact(
                commit_writes(
                    messages,
                    [send.origin_connection_id for send in sends],
                    membership_version=chat.membership_version,
                    now_ms=self._now_ms,
                )
            )
        except Cancelled as cancelled:
            self._check_sequences_are_free(cancelled)
            return False
        for index, message in zip(waiting, messages, strict=True):
            self._note(index, message, chat.membership_version, known)
        self._first += len(messages)
        self._taken -= len(messages)
        return True

    def _check_sequences_are_free(self, cancelled: Cancelled) -> None:
        """A message above the head, under a number that the counter gave out just now: the head row
        has lost its place, and only an operator can say what is true."""
        messages = cancelled.rows[3::2]
        if cancelled.rows[0] is None and any(row is not None for row in messages):
            raise StoreUnavailable(
                f"{self._chat_id} has messages above its head; run 'tidewire verify --cluster'"
            )

    def _note(self, index: int, message: Message, version: int, known: Known) -> None:
        send = self._sends[index]
        # Whoever commits behind a gap counts it, so that it counts also if its maker has died.
        self._database.counts.sequences_skipped += message.sequence - message.prev_sequence - 1
        self._outcomes[index] = Appended(
            message_id=message.message_id,
            sequence=message.sequence,
            prev_sequence=message.prev_sequence,
            created_at_ms=message.created_at_ms,
            deduplicated=False,
        )
        self.stored.append(
            Stored(
                index=index,
                event=MessageAppended(message, version, send.origin_connection_id),
                seen_sequence=send.seen_sequence,
                author=known.members[send.sender_id],
                before=known.positions[send.sender_id],
            )
        )


def take_numbers(chat_id: ChatId, count: int, *, head: int, now_ms: int) -> Write:
    """Phase 1: as many numbers as there are messages, all above the head."""
    return rows.update(
        schema.COUNTERS,
        {"chat_id": chat_id},
        "ADD #sequence_counter :count SET #updated_at = :now",
        # Also absent is not between: a counter is never made here.
        condition="#sequence_counter BETWEEN :head AND :most",
        count=count,
        now=now_ms,
        head=head,
        most=SEQUENCE_MAX - count,
    )


def commit_writes(
    messages: Sequence[Message],
    origins: Sequence[ConnectionId | None],
    *,
    membership_version: int,
    now_ms: int,
) -> list[Write]:
    """Phase 2: the fence, the outbox row, and each message with its key."""
    fence = rows.update(
        schema.CHATS,
        {"chat_id": messages[0].chat_id},
        "SET #last_sequence = :last, #last_message_at = :now",
        condition="#last_sequence = :prev AND #membership_version = :version",
        last=messages[-1].sequence,
        now=now_ms,
        prev=messages[0].prev_sequence,
        version=membership_version,
    )
    outbox = outbox_rows.messages_row(
        messages, origins, membership_version=membership_version, now_ms=now_ms
    )
    writes = [fence, rows.put_new(schema.OUTBOX, outbox)]
    for message in messages:
        writes += [
            rows.put(
                schema.KEYS,
                values.key_row(message),
                condition="attribute_not_exists(#chat_id) OR #ttl <= :now",
                now=now_ms // 1000,
            ),
            rows.put_new(schema.MESSAGES, values.message_row(message)),
        ]
    return writes


async def move_authors(
    database: Database, chat_id: ChatId, stored: Sequence[Stored], now_ms: int
) -> list[Event]:
    """Move the positions of those who wrote; what of it is news to others.

    The messages are stored whatever happens here: a move that gets lost is made good by the next
    acknowledgement of the author's own device.
    """
    events: list[Event] = []
    for user_id in dict.fromkeys(one.event.message.sender_id for one in stored):
        own = [one for one in stored if one.event.message.sender_id == user_id]
        if own[0].author is None:
            continue
        author = own[0].author.member
        messages = [(one.event.message, one.seen_sequence) for one in own]
        decide = partial(_after_own, author=author, messages=messages)
        try:
            after = await moved(database, chat_id, user_id, own[0].before, decide, now_ms=now_ms)
        except StoreUnavailable:
            database.counts.author_moves_lost += 1
            continue
        events += author_moves(after.before, author, messages)[1]
    return events


def _after_own(
    before: Positions, author: Member, messages: Sequence[tuple[Message, int | None]]
) -> Positions:
    return author_moves(before, author, messages)[0]


def _message_of(send: SendMessage, answer: Appended) -> Message:
    return Message(
        chat_id=send.chat_id,
        sequence=answer.sequence,
        prev_sequence=answer.prev_sequence,
        message_id=send.message_id,
        sender_id=send.sender_id,
        client_message_id=send.client_message_id,
        content=send.content,
        content_type=send.content_type,
        created_at_ms=answer.created_at_ms,
    )
