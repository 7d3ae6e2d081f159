"""Events of commits for tests of publishing, and an outbox in memory. Holds no test."""

from collections.abc import Sequence

import msgspec

from tidewire.domain.chats import Chat, ChatType
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import ChatRenamed, LoggedEvent, MessageAppended
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.domain.outbox import (
    Lease,
    LeaseTable,
    OutboxKey,
    OutboxRow,
    PersistedMessages,
    Unreadable,
    key_of_commit,
)
from tidewire.ports.event_log import Outbox

ANNA = UserId("user_anna")
CHAT = ChatId("chat_1")


def a_message(sequence: int, chat_id: ChatId = CHAT) -> MessageAppended:
    stored = Message(
        chat_id=chat_id,
        sequence=sequence,
        prev_sequence=sequence - 1,
        message_id=MessageId(f"msg_{sequence}"),
        sender_id=ANNA,
        client_message_id=ClientMessageId("00000000-0000-4000-8000-000000000001"),
        content="hello",
        content_type="text/plain",
        created_at_ms=1,
    )
    return MessageAppended(stored, 1, None)


def amending(amends: Amendment, sequence: int, content: str = "") -> MessageAppended:
    """An edit, a deletion or a reaction."""
    event = a_message(sequence)
    entry = msgspec.structs.replace(event.message, amends=amends, content=content)
    return msgspec.structs.replace(event, message=entry)


def a_deletion(target: int, sequence: int) -> MessageAppended:
    return amending(Amendment(kind=EntryKind.DELETE, target=target), sequence)


def a_rename(version: int, chat_id: ChatId = CHAT) -> ChatRenamed:
    chat = Chat(
        chat_id=chat_id,
        chat_type=ChatType.GROUP,
        name="team",
        created_by=ANNA,
        created_at_ms=1,
        updated_at_ms=1,
        membership_version=version,
        member_count=2,
        head=3,
    )
    return ChatRenamed(chat, ANNA, 1)


class MemoryOutbox:
    """An outbox in dicts. `is_down` makes it fail; `hidden` rows do not show all their
    messages; `broken` ones cannot be read."""

    def __init__(self) -> None:
        self.commits: dict[OutboxKey, tuple[int, list[LoggedEvent]]] = {}
        self.relays: dict[str, int] = {}
        self.leases: dict[int, Lease] = {}
        self.hidden: set[OutboxKey] = set()
        self.broken: set[OutboxKey] = set()
        self.is_down = False
        self.deletes = 0
        self.doubtful: set[int] = set()

    def commit(self, events: Sequence[LoggedEvent], at_ms: int = 0) -> OutboxKey:
        key = key_of_commit(events)
        self.commits[key] = (at_ms, list(events))
        return key

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("the test says so")

    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        self._check()
        keys = sorted(
            (key for key in self.commits if key.shard == shard and key.row > (after or "")),
            key=lambda key: key.row,
        )
        return [self._row(key) for key in keys[:count_max]]

    def _row(self, key: OutboxKey) -> OutboxRow:
        if key in self.broken:
            return OutboxRow(key, 0, Unreadable("KeyError"))
        at_ms, events = self.commits[key]
        first = events[0]
        if not isinstance(first, MessageAppended):
            return OutboxRow(key, at_ms, first)
        sequences = tuple(
            event.message.sequence for event in events if isinstance(event, MessageAppended)
        )
        content = PersistedMessages(first.message.chat_id, sequences, 1, (None,) * len(sequences))
        return OutboxRow(key, at_ms, content)

    async def outbox_events(self, row: OutboxRow) -> list[LoggedEvent] | None:
        self._check()
        return None if row.key in self.hidden else self.commits[row.key][1]

    async def forget_published(self, keys: Sequence[OutboxKey]) -> None:
        self._check()
        self.deletes += 1
        for key in keys:
            self.commits.pop(key, None)

    def take_doubtful(self) -> set[int]:
        doubtful, self.doubtful = self.doubtful, set()
        return doubtful

    async def lease_table(self, relay_id: str, *, until_ms: int, now_ms: int) -> LeaseTable:
        self._check()
        self.relays[relay_id] = until_ms
        return LeaseTable(
            tuple(name for name, until in self.relays.items() if until > now_ms),
            tuple(lease for lease in self.leases.values() if lease.until_ms > now_ms),
        )

    async def lease_shard(self, shard: int, relay_id: str, *, until_ms: int, now_ms: int) -> bool:
        self._check()
        lease = self.leases.get(shard)
        if lease is not None and lease.owner != relay_id and lease.until_ms > now_ms:
            return False
        self.leases[shard] = Lease(shard, relay_id, until_ms)
        return True

    async def release_shards(self, shards: Sequence[int], relay_id: str) -> None:
        self._check()
        for shard in shards:
            if shard in self.leases and self.leases[shard].owner == relay_id:
                del self.leases[shard]

    async def leave_relays(self, relay_id: str) -> None:
        self._check()
        self.relays.pop(relay_id, None)


_CONFORMS: type[Outbox] = MemoryOutbox
