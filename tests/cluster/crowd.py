"""People with the SDK who go on talking during any fault, and checks of the result. Holds no test.

Each has a durable store and two chats (one with a friend, one with all) and writes into them all
the time; three times in eight they change a message instead (`changing`). What they were shown,
what their application was told and what was acknowledged is kept, and compared at the end.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.changing import KINDS, Changing, reactions_of
from tests.cluster.watching import PositionWatch
from tests.e2e.chatting import PASSWORD, Address
from tidewire.client import (
    Chat,
    Client,
    ClientOptions,
    EntryKind,
    MessageReceived,
    MessageRefused,
    MessageStored,
    Sent,
    Tick,
    TicksMoved,
)

PEOPLE: Final = 8
PAUSE_S: Final = 0.25
"""Between two messages of one person: about what two cores can handle beside everything else."""
AHEAD_MAX: Final = 100
"""How many messages of one person may wait for their answers."""
SETTLED_S: Final = 60.0
OPTIONS: Final = ClientOptions(
    backoff_ms=50,
    backoff_ms_max=500,
    ack_ms=200,
    # Some tests make a server stand still: clients must not give it up.
    answer_ms_max=120_000,
)


@dataclass(frozen=True)
class Town:
    """People who are registered, and their chats: one for each pair of neighbours, one for all."""

    folder: Path
    names: list[str]
    user_ids: list[str]
    pairs: list[str]
    group: str

    def chats_of(self, number: int) -> list[str]:
        return [self.pairs[number // 2], self.group]

    @property
    def places(self) -> list[tuple[str, str]]:
        """Every user in each of the user's chats."""
        return [
            (user_id, chat_id)
            for number, user_id in enumerate(self.user_ids)
            for chat_id in self.chats_of(number)
        ]

    def store(self, number: int) -> Path:
        return self.folder / f"{number}.db"


async def settle_town(address: Address, folder: Path) -> Town:
    names = [f"p{number}-{uuid.uuid4().hex[:8]}" for number in range(PEOPLE)]
    folder.mkdir()
    async with AsyncExitStack() as stack:
        clients = []
        for number, name in enumerate(names):
            client = await Client.register(
                address.url, name, PASSWORD, store=folder / f"{number}.db", options=OPTIONS
            )
            clients.append(await stack.enter_async_context(client))
        pairs = [(await clients[one].direct(names[one + 1])).chat_id for one in range(0, PEOPLE, 2)]
        group = await clients[0].group("all", *names[1:])
        for client in clients:
            await client.ready()
        user_ids = [client.user_id or "" for client in clients]
    return Town(folder, names, user_ids, list(pairs), group.chat_id)


class Person:
    def __init__(self, number: int, client: Client, chats: list[str]) -> None:
        self.number = number
        self.client = client
        self.chat_ids = chats
        self.chats = [client.chat(chat_id) for chat_id in chats]
        self.others: list[Person] = []
        self.sent: list[Sent] = []
        self.changing = Changing(number, client)
        self.told: dict[str, list[int]] = defaultdict(list)
        """Sequences by chat, in the order in which the application was told of them."""
        self.faults: list[str] = []
        self.times_back = 0

    def count_returns(self) -> None:
        """Count reconnects from now on, in the driver: of the events about the connection's state
        each replaces the last, so a listener may not see that the client was offline."""
        driver = self.client.driver
        told = driver.on_ready

        def came_back() -> None:
            self.times_back += 1
            told()

        driver.on_ready = came_back

    async def write(self, is_over: asyncio.Event, pause_s: float) -> None:
        """Write into one chat after the other, until it is over."""
        # People begin at different turns, so at any time one is about to change something.
        turn = self.number
        while not is_over.is_set():
            if len(self.sent) >= AHEAD_MAX and self.sent[-AHEAD_MAX].sequence is None:
                await self.sent[-AHEAD_MAX].stored()
            # Each kind of change has its turn in each of the chats.
            chat = self.chats[(turn + turn // 8) % len(self.chats)]
            if not await self.changing.change(turn, chat, self.sent):
                self.sent.append(await chat.send(f"{self.number}-{len(self.sent)}"))
            turn += 1
            await asyncio.sleep(pause_s)

    async def listen(self) -> None:
        async for event in self.client.events():
            match event:
                case MessageReceived() | MessageStored():
                    message = event.message
                    self.told[message.chat_id].append(message.sequence)
                    self.changing.has_heard(message.chat_id, message.sequence, message.text)
                case TicksMoved():
                    self._look_at_ticks(event.chat_id)
                case MessageRefused():
                    self.faults.append(f"refused: {event}")
                case _:
                    pass

    def _look_at_ticks(self, chat_id: str) -> None:
        replica = self.client.driver.core.replicas[self.client.chat(chat_id).chat_id]
        shown = self._last_own(chat_id, up_to=replica.others_delivered)
        for other in self.others:
            if chat_id in other.chat_ids and other.client.chat(chat_id).last_sequence < shown:
                self.faults.append(
                    f"{shown} of {chat_id} has two ticks, and {other} has not got it"
                )

    def _last_own(self, chat_id: str, *, up_to: int) -> int:
        """The last of this person's messages that is shown as delivered; 0 if none is."""
        for sent in reversed(self.sent):
            if sent.chat_id == chat_id and sent.sequence is not None and sent.sequence <= up_to:
                return sent.sequence
        return 0

    def __repr__(self) -> str:
        return f"person {self.number}"

    @property
    def entries(self) -> list[Sent]:
        """Messages and changes."""
        return [*self.sent, *self.changing.sent]

    @property
    def waiting(self) -> list[Sent]:
        """Those that are not acknowledged yet."""
        return [one for one in self.entries if one.sequence is None]

    @property
    def acked_count(self) -> int:
        return len(self.entries) - len(self.waiting)

    async def shown(self, chat: Chat) -> list["Shown"]:
        messages = await chat.messages(limit=1_000_000)
        return [
            Shown(
                one.sequence,
                one.text,
                one.is_own,
                {reaction.emoji: reaction.count for reaction in one.reactions},
            )
            for one in messages
        ]

    def text_now(self, sent: Sent) -> str:
        """The text that one of this person's messages must have now."""
        assert sent.sequence is not None
        return self.changing.texts.get((sent.chat_id, sent.sequence), sent.text)


class Shown(NamedTuple):
    """A message as a device shows it."""

    sequence: int
    text: str
    is_own: bool
    reactions: dict[str, int]


class Crowd:
    def __init__(self, town: Town, people: list[Person], watch: PositionWatch) -> None:
        self.town = town
        self.people = people
        self.watch = watch
        self._is_over = asyncio.Event()
        self._writing: list[asyncio.Task[None]] = []

    @property
    def acked_count(self) -> int:
        return sum(person.acked_count for person in self.people)

    @property
    def _kinds(self) -> set[EntryKind]:
        return {one.kind for person in self.people for one in person.changing.sent}

    @property
    def times_back(self) -> list[int]:
        """How often each person has lost the connection and come back."""
        return [person.times_back for person in self.people]

    async def acked(self, more: int, patience_s: float = SETTLED_S) -> None:
        """Wait until `more` messages and changes more are acknowledged."""
        target = self.acked_count + more
        await until(lambda: self.acked_count >= target, patience_s)

    def talk(self, pause_s: float) -> None:
        self._writing = [
            asyncio.create_task(person.write(self._is_over, pause_s)) for person in self.people
        ]

    async def hush(self) -> None:
        """Stop all writing."""
        self._is_over.set()
        await asyncio.gather(*self._writing)

    async def all_complete(self) -> None:
        """Stop all writing, once each kind of change was tried. Then wait until everything written
        is acknowledged, all people have received and read it, and all see blue ticks."""
        await until(lambda: self._kinds == set(KINDS.values()), SETTLED_S)
        await self.hush()
        async with asyncio.timeout(SETTLED_S):
            for person in self.people:
                for sent in person.sent:
                    await sent.stored()
                await person.changing.settle()
        heads = {
            chat_id: max(
                sent.sequence or 0
                for person in self.people
                for sent in person.entries
                if sent.chat_id == chat_id
            )
            for chat_id in [*self.town.pairs, self.town.group]
        }

        def has_all(person: Person) -> bool:
            return all(chat.last_sequence >= heads[chat.chat_id] for chat in person.chats)

        await until(lambda: all(map(has_all, self.people)), SETTLED_S)
        for person in self.people:
            for chat in person.chats:
                await chat.read()
        await until(
            lambda: all(sent.tick is Tick.READ for person in self.people for sent in person.sent),
            SETTLED_S,
        )
        for person in self.people:
            for chat in person.chats:
                assert chat.last_sequence == heads[chat.chat_id]

    async def check(self) -> None:
        """Assert that all hold the same: what was written and changed, once and in order."""
        faults = [(*person.faults, *person.changing.faults) for person in self.people]
        assert [fault for some in faults for fault in some] == []
        assert self._kinds == set(KINDS.values()), "not every kind of change was tried"
        await self.watch.look()
        assert self.watch.falls == [], self.watch.falls
        assert self.watch.has_seen_everybody
        histories: dict[str, list[list[tuple[int, str, dict[str, int]]]]] = defaultdict(list)
        for person in self.people:
            for chat in person.chats:
                shown = await person.shown(chat)
                histories[chat.chat_id].append(
                    [(one.sequence, one.text, one.reactions) for one in shown]
                )
                sequences = [one.sequence for one in shown]
                assert sequences == sorted(set(sequences)), "twice, or out of order"
                told = person.told[chat.chat_id]
                assert told == sequences[len(sequences) - len(told) :], "told otherwise than shown"
                own = [
                    (one.sequence, person.text_now(one))
                    for one in person.sent
                    if one.chat_id == chat.chat_id
                ]
                ours = [(one.sequence, one.text) for one in shown if one.is_own]
                # Messages of earlier tests come first.
                assert ours[len(ours) - len(own) :] == own
        for chat_id, held in histories.items():
            assert all(one == held[0] for one in held), f"{chat_id} differs between its members"
            self._check_reactions(chat_id, {sequence: found for sequence, _, found in held[0]})
            written = sum(sent.chat_id == chat_id for person in self.people for sent in person.sent)
            told = [
                len(person.told[chat_id])
                for person in self.people
                if any(chat.chat_id == chat_id for chat in person.chats)
            ]
            assert set(told) == {written}, "somebody was not told of each message once"

    def _check_reactions(self, chat_id: str, shown: dict[int, dict[str, int]]) -> None:
        """Assert that the counts of each emoji are those of the people who have it on."""
        changing = [person.changing for person in self.people]
        for place in {place for one in changing for place in one.marks if place[0] == chat_id}:
            assert shown[place[1]] == reactions_of(changing, place), place


@asynccontextmanager
async def talking(
    town: Town, watch: PositionWatch, *addresses: Address, pause_s: float = PAUSE_S
) -> AsyncIterator[Crowd]:
    """All people, connected to the addresses in turn; they write until `all_complete`."""
    # Debug mode makes this process, with eight clients and their proxies, several times slower.
    asyncio.get_running_loop().set_debug(False)
    async with AsyncExitStack() as stack:
        people = []
        for number in range(PEOPLE):
            address = addresses[number % len(addresses)]
            client = Client(address.url, store=town.store(number), options=OPTIONS, moved=True)
            await stack.enter_async_context(client)
            people.append(Person(number, client, town.chats_of(number)))
        async with asyncio.timeout(SETTLED_S):
            for person in people:
                await person.client.ready()
                # A failed test may have left something to send, which is not part of this test.
                await person.client.flush()
        for person in people:
            person.others = [one for one in people if one is not person]
            person.count_returns()
        crowd = Crowd(town, people, watch)
        tasks = [asyncio.create_task(person.listen()) for person in people]
        tasks.append(asyncio.create_task(watch.keep_looking()))
        crowd.talk(pause_s)
        try:
            yield crowd
        finally:
            await crowd.hush()
            for person in people:
                person.changing.stop()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def until(holds: Callable[[], bool | Awaitable[bool]], patience_s: float) -> None:
    """Poll for a condition that no event announces."""
    async with asyncio.timeout(patience_s):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)
