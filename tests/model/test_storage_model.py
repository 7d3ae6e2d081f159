"""Random acts on an engine beside the naive model: same answers, same pages, same events.

A failing run prints the acts that lead to it, shrunk by hypothesis where acts are quick.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import msgspec
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

from tests.model import entries_model
from tests.model.changes import PEOPLE, RANDOM, change_of, keys, some, who
from tests.model.plain import (
    done,
    history,
    latest_positions,
    plain_advance,
    plain_append,
    plain_entry,
    plain_event,
    plain_member,
)
from tests.model.storage_model import Answer, Model, ModelChat, Told
from tests.support import views
from tests.support.engines import (
    ENGINES,
    IN_PROCESS_ENGINES,
    DynamoHarness,
    EngineHarness,
    MemoryHarness,
    SqliteHarness,
)
from tests.support.inspectors import verify_engine, violated
from tests.support.world import PLENTY, World
from tidewire.domain.chats import CreateDirect, CreateGroup, Role
from tidewire.domain.delivery import Advance, DigestEntry
from tidewire.domain.errors import CursorAhead, Refused, SequenceAboveHead
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Message, SendMessage

Result = TypeVar("Result")

SIZES: Final[dict[type[EngineHarness], tuple[int, int]]] = {
    MemoryHarness: (60, 50),
    SqliteHarness: (20, 40),
    DynamoHarness: (5, 30),
}
"""How many runs of how many acts: each act costs its engine's time."""

GROUP_MEMBERS_MAX: Final = 4
CHATS_MAX: Final = 4

anybody = st.integers(0, PEOPLE - 1)
chats = st.integers(0, 15)
"""The last one does not exist."""
sequences = st.integers(0, 40)
"""Up to the head most of the time; from 30 on, a little above it."""
roles = st.sampled_from([Role.MEMBER, Role.MEMBER, Role.ADMIN, Role.OWNER])
drafts = st.tuples(
    st.just("message"),
    who,
    keys,
    st.sampled_from(["a", "b", "c" * 40]),
    st.none() | sequences,
)


class StorageMachine(RuleBasedStateMachine):
    harness: ClassVar[type[EngineHarness]]

    def __init__(self) -> None:
        super().__init__()
        self._is_verified = self.harness in IN_PROCESS_ENGINES
        self._directory = tempfile.TemporaryDirectory(prefix="tidewire-model-")
        self._runner = asyncio.Runner()
        self.engine = self.harness(Path(self._directory.name))
        self.world = World(self.engine)
        self.model = Model()
        self.people: list[UserId] = []
        self.sent: list[SendMessage] = []
        self.highest: dict[tuple[UserId, ChatId], tuple[int, int]] = {}
        """The highest boundaries that each user has ever been shown."""
        self.touched: set[ChatId] = set()
        """Where something was sent in the last act."""
        self.acts = 0

    def teardown(self) -> None:
        faults = violated(verify_engine(self.engine)) if self.people and self._is_verified else []
        self._run(self.engine.close())
        self._runner.close()
        self._directory.cleanup()
        assert not faults, f"verify finds at the end: {faults}"

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
        first, *others = [("message", 0, None, text, None) for text in "abc"]
        self.send(0, first, [(0, others[0]), (1, others[1])])
        self.advance([(1, 0, 1, 0), (2, 0, 2, 0)])

    # Messages.

    @rule(
        chat=chats,
        batch=st.lists(st.tuples(chats, drafts), max_size=4),
        draft=drafts,
    )
    def send(self, chat: int, draft: Any, batch: list[Any]) -> None:
        """A batch of any senders to any chats, each key at most once, as the batcher sees to it."""
        sends: dict[tuple[ChatId, ClientMessageId], SendMessage] = {}
        for number, (kind, *wish) in [(chat, draft), *batch]:
            chat_id = self._chat(number)
            model = self.model.chats.get(chat_id)
            if kind == "message" or model is None:
                send = self._message(chat_id, *wish)
            else:
                send = self._change(model, kind, *wish)
            sends.setdefault((send.chat_id, send.client_message_id), send)
        self._append(list(sends.values()))

    @rule(chat=chats, wishes=some("edit", "edit", "rebase", "delete"), at_once=st.booleans())
    def edit_and_delete(self, chat: int, wishes: list[Any], at_once: bool) -> None:
        self._meet(chat, wishes, at_once)

    @rule(chat=chats, wishes=some("react", "react", "unreact", "delete"), at_once=st.booleans())
    def react_and_delete(self, chat: int, wishes: list[Any], at_once: bool) -> None:
        self._meet(chat, wishes, at_once)

    @rule(chat=chats, wishes=some("reply", "mention", "edit", "delete"), at_once=st.booleans())
    def reply_and_mention(self, chat: int, wishes: list[Any], at_once: bool) -> None:
        self._meet(chat, wishes, at_once)

    def _meet(self, chat: int, wishes: list[Any], at_once: bool) -> None:
        """Things that meet in one chat, in one batch or one after the other."""
        batches = [wishes] if at_once else [[wish] for wish in wishes]
        for first, *others in batches:
            self.send(chat, first, [(chat, wish) for wish in others])

    def _message(
        self,
        chat_id: ChatId,
        sender: int,
        key: ClientMessageId | None,
        content: str,
        seen: int | None,
    ) -> SendMessage:
        had_seen = None if seen is None else self._sequence(seen, chat_id)
        author = self._member(sender, chat_id)
        return self.world.draft(chat_id, author, content, key=key, seen=had_seen)

    def _change(
        self,
        chat: ModelChat,
        kind: str,
        sender: int,
        key: ClientMessageId | None,
        content: str,
        number: int,
    ) -> SendMessage:
        author = self._member(sender, chat.chat_id)
        meant = self._member(number % 16, chat.chat_id)
        return change_of(self.world, chat, kind, author, meant, key, content, number)

    @rule(index=st.integers(0, 99))
    def retry(self, index: int) -> None:
        """Something that was sent before, whatever became of it; often by one who is no longer
        there, or of what was deleted."""
        gone = [send for send in self.sent if self._has_gone(send)]
        erased = [send for send in self.sent if self._is_erased(send)]
        choice = (self.sent, gone or self.sent, erased or self.sent)[index % 3]
        if choice:
            send = choice[index % len(choice)]
            message_id = self.world.ids.message_id(self.world.now())
            self._append([msgspec.structs.replace(send, message_id=message_id)])

    def _is_erased(self, send: SendMessage) -> bool:
        chat = self.model.chats.get(send.chat_id)
        key = send.client_message_id
        log: list[Message] = [] if chat is None else chat.log
        return any(one.client_message_id == key and one.is_deleted for one in log)

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
            for outcome, told in zip(outcomes, expected, strict=True):
                answer = plain_append(outcome)
                is_own_key = told[0] == "own key" and answer[0] in {"again", "KeyReused"}
                assert answer[is_own_key:] == told[is_own_key:]
            self.touched.update(send.chat_id for send in batch)

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
            self._run(self._check_views())

    def _check_told(self) -> None:
        told = [self._as_now(plain_event(event)) for event in self.world.new_events()]
        expected = [self._as_now(event) for event in self.model.told]
        self.model.told = []
        assert history(told) == history(expected)
        assert latest_positions(told) == latest_positions(expected)

    def _as_now(self, told: Told) -> Told:
        """An event of what the same act has deleted may come with its text or without."""
        if told[0] != "message":
            return told
        log = self.model.chats[told[1].chat_id].log
        [now] = [one for one in log if one.sequence == told[1].sequence]
        return (told[0], now if now.is_deleted else told[1], told[2])

    async def _check_views(self) -> None:
        """Where something was sent: what one of the members sees, in every way to see it."""
        touched, self.touched = self.touched, set()
        for chat_id in sorted(touched & self.model.chats.keys()):
            chat = self.model.chats[chat_id]
            self.acts += 1
            if chat.roles and chat.log:
                reader = sorted(chat.roles)[self.acts % len(chat.roles)]
                await self._check_view(chat, reader, split=self.acts * 7 % (len(chat.log) + 1))

    async def _check_view(self, chat: ModelChat, reader: UserId, split: int) -> None:
        storage, chat_id = self.engine.storage, chat.chat_id
        bounds = {"count_max": PLENTY, "bytes_max": PLENTY}
        page = await storage.messages_before(reader, chat_id, None, **bounds)
        sequences = [one.sequence for one in page.messages]
        fresh = views.view_in(page.messages, await storage.messages_now(reader, chat_id, sequences))
        assert fresh == views.view_of(chat.log, reader)
        # What a device knew at some time, texts that were deleted since then included, and what
        # a sync from there gives.
        known = chat.written[:split]
        cursor = known[-1].sequence if known else 0
        missed = await storage.messages_after(reader, chat_id, cursor, **bounds)
        stale = views.view_of(known, reader)
        assert views.catch_up(stale, missed.messages, reader) == fresh
        one = chat.log[split % len(chat.log)]
        assert await storage.message(reader, chat_id, one.message_id) == one
        await self._check_preview(chat, reader)

    async def _check_preview(self, chat: ModelChat, reader: UserId) -> None:
        listed = await self.engine.storage.chat_list(reader, cursor=None, count_max=CHATS_MAX + 9)
        [shown] = [one.last_message for one in listed.items if one.chat.chat_id == chat.chat_id]
        found = None if shown is None else (shown.sequence, shown.preview, shown.is_deleted)
        assert found == entries_model.preview(chat.log)

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
            assert (floors.head, floors.membership_version) == (model.head, model.version)
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


# Thousands of acts, each checked against the whole state: that is what takes the time.
@pytest.mark.slow
@pytest.mark.timeout(240)
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
