"""What a device knows of one chat: how far it holds everything, and everybody's numbers. PURE.

The chain: a message continues what is held if `prev_sequence` ≤ cursor < `sequence`. A hole in the
numbers means nothing; a message whose predecessor is not held waits, and what is missing is
fetched. So what is given out by `offer` is always the next part of a complete, ordered prefix.
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import UNREAD_MAX
from tidewire.wire.server_frames import MessagePayload, StatusUpdatePayload, SyncItem

Item = SyncItem | MessagePayload
"""A message as it came: by a page, or by itself."""


class PlaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a place from one life to the next."""

    chat_id: ChatId
    chat_type: ChatType
    name: str | None = None
    membership_version: int = 0
    is_member: bool = True
    start: int = 0
    cursor: int = 0
    head: int = 0
    delivered: int = 0
    read: int = 0
    others_delivered: int = 0
    others_read: int = 0
    unread: int = 0


class Place:
    """One chat on one device.

    `start` is where this device began: older messages are fetched on demand and never count.
    `cursor` is the end of what was received without a hole, `stored` of what is on the disk.
    """

    __slots__ = (
        "acked",
        "chat_id",
        "chat_type",
        "counted_through",
        "cursor",
        "delivered",
        "head",
        "hidden_through",
        "is_caught_up",
        "is_in_doubt",
        "is_listed",
        "is_member",
        "life",
        "membership_version",
        "name",
        "others_delivered",
        "others_read",
        "others_through",
        "own_through",
        "read",
        "read_told",
        "seen",
        "sends_flying",
        "start",
        "stored",
        "told_at_ms",
        "unread",
        "waiting",
        "waiting_max",
    )

    def __init__(self, record: PlaceRecord, *, waiting_max: int) -> None:
        self.chat_id = record.chat_id
        self.chat_type = record.chat_type
        self.name = record.name
        self.membership_version = record.membership_version
        self.is_member = record.is_member
        self.start = record.start
        self.cursor = record.cursor
        self.stored = record.cursor
        self.head = max(record.head, record.cursor)
        self.delivered = record.delivered
        self.read = record.read
        self.seen = record.read
        """What the application was shown: what a reply written now has seen."""
        self.others_delivered = record.others_delivered
        self.others_read = record.others_read
        self.unread = record.unread
        self.hidden_through: int | None = None
        """Hidden until there is a message above this one; known from the digest."""
        self.counted_through = self.cursor
        """Messages up to here are in `unread` already, if they are unread."""
        self.waiting: dict[int, Item] = {}
        self.waiting_max = waiting_max
        self.is_in_doubt = False
        """The server may have less than is held here: only a sync can tell."""
        self.life = 0
        """Rises when the place begins again; what is stored for an earlier life does not count."""
        self.others_through = 0
        """The last message of somebody else that was received."""
        self.told_at_ms: int | None = None
        """When the server was last told what is held."""
        # What this connection has done so far.
        self.acked = 0
        self.read_told = 0
        self.is_listed = False
        self.is_caught_up = False
        self.sends_flying = 0
        self.own_through = 0
        """The last own message that was answered, held here or not yet."""

    def disconnected(self) -> None:
        self.is_listed = self.is_caught_up = False
        self.sends_flying = self.own_through = 0

    def record(self) -> PlaceRecord:
        return PlaceRecord(
            chat_id=self.chat_id,
            chat_type=self.chat_type,
            name=self.name,
            membership_version=self.membership_version,
            is_member=self.is_member,
            start=self.start,
            cursor=self.stored,
            head=self.head,
            delivered=self.delivered,
            read=self.read,
            others_delivered=self.others_delivered,
            others_read=self.others_read,
            unread=self.unread,
        )

    # The chain.

    @property
    def is_behind(self) -> bool:
        """A sync is needed: there are messages that are not held, or there may be a difference."""
        return self.cursor < self.head or self.is_in_doubt

    @property
    def is_own_missing(self) -> bool:
        """The server has a message of ours, and one before it is on its way to us."""
        return self.own_through > self.cursor

    def offer(self, item: Item) -> Sequence[Item]:
        """Take one message; what of it and of what waited continues the prefix, in order."""
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
        """Take a page that says that it is complete up to `through`; what continues the prefix.

        A page whose own messages are no chain is taken up to its first hole.
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

    def restarted(self, head: int) -> None:
        """Forget how far this device was: the server's store is another one now."""
        self.start = min(self.start, head)
        self.cursor = self.stored = self.start
        self.head = max(head, self.start)
        self.counted_through = head
        self.waiting.clear()
        self.own_through = 0
        # Also if there is nothing to fetch, the server's answer tells what it has lost.
        self.is_in_doubt = True
        self.life += 1

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
            # A read of ours that the server has not got yet makes its count old news.
            self.read = entry.read
            self.unread = entry.unread
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

    def count_unread(self, items: Sequence[Item], own_id: str) -> None:
        """Count what was just received, and continues what is held."""
        for item in items:
            is_own = item.sender_id == own_id
            if not is_own:
                self.others_through = item.sequence
            if item.sequence > self.counted_through:
                self.counted_through = item.sequence
                if not is_own and item.sequence > self.read:
                    self.unread = min(self.unread + 1, UNREAD_MAX)


def place_of(entry: DigestEntry, *, waiting_max: int) -> Place:
    """A chat that this device did not know. It starts where its user had got to, on whatever
    device, or where he joined; what is older comes on demand."""
    start = min(max(entry.delivered, entry.joined_sequence), entry.head)
    record = PlaceRecord(
        chat_id=entry.chat_id,
        chat_type=entry.chat_type,
        start=start,
        cursor=start,
        head=entry.head,
    )
    place = Place(record, waiting_max=waiting_max)
    place.merge_digest(entry)
    return place
