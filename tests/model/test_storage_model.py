"""Random acts on an engine beside the naive model: same answers, same pages, same events.

A failing run prints the acts that lead to it, shrunk by hypothesis where acts are quick.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.model.storage_model import DONE, Answer, Model, Told
from tests.support.engines import (
    ENGINES,
    IN_PROCESS_ENGINES,
    DynamoHarness,
    EngineHarness,
    MemoryHarness,
    SqliteHarness,
)
from tests.support.world import PLENTY, World
from tidewire.domain.chats import CreateDirect, CreateGroup, Member, Role
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome, DigestEntry
from tidewire.domain.errors import CursorAhead, KeyReused, Refused, SequenceAboveHead
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    Event,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage

Result = TypeVar("Result")

SIZES: Final[dict[type[EngineHarness], tuple[int, int]]] = {
    MemoryHarness: (60, 50),
    SqliteHarness: (20, 40),
    DynamoHarness: (5, 30),
}
"""How many runs of how many acts: each act costs its engine's time."""

PEOPLE: Final = 5
"""Four who exist, and one whom the store does not know."""
GROUP_MEMBERS_MAX: Final = 4
CHATS_MAX: Final = 4
KEYS: Final = [ClientMessageId(f"{n:08x}-1111-4000-8000-000000000000") for n in range(6)]

anybody = st.integers(0, PEOPLE - 1)
# Who and where, as numbers that the machine turns into somebody who fits, most of the time: acts of
# people picked blindly would nearly all be refused. From RANDOM on they are picked blindly.
RANDOM: Final = 12
who = st.integers(0, RANDOM + PEOPLE - 1)
chats = st.integers(0, 15)
"""The last one does not exist."""
sequences = st.integers(0, 40)
"""Up to the head most of the time; from 30 on, a little above it."""
roles = st.sampled_from([Role.MEMBER, Role.MEMBER, Role.ADMIN, Role.OWNER])
drafts = st.tuples(
    who,
    st.sampled_from(KEYS) | st.none(),
    st.sampled_from(["a", "b", "c" * 40]),
    st.none() | sequences,
)


class StorageMachine(RuleBasedStateMachine):
    harness: ClassVar[type[EngineHarness]]

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(prefix="tidewire-model-")
        self._runner = asyncio.Runner()
        self.engine = self.harness(Path(self._directory.name))
        self.world = World(self.engine)
        self.model = Model()
        self.people: list[UserId] = []
        self.sent: list[SendMessage] = []
        self.highest: dict[tuple[UserId, ChatId], tuple[int, int]] = {}
        """The highest boundaries that each user has ever been shown."""

    def teardown(self) -> None:
        self._run(self.engine.close())
        self._runner.close()
        self._directory.cleanup()

    def _run(self, act: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(act)

    def _chat(self, number: int, *, group: bool = False) -> ChatId:
        known = [c for c in self.model.chats.values() if c.chat_type == "group" or not group]
        if number == 15 or not known:
            return self.world.no_chat()
        return known[number % len(known)].chat_id

    def _member(self, number: int, chat_id: ChatId) -> UserId:
        chat = self.model.chats.get(chat_id)
        return self._one_of(number, list(chat.roles) if chat else [])

    def _owner(self, number: int, chat_id: ChatId) -> UserId:
        """The owner mostly, else any member."""
        chat = self.model.chats.get(chat_id)
        owners = [user for user, role in chat.roles.items() if role == "owner"] if chat else []
        return self._member(number, chat_id) if number % 3 == 0 else self._one_of(number, owners)

    def _outsider(self, number: int, chat_id: ChatId) -> UserId:
        chat = self.model.chats.get(chat_id)
        inside = chat.roles if chat else {}
        return self._one_of(number, [user for user in self.model.people if user not in inside])

    def _one_of(self, number: int, fitting: list[UserId]) -> UserId:
        if number >= RANDOM or not fitting:
            return self.people[number % PEOPLE]
        return fitting[number % len(fitting)]

    def _sequence(self, number: int, chat_id: ChatId) -> int:
        chat = self.model.chats.get(chat_id)
        if chat is None:
            return number
        return chat.head + number - 29 if number >= 30 else number % (chat.head + 1)

    @initialize()
    def begin(self) -> None:
        self._run(self.engine.open())
        self.people = self._run(self.world.people(PEOPLE - 1))
        self.model.people = list(self.people)
        self.people.append(self.world.stranger())
        self.create_group(0, [1, 2])
        self.create_direct(0, 1)
        # Somebody has something to lose from the start.
        self.send(0, (0, None, "a", None), [(0, (0, None, "b", None)), (1, (0, None, "c", None))])
        self.advance([(1, 0, 1, 0), (2, 0, 2, 0)])

    # Messages.

    @rule(chat=chats, batch=st.lists(st.tuples(chats, drafts), max_size=4), draft=drafts)
    def send(self, chat: int, draft: Any, batch: list[Any]) -> None:
        """A batch of any senders to any chats, each key at most once, as the batcher sees to it."""
        sends: dict[tuple[ChatId, ClientMessageId], SendMessage] = {}
        for number, (sender, key, content, seen) in [(chat, draft), *batch]:
            chat_id = self._chat(number)
            author = self._member(sender, chat_id)
            had_seen = None if seen is None else self._sequence(seen, chat_id)
            send = self.world.draft(chat_id, author, content, key=key, seen=had_seen)
            sends.setdefault((send.chat_id, send.client_message_id), send)
        self._append(list(sends.values()))

    @rule(index=st.integers(0, 99))
    def retry(self, index: int) -> None:
        """Something that was sent before, whatever became of it; half of the time by one who is
        no longer there."""
        gone = [send for send in self.sent if self._has_gone(send)]
        choice = gone if gone and index % 2 else self.sent
        if choice:
            send = choice[index % len(choice)]
            self._append(
                [
                    self.world.draft(
                        send.chat_id,
                        send.sender_id,
                        send.content,
                        key=send.client_message_id,
                        seen=send.seen_sequence,
                    )
                ]
            )

    def _has_gone(self, send: SendMessage) -> bool:
        chat = self.model.chats.get(send.chat_id)
        return chat is not None and send.sender_id not in chat.roles

    def _append(self, sends: list[SendMessage]) -> None:
        storage = self.engine.storage
        for batch in by_chat(sends) if storage.appends_per_chat else [sends]:
            now_ms = self.world.now()
            outcomes = self._run(storage.append(batch, now_ms=now_ms))
            self.sent += batch
            expected = self.model.append(batch, now_ms)
            assert [plain_append(outcome) for outcome in outcomes] == expected

    @rule(chat=chats, jump=st.integers(1, 5))
    def leave_a_hole(self, chat: int, jump: int) -> None:
        """As if numbers had been given out to messages that were never stored."""
        model = self.model.chats.get(self._chat(chat))
        if model is not None:
            model.counter += jump
            self._run(self.engine.set_counter(model.chat_id, model.counter))

    @rule(
        reader=who,
        chat=chats,
        number=sequences,
        count_max=st.integers(1, 6),
        bytes_max=st.sampled_from([1, 45, PLENTY]),
    )
    def read_pages(
        self, reader: int, chat: int, number: int, count_max: int, bytes_max: int
    ) -> None:
        chat_id = self._chat(chat)
        user, cursor = self._member(reader, chat_id), self._sequence(number, chat_id)
        storage = self.engine.storage

        async def after() -> Answer:
            page = await storage.messages_after(
                user, chat_id, cursor, count_max=count_max, bytes_max=bytes_max
            )
            return list(page.messages), page.synced_through, page.has_more, page.head

        async def before(sequence: int | None) -> Answer:
            page = await storage.messages_before(
                user, chat_id, sequence, count_max=count_max, bytes_max=bytes_max
            )
            return list(page.messages), page.has_more, page.head

        model = self.model
        bounds = count_max, bytes_max
        assert self._try(after()) == model.page_after(user, chat_id, cursor, *bounds)
        for sequence in (None, cursor):
            answer = self._try(before(sequence))
            assert answer == model.page_before(user, chat_id, sequence, *bounds)

    # Chats.

    @rule(actor=anybody, others=st.lists(anybody, max_size=4, unique=True))
    def create_group(self, actor: int, others: list[int]) -> None:
        if len(self.model.chats) >= CHATS_MAX:
            return
        now_ms = self.world.now()
        command = CreateGroup(
            chat_id=self.world.ids.chat_id(now_ms),
            actor_id=self.people[actor],
            name="team",
            member_ids=[self.people[other] for other in others if other != actor],
        )

        async def create() -> Answer:
            created = await self.engine.storage.create_group(
                command, members_max=GROUP_MEMBERS_MAX, now_ms=now_ms
            )
            return ("created" if created.created else "found", created.chat.chat_id)

        expected = self.model.create_group(
            command.chat_id, command.actor_id, command.member_ids, GROUP_MEMBERS_MAX
        )
        assert self._try(create()) == expected

    @rule(actor=anybody, other=anybody)
    def create_direct(self, actor: int, other: int) -> None:
        now_ms = self.world.now()
        command = CreateDirect(
            chat_id=self.world.ids.chat_id(now_ms),
            actor_id=self.people[actor],
            other_id=self.people[other],
        )

        async def create() -> Answer:
            created = await self.engine.storage.create_direct(command, now_ms=now_ms)
            return ("created" if created.created else "found", created.chat.chat_id)

        expected = self.model.create_direct(command.chat_id, command.actor_id, command.other_id)
        assert self._try(create()) == expected

    @rule(actor=who, chat=chats, person=who, role=roles)
    def add(self, actor: int, chat: int, person: int, role: Role) -> None:
        chat_id = self._chat(chat, group=actor != person)
        by, user = self._owner(actor, chat_id), self._outsider(person, chat_id)
        act = self.world.add(by, chat_id, user, role, members_max=GROUP_MEMBERS_MAX)
        expected = self.model.add(by, chat_id, user, role.value, GROUP_MEMBERS_MAX)
        assert self._try(plain_member(act)) == expected

    @rule(actor=who, chat=chats, person=who)
    def remove(self, actor: int, chat: int, person: int) -> None:
        chat_id = self._chat(chat, group=actor != person)
        by, user = self._owner(actor, chat_id), self._member(person, chat_id)
        answer = self._try(done(self.world.remove(by, chat_id, user)))
        assert answer == self.model.remove(by, chat_id, user)

    @rule(actor=who, chat=chats)
    def leave(self, actor: int, chat: int) -> None:
        chat_id = self._chat(chat, group=actor != chat)
        by = self._member(actor, chat_id)
        assert self._try(done(self.world.leave(by, chat_id))) == self.model.leave(by, chat_id)

    @rule(actor=who, chat=chats, person=who, role=roles)
    def change_role(self, actor: int, chat: int, person: int, role: Role) -> None:
        chat_id = self._chat(chat, group=actor != person)
        by, user = self._owner(actor, chat_id), self._member(person, chat_id)
        answer = self._try(plain_member(self.world.change_role(by, chat_id, user, role)))
        assert answer == self.model.change_role(by, chat_id, user, role.value)

    @rule(actor=who, chat=chats, person=who)
    def hand_over(self, actor: int, chat: int, person: int) -> None:
        chat_id = self._chat(chat, group=actor != person)
        by, user = self._owner(actor, chat_id), self._member(person, chat_id)
        answer = self._try(plain_member(self.world.hand_over(by, chat_id, user)))
        assert answer == self.model.hand_over(by, chat_id, user)

    @rule(actor=who, chat=chats)
    def close_group(self, actor: int, chat: int) -> None:
        """Rarely: what is closed takes part in nothing any more."""
        if chat % 3:
            return
        chat_id = self._chat(chat, group=actor != chat)
        by = self._owner(actor, chat_id)
        answer = self._try(done(self.world.close_group(by, chat_id)))
        assert answer == self.model.close(by, chat_id)

    @rule(actor=who, chat=chats, name=st.sampled_from(["team", "crew"]))
    def rename(self, actor: int, chat: int, name: str) -> None:
        chat_id = self._chat(chat, group=actor != chat)
        by = self._member(actor, chat_id)

        async def act() -> Answer:
            renamed = await self.world.rename(by, chat_id, name)
            return ("renamed", renamed.name, renamed.membership_version)

        assert self._try(act()) == self.model.rename(by, chat_id, name)

    # Positions.

    @rule(moves=st.lists(st.tuples(who, chats, sequences, sequences), min_size=1, max_size=4))
    def advance(self, moves: list[tuple[int, int, int, int]]) -> None:
        advances = []
        for person, number, delivered, read in moves:
            chat_id = self._chat(number)
            advances.append(
                Advance(
                    user_id=self._member(person, chat_id),
                    chat_id=chat_id,
                    delivered=self._sequence(delivered, chat_id),
                    read=self._sequence(read, chat_id) if number % 2 else 0,
                )
            )
        outcomes = self._run(self.engine.storage.advance(advances, now_ms=self.world.now()))
        expected = [self.model.advance(advance) for advance in advances]
        assert [plain_advance(outcome) for outcome in outcomes] == expected

    @rule(person=who, chat=chats, number=st.none() | sequences)
    def delivery_status(self, person: int, chat: int, number: int | None) -> None:
        chat_id = self._chat(chat)
        reader = self._member(person, chat_id)
        sequence = None if number is None else self._sequence(number, chat_id)

        async def look() -> Answer:
            status = await self.engine.storage.delivery_status(reader, chat_id, sequence)
            found = status.summary
            counts = found.delivered_count, found.read_count, found.pending_count
            return ("status", found.sequence, *counts)

        assert self._try(look()) == self.model.delivery_status(reader, chat_id, sequence)

    # The store.

    @rule()
    def reopen(self) -> None:
        self._run(self.engine.reopen())

    # After every act.

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if self.people:
            self._check_told()
            self._run(self._check_chats())
            self._run(self._check_digests())

    def _check_told(self) -> None:
        told = [plain_event(event) for event in self.world.new_events()]
        expected, self.model.told = self.model.told, []
        assert history(told) == history(expected)
        assert latest_positions(told) == latest_positions(expected)

    async def _check_chats(self) -> None:
        storage = self.engine.storage
        for chat_id, model in self.model.chats.items():
            floors = (await storage.floors([chat_id]))[0]
            roster = await storage.roster(chat_id)
            if model.is_closed:
                assert (floors, roster) == (None, None)
                continue
            assert floors is not None
            assert roster is not None
            assert floors.head == model.head
            assert (sorted(roster.user_ids), roster.membership_version) == (
                sorted(model.roles),
                model.version,
            )
            for viewer in model.roles:
                assert (
                    floors.delivered.boundary(viewer, floors.head),
                    floors.read.boundary(viewer, floors.head),
                ) == (model.others(model.delivered, viewer), model.others(model.read, viewer))

    async def _check_digests(self) -> None:
        for user in self.people:
            entries: list[DigestEntry] = []
            after = None
            while True:
                page = await self.engine.storage.digest(user, after=after, count_max=3)
                entries += page.entries
                after = page.next_chat_id
                if after is None:
                    break
            assert [plain_entry(entry) for entry in entries] == self.model.digest(user)
            for entry in entries:
                shown = entry.others_delivered, entry.others_read
                highest = self.highest.get((user, entry.chat_id), (0, 0))
                assert shown[0] >= highest[0], "a delivered tick went back"
                assert shown[1] >= highest[1], "a read tick went back"
                self.highest[user, entry.chat_id] = shown

    def _try(self, act: Awaitable[Answer]) -> Answer:
        """The answer, or the refusal as the model writes it."""

        async def attempt() -> Answer:
            try:
                return await act
            except (CursorAhead, SequenceAboveHead) as refusal:
                return (type(refusal).__name__, refusal.head)
            except Refused as refusal:
                return (type(refusal).__name__,)

        return self._run(attempt())


def by_chat(sends: list[SendMessage]) -> list[list[SendMessage]]:
    batches: dict[ChatId, list[SendMessage]] = {}
    for send in sends:
        batches.setdefault(send.chat_id, []).append(send)
    return list(batches.values())


# How an engine's values look to the model.


async def done(act: Awaitable[None]) -> Answer:
    await act
    return DONE


async def plain_member(act: Awaitable[Member]) -> Answer:
    member = await act
    return ("member", member.role.value, member.joined_sequence)


def plain_append(outcome: AppendOutcome) -> Answer:
    if isinstance(outcome, Appended):
        return ("again" if outcome.deduplicated else "stored", *plain_numbers(outcome))
    if isinstance(outcome, KeyReused) and outcome.original is not None:
        return ("KeyReused", *plain_numbers(outcome.original))
    return (type(outcome).__name__,)


def plain_numbers(answer: Appended) -> Answer:
    return (answer.sequence, answer.prev_sequence, answer.message_id, answer.created_at_ms)


def plain_advance(outcome: AdvanceOutcome) -> Answer:
    if isinstance(outcome, Advanced):
        return ("positions", outcome.positions.delivered, outcome.positions.read, outcome.moved)
    if isinstance(outcome, SequenceAboveHead):
        return ("SequenceAboveHead", outcome.head)
    return (type(outcome).__name__,)


def plain_entry(entry: DigestEntry) -> Answer:
    return (
        entry.chat_id,
        entry.chat_type.value,
        entry.head,
        entry.membership_version,
        entry.joined_sequence,
        entry.delivered,
        entry.read,
        entry.others_delivered,
        entry.others_read,
        entry.unread,
    )


def history(told: list[Told]) -> list[Told]:
    """Everything but positions, which are state: an engine may tell of them apart from messages,
    and of two moves in one commit only the last."""
    return [event for event in told if event[0] != "positions"]


def latest_positions(told: list[Told]) -> dict[Told, Told]:
    return {event[1:3]: event[3:] for event in told if event[0] == "positions"}


def plain_event(event: Event) -> Told:
    match event:
        case MessageAppended():
            return ("message", event.message, event.membership_version)
        case ChatCreated():
            chat = event.chat
            return ("created", chat.chat_id, chat.chat_type.value, sorted(event.member_ids))
        case ChatRenamed():
            chat = event.chat
            return ("renamed", chat.chat_id, chat.name, chat.membership_version, event.changed_by)
        case MembershipChanged():
            return (
                event.change.value,
                event.chat.chat_id,
                event.user_id,
                event.role.value,
                event.joined_sequence,
                event.chat.membership_version,
                event.changed_by,
            )
        case ChatClosed():
            chat = event.chat
            return ("closed", chat.chat_id, sorted(event.member_ids), chat.membership_version)
        case _:
            positions = event.positions
            return (
                "positions",
                event.chat_id,
                event.user_id,
                positions.delivered,
                positions.read,
            )


# Thousands of acts, each checked against the whole state: that is what takes the time.
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda harness: harness.name)
def test_engine_does_what_the_model_does(engine: type[EngineHarness]) -> None:
    class Machine(StorageMachine):
        harness = engine

    examples, steps = SIZES[engine]
    # Shrinking repeats a run hundreds of times, which takes too long where each takes seconds: the
    # acts that lead to the fault are then printed as they were.
    phases = [one for one in Phase if one is not Phase.shrink or engine in IN_PROCESS_ENGINES]
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=examples, stateful_step_count=steps, phases=phases),
    )
