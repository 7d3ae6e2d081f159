"""People and chats in one store, and short methods for what they do, so that tests read easily.

Deterministic: ids come from a seed, and the clock goes one millisecond further with every write.
"""

import asyncio
from random import Random
from typing import Final

from tests.support.engines import EngineHarness
from tidewire.domain.chats import Chat, CreateDirect, CreateGroup, Member, Role
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome, DigestEntry, Positions
from tidewire.domain.errors import TidewireError
from tidewire.domain.events import Event
from tidewire.domain.fold import AS_WRITTEN, MessageNow
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, UlidSource, UserId
from tidewire.domain.messages import (
    Amendment,
    Appended,
    AppendOutcome,
    EntryKind,
    Message,
    SendMessage,
)
from tidewire.domain.users import User
from tidewire.ports.storage import Storage

START_MS: Final = 1_800_000_000_000
MEMBERS_MAX: Final = 50
PLENTY: Final = 1_000_000
"""For bounds that do not matter in a test."""


class World:
    def __init__(self, engine: EngineHarness) -> None:
        self.engine = engine
        self.ids = UlidSource(Random(1).getrandbits)
        self._now_ms = START_MS
        self._keys_used = 0

    @property
    def storage(self) -> Storage:
        return self.engine.storage

    def now(self) -> int:
        """The next millisecond."""
        self._now_ms += 1
        return self._now_ms

    # People and chats.

    async def person(self, username: str | None = None) -> UserId:
        now_ms = self.now()
        user_id = self.ids.user_id(now_ms)
        username = username or f"person-{now_ms - START_MS}"
        await self.storage.add_user(
            User(
                user_id=user_id,
                username=username,
                display_name=username,
                created_at_ms=now_ms,
                updated_at_ms=now_ms,
            )
        )
        return user_id

    async def people(self, count: int) -> list[UserId]:
        return await asyncio.gather(*(self.person() for _ in range(count)))

    def stranger(self) -> UserId:
        """The id of a user whom the store does not know."""
        return self.ids.user_id(self.now())

    def no_chat(self) -> ChatId:
        """The id of a chat that does not exist."""
        return self.ids.chat_id(self.now())

    async def direct(self, one: UserId, other: UserId) -> ChatId:
        now_ms = self.now()
        command = CreateDirect(chat_id=self.ids.chat_id(now_ms), actor_id=one, other_id=other)
        return (await self.storage.create_direct(command, now_ms=now_ms)).chat.chat_id

    async def group(self, owner: UserId, *members: UserId, name: str = "team") -> ChatId:
        now_ms = self.now()
        command = CreateGroup(
            chat_id=self.ids.chat_id(now_ms), actor_id=owner, name=name, member_ids=members
        )
        created = await self.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=now_ms)
        return created.chat.chat_id

    async def add(
        self,
        actor: UserId,
        chat_id: ChatId,
        user_id: UserId,
        role: Role = Role.MEMBER,
        *,
        members_max: int = MEMBERS_MAX,
    ) -> Member:
        return await self.storage.add_member(
            actor, chat_id, user_id, role, members_max=members_max, now_ms=self.now()
        )

    async def remove(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> None:
        await self.storage.remove_member(actor, chat_id, user_id, now_ms=self.now())

    async def leave(self, actor: UserId, chat_id: ChatId, *, for_good: bool = False) -> None:
        await self.storage.leave(actor, chat_id, for_good=for_good, now_ms=self.now())

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role
    ) -> Member:
        return await self.storage.change_role(actor, chat_id, user_id, role, now_ms=self.now())

    async def hand_over(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> Member:
        return await self.storage.hand_over(actor, chat_id, user_id, now_ms=self.now())

    async def close_group(self, actor: UserId, chat_id: ChatId) -> None:
        await self.storage.close_group(actor, chat_id, now_ms=self.now())

    async def rename(self, actor: UserId, chat_id: ChatId, name: str) -> Chat:
        return (await self.storage.rename(actor, chat_id, name, now_ms=self.now())).chat

    async def chat(self, reader: UserId, chat_id: ChatId) -> Chat:
        return (await self.storage.access_chat(reader, chat_id)).chat

    async def members(self, reader: UserId, chat_id: ChatId) -> dict[UserId, Member]:
        members = await self.storage.members(reader, chat_id, after=None, count_max=PLENTY)
        return {member.user_id: member for member in members}

    # Messages.

    def key(self) -> ClientMessageId:
        """A new client_message_id."""
        self._keys_used += 1
        return ClientMessageId(f"{self._keys_used:08x}-0000-4000-8000-000000000000")

    def draft(
        self,
        chat_id: ChatId,
        sender: UserId,
        content: str = "hello",
        *,
        key: ClientMessageId | None = None,
        seen: int | None = None,
        connection: ConnectionId | None = None,
        reply_to: int | None = None,
        mentions: tuple[UserId, ...] = (),
        amends: Amendment | None = None,
        base: int | None = None,
    ) -> SendMessage:
        """A send that is not sent yet. The same key again makes it a retry, with a new id."""
        return SendMessage(
            chat_id=chat_id,
            sender_id=sender,
            client_message_id=key or self.key(),
            content=content,
            message_id=self.ids.message_id(self.now()),
            seen_sequence=seen,
            origin_connection_id=connection,
            reply_to=reply_to,
            mentions=mentions,
            amends=amends,
            base=base,
        )

    def edit(
        self,
        chat_id: ChatId,
        sender: UserId,
        target: int,
        content: str = "edited",
        *,
        base: int | None = None,
        key: ClientMessageId | None = None,
    ) -> SendMessage:
        amends = Amendment(kind=EntryKind.EDIT, target=target)
        return self.draft(chat_id, sender, content, amends=amends, base=base, key=key)

    def deletion(
        self,
        chat_id: ChatId,
        sender: UserId,
        target: int,
        *,
        reason: str | None = None,
        key: ClientMessageId | None = None,
    ) -> SendMessage:
        amends = Amendment(kind=EntryKind.DELETE, target=target, reason=reason)
        return self.draft(chat_id, sender, "", amends=amends, key=key)

    def reaction(
        self,
        chat_id: ChatId,
        sender: UserId,
        target: int,
        emoji: str = "👍",
        *,
        is_on: bool = True,
        key: ClientMessageId | None = None,
    ) -> SendMessage:
        amends = Amendment(kind=EntryKind.REACT, target=target, emoji=emoji, is_on=is_on)
        return self.draft(chat_id, sender, "", amends=amends, key=key)

    async def store(self, draft: SendMessage) -> Appended:
        """Append a send that must be stored."""
        [outcome] = await self.append(draft)
        return taken(outcome)

    async def refusal(self, draft: SendMessage) -> TidewireError:
        """Append a send that must be refused."""
        [outcome] = await self.append(draft)
        assert isinstance(outcome, TidewireError), outcome
        return outcome

    async def now_of(self, reader: UserId, chat_id: ChatId, sequence: int) -> MessageNow:
        """What a message is now."""
        found = await self.storage.messages_now(reader, chat_id, [sequence])
        return found.get(sequence, AS_WRITTEN)

    async def append(self, *drafts: SendMessage) -> list[AppendOutcome]:
        return await self.storage.append(drafts, now_ms=self.now())

    async def try_send(
        self,
        chat_id: ChatId,
        sender: UserId,
        content: str = "hello",
        *,
        key: ClientMessageId | None = None,
        seen: int | None = None,
    ) -> AppendOutcome:
        [outcome] = await self.append(self.draft(chat_id, sender, content, key=key, seen=seen))
        return outcome

    async def send(
        self,
        chat_id: ChatId,
        sender: UserId,
        content: str = "hello",
        *,
        key: ClientMessageId | None = None,
        seen: int | None = None,
    ) -> Appended:
        """Send a message that must be stored."""
        outcome = await self.try_send(chat_id, sender, content, key=key, seen=seen)
        return taken(outcome)

    async def send_many(self, chat_id: ChatId, sender: UserId, count: int) -> int:
        """Send some messages in one batch; return the head after them."""
        drafts = [self.draft(chat_id, sender, f"message {index}") for index in range(count)]
        return taken((await self.append(*drafts))[-1]).sequence

    async def messages(self, reader: UserId, chat_id: ChatId, after: int = 0) -> list[Message]:
        page = await self.storage.messages_after(
            reader, chat_id, after, count_max=PLENTY, bytes_max=PLENTY
        )
        return list(page.messages)

    # Positions.

    async def try_ack(self, user_id: UserId, chat_id: ChatId, sequence: int) -> AdvanceOutcome:
        return await self._advance(
            Advance(user_id=user_id, chat_id=chat_id, delivered=sequence),
        )

    async def try_read(self, user_id: UserId, chat_id: ChatId, sequence: int) -> AdvanceOutcome:
        return await self._advance(Advance(user_id=user_id, chat_id=chat_id, read=sequence))

    async def ack(self, user_id: UserId, chat_id: ChatId, sequence: int) -> Advanced:
        outcome = await self.try_ack(user_id, chat_id, sequence)
        assert isinstance(outcome, Advanced), outcome
        return outcome

    async def read(self, user_id: UserId, chat_id: ChatId, sequence: int) -> Advanced:
        outcome = await self.try_read(user_id, chat_id, sequence)
        assert isinstance(outcome, Advanced), outcome
        return outcome

    async def _advance(self, advance: Advance) -> AdvanceOutcome:
        [outcome] = await self.storage.advance([advance], now_ms=self.now())
        return outcome

    async def entry(self, user_id: UserId, chat_id: ChatId) -> DigestEntry:
        """What the user's digest says about one chat."""
        page = await self.storage.digest(user_id, after=None, count_max=PLENTY)
        [entry] = [entry for entry in page.entries if entry.chat_id == chat_id]
        return entry

    async def positions(self, user_id: UserId, chat_id: ChatId) -> Positions:
        entry = await self.entry(user_id, chat_id)
        return Positions(entry.delivered, entry.read)

    # Events.

    def new_commits(self) -> list[tuple[Event, ...]]:
        """The events that the listener got since the last call."""
        commits = list(self.engine.commits)
        self.engine.commits.clear()
        return commits

    def new_events(self) -> list[Event]:
        return [event for commit in self.new_commits() for event in commit]


def taken(outcome: AppendOutcome) -> Appended:
    """The answer to a send that must have been stored."""
    assert isinstance(outcome, Appended), outcome
    return outcome
