"""The load of the crash tests: senders that write, retry, acknowledge and read, all at once.

Every act is reported before and after (`crash_records`). Chats and people follow from a constant,
so each life of a store finds those of the life before, or makes what is missing.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from tests.support.crash_records import (
    Answered,
    Changed,
    Changing,
    Fault,
    Moved,
    Moving,
    Record,
    RefusedSend,
    Seen,
    Sent,
    content_of,
)
from tidewire.domain.chats import CreateDirect, CreateGroup, Role
from tidewire.domain.delivery import Advance, Advanced
from tidewire.domain.errors import NotAMember, Refused, StoreUnusable, Unavailable
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, UlidSource, UserId
from tidewire.domain.messages import Appended, AppendOutcome
from tidewire.domain.users import User
from tidewire.ingest.service import IngestService
from tidewire.ports.storage import Storage

START_MS: Final = 1_800_000_000_000
MEMBERS_MAX: Final = 50
KNOWN_MAX: Final = 64
"""How many of his own sends a sender remembers, to send them again."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Who there is, and who talks to whom. The guest comes and goes in the first group."""

    users: tuple[UserId, ...]
    guest: UserId
    directs: tuple[tuple[ChatId, UserId, UserId], ...]
    groups: tuple[tuple[ChatId, tuple[UserId, ...]], ...]

    @property
    def open_group(self) -> ChatId:
        """Where the guest comes and goes; the first member is its owner."""
        return self.groups[0][0]

    def chats_of(self, user_id: UserId) -> list[ChatId]:
        """Where the user may try to send; the guest is sometimes refused."""
        if user_id == self.guest:
            return [self.open_group]
        directs = [chat_id for chat_id, *pair in self.directs if user_id in pair]
        return directs + [chat_id for chat_id, members in self.groups if user_id in members]


def make_cast(senders: int) -> Cast:
    """The same people and chats for the same number of senders (the last of them is the guest)."""
    ids = UlidSource(Random(senders).getrandbits)
    users = tuple(ids.user_id(START_MS) for _ in range(senders - 1))
    directs = [
        (ids.chat_id(START_MS), one, other)
        for one, other in zip(users[::2], users[1::2], strict=False)
    ]
    half = len(users) // 2
    groups = [(ids.chat_id(START_MS), members) for members in (users, users[:half], users[half:])]
    return Cast(users, ids.user_id(START_MS), tuple(directs), tuple(groups))


async def establish(storage: Storage, cast: Cast) -> None:
    """Make the people and chats that are not there yet. May be broken off and done again."""
    await asyncio.gather(
        *[
            storage.add_user(
                User(
                    user_id=user_id,
                    username=f"sender-{number}",
                    display_name=f"Sender {number}",
                    created_at_ms=START_MS,
                    updated_at_ms=START_MS,
                )
            )
            for number, user_id in enumerate((*cast.users, cast.guest))
        ]
    )
    directs = [
        storage.create_direct(
            CreateDirect(chat_id=chat_id, actor_id=one, other_id=other), now_ms=START_MS
        )
        for chat_id, one, other in cast.directs
    ]
    groups = [
        storage.create_group(
            CreateGroup(chat_id=chat_id, actor_id=owner, name="group", member_ids=others),
            members_max=MEMBERS_MAX,
            now_ms=START_MS,
        )
        for chat_id, (owner, *others) in cast.groups
    ]
    await asyncio.gather(*directs, *groups)


@dataclass(slots=True)
class _Sender:
    """One person at one device."""

    user_id: UserId
    connection: str
    random: Random
    chats: list[ChatId]
    sent: list[Sent] = field(default_factory=list)
    cursors: dict[ChatId, int] = field(default_factory=dict)
    """How far he has read, page by page, in this life."""


class Load:
    """Runs until it is stopped, or until the store gives up."""

    def __init__(
        self,
        storage: Storage,
        ingest: IngestService,
        cast: Cast,
        *,
        life: str,
        report: Callable[[Record], None],
        pause_s: float,
    ) -> None:
        """`life` names this run: it is the seed, and part of the connections' names. A sender
        pauses for up to `pause_s` between two acts."""
        self._storage = storage
        self._ingest = ingest
        self._cast = cast
        self._life = life
        self._report = report
        self._pause_s = pause_s
        self._heads: dict[ChatId, int] = {}
        self._is_stopping = False

    def stop(self) -> None:
        """Everybody finishes what he is at."""
        self._is_stopping = True

    async def run(self, again: Sequence[Sent]) -> None:
        """Begin with sends of an earlier life, then go on and on. Raises what is a bug."""
        people = (*self._cast.users, self._cast.guest)
        outcomes = await asyncio.gather(
            self._repeat(again),
            self._change_members(),
            *[self._send_and_read(number, user_id) for number, user_id in enumerate(people)],
            return_exceptions=True,
        )
        for outcome in outcomes:
            # The store has gone under our hands: that is what these tests are for.
            if isinstance(outcome, BaseException) and not isinstance(
                outcome, Unavailable | StoreUnusable
            ):
                raise outcome

    async def _repeat(self, again: Sequence[Sent]) -> None:
        await asyncio.gather(*[self._submit(sent) for sent in again])

    async def _send_and_read(self, number: int, user_id: UserId) -> None:
        random = Random(f"{self._life}/{number}")
        sender = _Sender(user_id, f"{self._life}-{number}", random, self._cast.chats_of(user_id))
        acts = (self._send_some, self._send_twice, self._send_again, self._advance, self._read_on)
        try:
            while not self._is_stopping:
                [act] = random.choices(acts, weights=(50, 5, 10, 25, 10))
                await act(sender)
                await asyncio.sleep(random.random() ** 3 * self._pause_s)
        except (Unavailable, StoreUnusable):
            self._is_stopping = True
            raise

    # What a sender does.

    async def _send_some(self, sender: _Sender) -> None:
        """One to three messages to one chat, on one connection, without waiting in between."""
        chat_id = sender.random.choice(sender.chats)
        count = sender.random.choice((1, 1, 1, 2, 3))
        drafts = [self._draft(sender, chat_id, sender.connection) for _ in range(count)]
        await asyncio.gather(*[self._submit(sent) for sent in drafts])

    async def _send_twice(self, sender: _Sender) -> None:
        """The same message twice at once, as an impatient device does."""
        sent = self._draft(sender, sender.random.choice(sender.chats), None)
        await asyncio.gather(self._submit(sent), self._submit(sent))

    async def _send_again(self, sender: _Sender) -> None:
        """A message from some time ago, as if its answer had been lost on the way."""
        if sender.sent:
            sent = sender.random.choice(sender.sent)
            await self._submit(msgspec.structs.replace(sent, line=None))

    async def _advance(self, sender: _Sender) -> None:
        chat_id = sender.random.choice(sender.chats)
        upto = sender.random.randint(0, self._heads.get(chat_id, 0))
        read = sender.random.choice((0, upto))
        self._report(Moving(sender.user_id, chat_id, upto, read))
        wish = Advance(user_id=sender.user_id, chat_id=chat_id, delivered=upto, read=read)
        [outcome] = await self._storage.advance([wish], now_ms=START_MS)
        if isinstance(outcome, Advanced):
            now = outcome.positions
            self._report(Moved(sender.user_id, chat_id, now.delivered, now.read))
        elif isinstance(outcome, Unavailable):
            raise outcome
        elif not isinstance(outcome, NotAMember):
            self._report(Fault(f"{sender.user_id} cannot acknowledge {upto}: {outcome}"))

    async def _read_on(self, sender: _Sender) -> None:
        """The next page of a chat: it must go on where the last one ended."""
        chat_id = sender.random.choice(sender.chats)
        cursor = sender.cursors.get(chat_id)
        if cursor is None:
            # Not from the very beginning each time: that grows with the test.
            cursor = max(0, self._heads.get(chat_id, 0) - 20)
        try:
            page = await self._storage.messages_after(
                sender.user_id, chat_id, cursor, count_max=50, bytes_max=64 * 1024
            )
        except NotAMember:
            return
        last = cursor if chat_id in sender.cursors else None
        for message in page.messages:
            if last is not None and message.prev_sequence != last:
                self._report(Fault(f"after {last} came {message.sequence} in {chat_id}"))
            last = message.sequence
        sender.cursors[chat_id] = page.synced_through
        for message in page.messages[-1:]:
            self._report(
                Seen(
                    message.client_message_id,
                    message.message_id,
                    message.sequence,
                    message.prev_sequence,
                    message.created_at_ms,
                )
            )

    async def _change_members(self) -> None:
        """The owner of the first group adds the guest and takes him out, over and over."""
        chat_id, guest = self._cast.open_group, self._cast.guest
        owner = self._cast.groups[0][1][0]
        random = Random(f"{self._life}/members")
        members = await self._storage.members(owner, chat_id, after=None, count_max=MEMBERS_MAX)
        joins = guest not in {member.user_id for member in members}
        while not self._is_stopping:
            self._report(Changing(chat_id, guest, joins))
            if joins:
                await self._storage.add_member(
                    owner, chat_id, guest, Role.MEMBER, members_max=MEMBERS_MAX, now_ms=START_MS
                )
            else:
                await self._storage.remove_member(owner, chat_id, guest, now_ms=START_MS)
            self._report(Changed(chat_id, guest, joins))
            joins = not joins
            await asyncio.sleep(random.random() * 3 * self._pause_s)

    # How a message is sent.

    def _draft(self, sender: _Sender, chat_id: ChatId, line: str | None) -> Sent:
        digits = f"{sender.random.getrandbits(128):032x}"
        key = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        size = sender.random.choice((20, 40, 80, 160, 160, 1000, 2000))
        sent = Sent(ClientMessageId(key), chat_id, sender.user_id, size, line)
        sender.sent = [*sender.sent[1 - KNOWN_MAX :], sent]
        return sent

    async def _submit(self, sent: Sent) -> None:
        answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()

        def done(outcome: AppendOutcome) -> None:
            # Reported at once: whatever is known outside must have been known here.
            self._take(sent, outcome)
            if not answer.done():
                answer.set_result(outcome)

        self._report(sent)
        self._ingest.submit_nowait(
            chat_id=sent.chat_id,
            sender_id=sent.sender_id,
            client_message_id=sent.key,
            content=content_of(sent),
            done=done,
            origin_connection_id=None if sent.line is None else ConnectionId(sent.line),
        )
        outcome = await answer
        if isinstance(outcome, Unavailable):
            raise outcome

    def _take(self, sent: Sent, outcome: AppendOutcome) -> None:
        if isinstance(outcome, Appended):
            self._report(
                Answered(
                    sent.key,
                    outcome.message_id,
                    outcome.sequence,
                    outcome.prev_sequence,
                    outcome.created_at_ms,
                    outcome.deduplicated,
                )
            )
            self._heads[sent.chat_id] = max(self._heads.get(sent.chat_id, 0), outcome.sequence)
        elif isinstance(outcome, Refused):
            self._report(RefusedSend(sent.key, outcome.code))
            if not isinstance(outcome, NotAMember) or sent.sender_id != self._cast.guest:
                self._report(Fault(f"{sent.key} of {sent.sender_id} was refused: {outcome}"))
