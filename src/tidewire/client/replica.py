"""What a device knows of one chat: how far it holds everything, and everyone's positions. PURE.

The chain: an entry continues what is held if `prev_sequence` ≤ cursor < `sequence`. A hole in the
numbers means nothing; an entry whose predecessor is not held waits until the missing entries are
fetched. So `offer` always returns the next part of a complete, ordered prefix. The chain treats all
kinds of entries alike; only the unread count depends on the kind.
"""

from collections.abc import Sequence

import msgspec

from tidewire.client.entries import Item, kind_of, may_be_unread, mentions_user
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry, Tick, tick
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import UNREAD_MAX
from tidewire.domain.messages import EntryKind
from tidewire.wire.server_frames import StatusUpdatePayload


class ReplicaRecord(msgspec.Struct, kw_only=True):
    """What the store keeps of a chat: the columns of its table `chats`, in their order."""

    chat_id: ChatId
    chat_type: ChatType
    name: str | None = None
    membership_version: int = 0
    is_member: bool = True
    start: int = 0
    """Where this device began: older messages are fetched on demand and never count."""
    cursor: int = 0
    """Everything from `start` up to here is held. In the store: everything up to here is stored."""
    head: int = 0
    """The last entry that the server is known to have."""
    delivered: int = 0
    read: int = 0
    others_delivered: int = 0
    others_read: int = 0
    unread: int = 0
    mentions_unread: int = 0


class Replica(ReplicaRecord, kw_only=True, eq=False):
    """One chat on one device."""

    waiting_max: int
    stored: int = 0
    """Everything up to here is on the disk; at most `cursor`, up to which it was received."""
    seen: int = 0
    """The last entry that the application got: a message that is sent now says it has seen it."""
    hidden_through: int | None = None
    """The chat is hidden until there is a message above this one; known from the digest."""
    counted_through: int = 0
    """Entries up to here are in `unread` already: messages, and deletions of messages."""
    counts_told: int = 0
    """How often the server has sent the unread count: a change that was computed for an earlier
    count does not apply to a later one."""
    waiting: dict[int, Item] = {}
    """Entries whose predecessor is missing, by sequence."""
    is_in_doubt: bool = False
    """The server may have fewer entries than this device: only a sync can tell."""
    generation: int = 0
    """Rises when the replica begins again; what is stored for an earlier one does not count."""
    others_through: int = 0
    """The last entry of another user that was received."""
    told_at_ms: int | None = None
    """When the last acknowledgement was sent."""
    # What this connection has done so far.
    acked: int = 0
    read_told: int = 0
    is_listed: bool = False
    is_caught_up: bool = False
    sends_flying: int = 0
    own_through: int = 0
    """The last own entry that the server has answered, whether it is held here yet or not."""

    def __post_init__(self) -> None:
        self.stored = self.counted_through = self.cursor
        self.head = max(self.head, self.cursor)
        self.seen = self.read

    def disconnected(self) -> None:
        self.is_listed = self.is_caught_up = False
        self.sends_flying = self.own_through = 0

    def record(self) -> ReplicaRecord:
        """The part of it that may be written to the disk, with the cursor that is stored there."""
        record = ReplicaRecord(
            **{name: getattr(self, name) for name in ReplicaRecord.__struct_fields__}
        )
        record.cursor = self.stored
        return record

    # The chain.

    @property
    def is_behind(self) -> bool:
        """A sync is needed: entries are missing here, or may be missing on the server."""
        return self.cursor < self.head or self.is_in_doubt

    @property
    def is_own_missing(self) -> bool:
        """The server has an entry of ours, and an entry before it is missing here."""
        return self.own_through > self.cursor

    def offer(self, item: Item) -> Sequence[Item]:
        """Add one entry; returns those of it and the waiting ones that continue the prefix."""
        sequence = item.sequence
        if sequence <= self.cursor:
            return ()
        if sequence > self.head:
            self.head = sequence
        if item.prev_sequence > self.cursor:
            if len(self.waiting) < self.waiting_max:
                self.waiting[sequence] = item
            return ()
        self.cursor = sequence
        return [item, *self._continued()] if self.waiting else (item,)

    def offer_page(self, items: Sequence[Item], through: int) -> Sequence[Item]:
        """Add a page that says it is complete up to `through`; returns what continues the prefix.

        A page whose own entries are no chain is taken up to the first missing entry.
        """
        cursor = self.cursor
        taken: list[Item] = []
        is_whole = True
        for item in items:
            if item.sequence <= cursor:
                continue
            if item.prev_sequence > cursor:
                is_whole = False
                break
            cursor = item.sequence
            taken.append(item)
        if is_whole and through > cursor:
            cursor = through
        self.cursor = cursor
        self.head = max(self.head, cursor)
        taken.extend(self._continued())
        return taken

    def _continued(self) -> list[Item]:
        taken: list[Item] = []
        for sequence in sorted(self.waiting):
            item = self.waiting[sequence]
            if sequence > self.cursor:
                if item.prev_sequence > self.cursor:
                    break
                self.cursor = sequence
                taken.append(item)
            del self.waiting[sequence]
        return taken

    def restart(self, head: int) -> None:
        """Forget how far this device was: the server's store is another one now."""
        self.start = min(self.start, head)
        self.cursor = self.stored = self.start
        self.head = max(head, self.start)
        self.counted_through = head
        self.waiting.clear()
        self.own_through = 0
        # Sync even if there is nothing to fetch: the answer tells what the server has lost.
        self.is_in_doubt = True
        self.generation += 1

    def leave(self) -> None:
        """The user is no member any more. What is held stays, and nothing is missing."""
        self.is_member = False
        self.waiting.clear()
        self.own_through = 0
        self.stop_syncing()

    def stop_syncing(self) -> None:
        """Treat the entries that are held as complete."""
        self.head = self.cursor
        self.is_in_doubt = False

    # Numbers: they merge, and never go back.

    def merge_digest(self, entry: DigestEntry) -> None:
        self.membership_version = entry.membership_version
        self.is_member = True
        self.hidden_through = entry.head if entry.is_hidden else None
        self.is_in_doubt |= entry.head < self.cursor
        self.head = max(self.head, entry.head)
        self.delivered = max(self.delivered, entry.delivered)
        self.others_delivered = max(self.others_delivered, entry.others_delivered)
        self.others_read = max(self.others_read, entry.others_read)
        if entry.read >= self.read:
            # Otherwise the server does not know our last read yet, and its count is too old.
            self.read = entry.read
            self.unread = entry.unread
            self.mentions_unread = entry.mentions_unread
            self.counts_told += 1
        self.counted_through = max(self.counted_through, entry.head)

    def merge_status(self, status: StatusUpdatePayload) -> None:
        self.others_delivered = max(self.others_delivered, status.others_delivered)
        self.others_read = max(self.others_read, status.others_read)
        if status.own_delivered is not None:
            self.delivered = max(self.delivered, status.own_delivered)
        if status.own_read is not None and status.own_read >= self.read:
            self.read = status.own_read
            if status.unread is not None:
                self.unread = status.unread
                self.mentions_unread = status.mentions_unread or 0
                self.counts_told += 1

    def count_unread(self, items: Sequence[Item], own_id: str) -> list[int]:
        """Count entries that were just received and continue what is held. Returns the deletions
        among them that are new to the count: the store finds what they take away (`uncount`)."""
        deletions: list[int] = []
        for item in items:
            if item.sender_id != own_id:
                self.others_through = item.sequence
            if item.sequence <= self.counted_through:
                continue
            self.counted_through = item.sequence
            if item.sequence > self.read and may_be_unread(item, own_id):
                self.unread = min(self.unread + 1, UNREAD_MAX)
                if item.mentions and mentions_user(item.mentions, own_id):
                    self.mentions_unread = min(self.mentions_unread + 1, UNREAD_MAX)
            elif item.kind is not None and kind_of(item) is EntryKind.DELETE:
                deletions.append(item.sequence)
        return deletions

    def uncount(self, sequence: int, *, is_mention: bool) -> bool:
        """A message of another user was deleted; True if it was unread. A count at its bound means
        "this many or more", and stays."""
        if sequence <= self.read:
            return False
        if 0 < self.unread < UNREAD_MAX:
            self.unread -= 1
        if is_mention and 0 < self.mentions_unread < UNREAD_MAX:
            self.mentions_unread -= 1
        return True

    def read_through(self, sequence: int) -> bool:
        """The user has seen everything up to here, if it is held; True if that is new."""
        sequence = min(sequence, self.cursor)
        self.seen = max(self.seen, sequence)
        if sequence <= self.read:
            return False
        self.read = sequence
        return True

    def tick(self, sequence: int) -> Tick:
        """The tick of an own message that the server has."""
        return tick(sequence, others_delivered=self.others_delivered, others_read=self.others_read)


def replica_from(record: ReplicaRecord, *, waiting_max: int) -> Replica:
    """A replica that begins with what the store has of it."""
    return Replica(**msgspec.structs.asdict(record), waiting_max=waiting_max)


def first_record(
    chat_id: ChatId,
    chat_type: ChatType,
    *,
    start: int,
    head: int,
    name: str | None = None,
    membership_version: int = 0,
) -> ReplicaRecord:
    """A chat that is new to this device: it holds nothing above `start`, which is the position that
    the user had reached on any device, or joined at. Older messages are fetched on demand."""
    start = min(start, head)
    return ReplicaRecord(
        chat_id=chat_id,
        chat_type=chat_type,
        name=name,
        membership_version=membership_version,
        start=start,
        cursor=start,
        head=head,
    )
