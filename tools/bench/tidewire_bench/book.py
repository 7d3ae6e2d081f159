"""Checks what many readers of many chats get as it arrives, and remembers little. PURE.

A sender has at most one message under way in a chat and numbers them from 0, so each reader has to
meet the numbers of each sender one after the other, none missing and none twice. The
`prev_sequence` chain shows what is missing between senders. Which message stands at which sequence
is remembered only until every reader of the chat is past it.
"""

from typing import Final

from tidewire_bench.changes import Deletions
from tidewire_bench.frames import Item, number_of, sender_of
from tidewire_bench.ledger import Faults

HELD_MAX: Final = 10_000
"""How many messages of a reader may wait for their predecessor."""
SWEEP_AFTER: Final = 500
"""How many messages of a chat come between two sweeps of those that all readers have passed."""


class ChatBook:
    """One chat: which message has which sequence, and how far each reader has got."""

    __slots__ = ("_faults", "_keeps_all", "_noted", "acked", "chat_id", "head", "readers", "truth")

    def __init__(self, chat_id: str, faults: Faults, *, keeps_all: bool) -> None:
        self.chat_id = chat_id
        self.head = 0
        """The highest sequence that any reader has met."""
        self.acked: dict[int, int] = {}
        """The highest number of each sender that was acknowledged."""
        self.truth: dict[int, str] = {}
        self.readers: set[Reader] = set()
        self._faults = faults
        self._keeps_all = keeps_all
        self._noted = 0

    def note(self, sequence: int, key: str) -> None:
        """Record that this message has this sequence; a fault if another message has it already."""
        known = self.truth.setdefault(sequence, key)
        if known != key:
            self._faults.add(f"sequence {sequence} of {self.chat_id} is both {known} and {key}")
        self.head = max(self.head, sequence)
        self._noted += 1
        if self._noted >= SWEEP_AFTER and not self._keeps_all:
            self.sweep()

    def promise(self, sender: int, key: str, sequence: int) -> None:
        """This message of the sender was acknowledged."""
        self.note(sequence, key)
        self.acked[sender] = max(self.acked.get(sender, -1), number_of(key))

    def sweep(self) -> None:
        """Forget what every reader has passed."""
        self._noted = 0
        floor = min((reader.last for reader in self.readers), default=self.head)
        self.truth = {at: key for at, key in self.truth.items() if at > floor}


class Book:
    """All chats."""

    def __init__(self, faults: Faults, *, keeps_all: bool = False) -> None:
        self.faults = faults
        self.chats: dict[str, ChatBook] = {}
        self.acked_count = 0
        self.taken_count = 0
        self.deletions = Deletions()
        self._keeps_all = keeps_all

    def open(self, chat_id: str, name: str, *, sender: int, joined: int) -> "Reader":
        """Add a reader that has to get everything above `joined`."""
        chat = self.chats.get(chat_id)
        if chat is None:
            chat = self.chats[chat_id] = ChatBook(chat_id, self.faults, keeps_all=self._keeps_all)
        reader = Reader(self, chat, name, sender=sender, joined=joined)
        chat.readers.add(reader)
        return reader

    def close(self, reader: "Reader") -> None:
        """The reader is not a member any more; a chat without readers is forgotten."""
        reader.chat.readers.discard(reader)
        if not reader.chat.readers and not self._keeps_all:
            self.chats.pop(reader.chat.chat_id, None)

    @property
    def remembered_count(self) -> int:
        return sum(len(chat.truth) for chat in self.chats.values())

    def check_complete(self) -> None:
        """Check that all readers have everything, after the wait for all messages."""
        for chat in self.chats.values():
            for reader in chat.readers:
                reader.check_complete()


class Reader:
    """One device in one chat."""

    __slots__ = (
        "_book",
        "_gap_since_s",
        "_held",
        "_joined",
        "_numbers",
        "_own",
        "_pushed",
        "_synced",
        "chat",
        "cursor",
        "last",
        "name",
        "sender",
    )

    def __init__(self, book: Book, chat: ChatBook, name: str, *, sender: int, joined: int) -> None:
        self.chat = chat
        self.name = name
        self.sender = sender
        self.last = joined
        """The last sequence of the chain that was taken."""
        self.cursor = joined
        """Where to sync from: at or above `last`."""
        self._book = book
        self._gap_since_s: float | None = None
        """Since when it is known that something is missing."""
        self._joined = joined
        self._held: dict[int, Item] = {}
        self._numbers: dict[int, int] = {}
        self._own: tuple[int, int] = (-1, 0)
        """Number and sequence of the last own message that arrived."""
        self._pushed = 0
        self._synced = 0

    def connected(self) -> None:
        """A new connection: pushes begin anew, and may overlap with pages."""
        self._pushed = 0
        self._synced = 0
        self._held.clear()
        self._gap_since_s = None

    def pushed(self, item: Item, *, is_awaiting: bool) -> None:
        """`is_awaiting`: an own ack, or a page, may still bring the messages before this one."""
        self.chat.note(item.sequence, item.client_message_id)
        if item.sequence <= self._pushed:
            self._fault(f"was pushed sequence {item.sequence} after {self._pushed}")
        self._pushed = item.sequence
        if item.sequence > self.last:
            self._join(item)
            self.check_held(is_awaiting=is_awaiting)
        elif item.sequence > self._synced and sender_of(item.client_message_id) != self.sender:
            self._fault(f"got sequence {item.sequence} again after {self.last}")

    def paged(self, items: list[Item], synced_through: int) -> None:
        """Take a page of messages above `cursor`."""
        for item in items:
            self.chat.note(item.sequence, item.client_message_id)
            if item.sequence > self.last:
                if not self._continues(item):
                    self._fault(
                        f"was given a page with sequence {item.sequence}, whose predecessor is "
                        f"{item.prev_sequence}, after {self.last}"
                    )
                self._take(item)
        self._release()
        self._synced = max(self._synced, synced_through)
        self.cursor = max(self.cursor, synced_through, self.last)

    def acked(
        self, sequence: int, prev_sequence: int, key: str, *, is_awaiting: bool = False
    ) -> None:
        """An own message was acknowledged: it joins the chain as if it had been pushed."""
        self.chat.promise(self.sender, key, sequence)
        self._book.acked_count += 1
        number = number_of(key)
        if sequence > self.last:
            self._join(Item(sequence, prev_sequence, key))
            self.check_held(is_awaiting=is_awaiting)
        elif self._own != (number, sequence):
            self._fault(
                f"was acknowledged message {number} as sequence {sequence}, but had met "
                f"{self._own[0]} as {self._own[1]}"
            )

    def check_held(self, *, is_awaiting: bool) -> None:
        """Report a held push if no ack or page can bring its predecessor: pushes come in order.

        An own message is no fault: its ack may overtake the push before it.
        """
        if is_awaiting or not self._held:
            return
        others = [i for i in self._held.values() if sender_of(i.client_message_id) != self.sender]
        if others:
            first = min(others, key=lambda item: item.sequence)
            self._fault(
                f"got sequence {first.sequence}, whose predecessor is {first.prev_sequence}, "
                f"after {self.last}"
            )
            # Reported once; the messages that follow are judged on their own.
            self._take(first)
            self._release()

    def check_gap(self, now_s: float, patience_s: float) -> None:
        """Report a predecessor that does not arrive soon after a message that has arrived."""
        if not self._held:
            return
        if self._gap_since_s is None:
            self._gap_since_s = now_s
        elif now_s - self._gap_since_s > patience_s:
            first = min(self._held.values(), key=lambda item: item.sequence)
            self._fault(f"waits for sequence {first.prev_sequence} after {self.last}")
            self._gap_since_s = now_s

    def check_complete(self) -> None:
        if self.last != self.chat.head:
            self._fault(f"ends at sequence {self.last} of {self.chat.head}")
        for sender, number in self.chat.acked.items():
            met = self._numbers.get(sender, -1)
            if met < number and (self._joined == 0 or sender in self._numbers):
                self._fault(
                    f"never got message {number} of sender {sender}, which was acknowledged; "
                    f"the last was {met}"
                )

    def _join(self, item: Item) -> None:
        if self._continues(item):
            self._take(item)
            self._release()
        elif len(self._held) >= HELD_MAX:
            self._fault(f"holds {HELD_MAX} messages that do not continue {self.last}")
            self._held.clear()
        else:
            self._held[item.prev_sequence] = item

    def _continues(self, item: Item) -> bool:
        if self.last == self._joined and not self._numbers:
            return item.prev_sequence <= self.last
        return item.prev_sequence == self.last

    def _release(self) -> None:
        """Take the held messages that continue the chain now."""
        while (item := self._held.pop(self.last, None)) is not None:
            self._take(item)
        if self._held:
            # Messages that pages have brought meanwhile need not be held any more.
            self._held = {p: item for p, item in self._held.items() if item.sequence > self.last}
        self._gap_since_s = None

    def _take(self, item: Item) -> None:
        key = item.client_message_id
        sender, number = sender_of(key), number_of(key)
        before = self._numbers.get(sender)
        if before is None and self._joined > 0:
            # Messages from before this reader joined are not meant for it.
            before = number - 1
        expected = 0 if before is None else before + 1
        if number != expected:
            self._fault(f"got message {number} of sender {sender}, not {expected}")
        self._numbers[sender] = number
        if sender == self.sender:
            self._own = number, item.sequence
        self.last = item.sequence
        self.cursor = max(self.cursor, self.last)
        self._book.taken_count += 1

    def _fault(self, what: str) -> None:
        self._book.faults.add(f"{self.name} in {self.chat.chat_id} {what}")
