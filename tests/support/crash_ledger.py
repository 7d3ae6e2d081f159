"""The ledger: what the store has promised, kept outside the store, and compared after a crash.

It knows nothing of the engine but its tables, which it reads directly, without the indexes that
the engine would use, through a connection of its own that cannot write.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from tests.support import history
from tests.support.crash_cast import Cast
from tests.support.crash_records import Fault, OnLine, Placed, Record
from tests.support.crash_snapshot import Snapshot
from tests.support.trace import check_history
from tests.support.trace_entries import is_stored_as_sent, subject_of
from tests.support.views import View, catch_up, counted, take_in, view_of
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import EntryKind, Message

FAULTS_MAX: Final = 20
"""How many faults are reported; more are not worth reading."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a message is, as an answer or a page told it."""

    message_id: MessageId
    sequence: int
    prev_sequence: int
    created_at_ms: int


class Device(msgspec.Struct):
    """What a user's device shows of a chat, and up to where it is complete. It outlives the server
    process that it syncs from."""

    view: View = msgspec.field(default_factory=dict)
    covered: int = 0


def place_of(message: Message | Placed) -> Place:
    return Place(message.message_id, message.sequence, message.prev_sequence, message.created_at_ms)


class Ledger:
    """Takes in records (`feed`), compares them with a snapshot (`faults_in`)."""

    def __init__(self, cast: Cast) -> None:
        self.answers = 0
        """How many sends got an answer with their place, retries included."""
        self.promises: dict[ClientMessageId, Place] = {}
        """Messages that a client knows to be stored, by an answer or because it has read them."""
        self.open: dict[ClientMessageId, history.Sent] = {}
        """Sends without an answer."""
        self.sends: dict[ClientMessageId, history.Sent] = {}
        """Everything that was ever sent, as it was sent first."""
        self._entries: list[history.Entry] = list(_first_members(cast))
        self._questions: dict[int, history.Question] = {}
        self._in_flight: Counter[ClientMessageId] = Counter()
        self._refused: set[ClientMessageId] = set()
        self._next_line: str | None = None
        self._lines: defaultdict[tuple[str, ChatId], list[ClientMessageId]] = defaultdict(list)
        self._asked: dict[tuple[str, str], Positions] = {}
        self._shown: dict[tuple[str, str], Positions] = {}
        # Whether a user may be a member: one value if the last change was confirmed, else both.
        self._members: dict[tuple[str, str], set[bool]] = {}
        self._devices: defaultdict[tuple[str, ChatId], Device] = defaultdict(Device)
        self._faults: list[str] = []

    def feed(self, record: Record) -> None:
        """Take in one record; the records must come in the order in which the load reports them."""
        if isinstance(record, OnLine):
            self._next_line = record.line
        elif isinstance(record, Fault):
            self._faults.append(record.sentence)
        elif isinstance(record, history.Question):
            self._entries.append(record)
            self._questions[record.op] = record
            self._ask(record)
        elif isinstance(record, history.Answer):
            self._entries.append(record)
            self._answer(self._questions.pop(record.op), record)
        elif isinstance(record, history.Published):
            self._entries.append(record)

    def kinds(self) -> Counter[str]:
        """How many promised entries there are of each kind."""
        known = [self.sends[key].amends for key in self.promises if key in self.sends]
        return Counter("message" if one is None else one.kind.value for one in known)

    def end_life(self) -> None:
        """The process has ended: its open questions get no answer any more."""
        self._entries.append(history.Died())
        self._questions.clear()
        self._lines.clear()
        self._in_flight.clear()

    def settle(self, snapshot: Snapshot) -> int:
        """Take in a snapshot of the store; return how many sends without an answer were stored.

        They are promised from now on: each client that reads, or retries, is told of them.
        """
        found = 0
        for message in snapshot.messages:
            key = message.client_message_id
            if key in self.open and key not in self.promises:
                self.promises[key] = place_of(message)
                found += 1
        return found

    def trace_faults(self, snapshot: Snapshot) -> list[str]:
        """Check every trace invariant over the whole history. Slow: for the end of a run."""
        violations = check_history(self._entries, snapshot.final_state())
        found = [f"{one.invariant}: {one.chat_id}: {one.found}" for one in violations]
        return [*found, *self._wrong_views(snapshot)][:FAULTS_MAX]

    def faults_in(self, snapshot: Snapshot) -> list[str]:
        """Every case in which the store does not keep a promise."""
        by_key = {message.client_message_id: message for message in snapshot.messages}
        faults = [
            *self._faults,
            *self._lost(by_key),
            *self._strange(snapshot.messages),
            *self._readable(snapshot.messages),
            *_broken_chains(snapshot.messages),
            *self._out_of_line(by_key),
            *self._wrong_positions(snapshot),
            *self._wrong_members(snapshot),
        ]
        return faults[:FAULTS_MAX]

    # What was asked and answered.

    def _ask(self, question: history.Question) -> None:
        pair = (question.user_id, question.chat_id)
        if isinstance(question, history.Sent):
            self._send(question)
        elif isinstance(question, history.AdvanceSent):
            wish = Positions(question.delivered, question.read)
            self._asked[pair] = self._asked.get(pair, NOWHERE).merged(wish)
        elif isinstance(question, history.MemberAdding | history.MemberRemoving):
            joins = isinstance(question, history.MemberAdding)
            self._members.setdefault(pair, {False}).add(joins)

    def _send(self, sent: history.Sent) -> None:
        key, line = sent.client_message_id, self._next_line
        self._next_line = None
        if key not in self.sends:
            self.sends[key] = sent
            if line is not None:
                self._lines[line, sent.chat_id].append(key)
        self._in_flight[key] += 1
        self._refused.discard(key)
        if key not in self.promises:
            self.open[key] = sent

    def _answer(self, question: history.Question, answer: history.Answer) -> None:
        pair = (question.user_id, question.chat_id)
        if isinstance(question, history.Sent):
            self._in_flight[question.client_message_id] -= 1
            if isinstance(answer, Placed):
                self.answers += 1
                self.open.pop(question.client_message_id, None)
                self._promise(question.client_message_id, place_of(answer))
            else:
                self._refuse(question)
        elif isinstance(answer, history.Synced):
            for message in answer.messages:
                self._promise(message.client_message_id, place_of(message))
            if isinstance(question, history.SyncAsked):
                self._show(question, answer)
        elif isinstance(answer, history.PositionShown):
            if not isinstance(answer, history.BoundaryShown):
                now = Positions(answer.delivered, answer.read)
                self._shown[pair] = self._shown.get(pair, NOWHERE).merged(now)
        elif isinstance(answer, history.MembershipDone):
            self._members[pair] = {isinstance(question, history.MemberAdding)}

    def _promise(self, key: ClientMessageId, place: Place) -> None:
        first = self.promises.setdefault(key, place)
        if first != place:
            self._faults.append(f"{key} was told as {first}, now as {place}")

    def _show(self, asked: history.SyncAsked, page: history.Synced) -> None:
        """Show a page on the user's device, if it continues what the device has."""
        device = self._devices[asked.user_id, asked.chat_id]
        if asked.after <= device.covered:
            for message in page.messages:
                if message.sequence > device.covered:
                    take_in(device.view, message, asked.user_id)
            device.covered = max(device.covered, page.synced_through)

    def _refuse(self, sent: history.Sent) -> None:
        key = sent.client_message_id
        # Another try of this send may still be under way, and may be accepted.
        if not self._in_flight[key]:
            self._refused.add(key)
            self.open.pop(key, None)
        # A later try of it is not bound to this place in the order.
        for (_, chat_id), keys in self._lines.items():
            if chat_id == sent.chat_id and key in keys:
                keys.remove(key)

    # What became of it.

    def _lost(self, by_key: dict[ClientMessageId, Message]) -> Iterable[str]:
        for key, place in self.promises.items():
            message = by_key.get(key)
            if message is None:
                yield f"lost: {key}, promised at {place}"
            elif place_of(message) != place:
                yield f"changed: {key}, promised at {place}, stored at {place_of(message)}"

    def _strange(self, messages: list[Message]) -> Iterable[str]:
        """Messages that are stored twice, or were never sent, or differ from what was sent."""
        counts = Counter([message.client_message_id for message in messages])
        yield from (f"{key} is there {count} times" for key, count in counts.items() if count > 1)
        for message in messages:
            key = message.client_message_id
            sent = self.sends.get(key)
            if sent is None:
                yield f"{key} is there, but nobody has sent it"
            elif (message.chat_id, message.sender_id) != (sent.chat_id, sent.user_id):
                yield f"{key} is in the wrong place: {message.chat_id}, {message.sender_id}"
            elif not is_stored_as_sent(message, sent):
                yield f"{key} has another text: {message.content[:80]!r} ({message.amends})"
            elif key in self._refused:
                yield f"{key} was refused, but is there at {place_of(message)}"

    def _readable(self, messages: list[Message]) -> Iterable[str]:
        """A promised deletion must have erased the texts of the message and of its edits; and
        without a deletion no text may be erased."""
        deleted: dict[tuple[ChatId, int | None], int] = {
            (sent.chat_id, sent.deletes): place.sequence
            for key, place in self.promises.items()
            if (sent := self.sends.get(key)) is not None and sent.deletes is not None
        }
        stored: dict[tuple[ChatId, int | None], int] = {
            (message.chat_id, message.amends.target): message.sequence
            for message in messages
            if message.amends is not None and message.kind is EntryKind.DELETE
        }
        for message in messages:
            subject = subject_of(message)
            deleted_by = deleted.get((message.chat_id, subject))
            if deleted_by is not None and (message.deleted_by != deleted_by or message.content):
                yield f"readable: {message.sequence} in {message.chat_id}, deleted by {deleted_by}"
            elif message.deleted_by != stored.get((message.chat_id, subject)):
                yield f"{message.sequence} in {message.chat_id} is erased without a deletion"

    def _wrong_views(self, snapshot: Snapshot) -> Iterable[str]:
        """Each device, once it has the rest, must show what all others show: the folded log."""
        logs = snapshot.final_state().messages
        for (user_id, chat_id), device in self._devices.items():
            rest = [one for one in logs.get(chat_id, ()) if one.sequence > device.covered]
            shown = counted(catch_up(device.view, rest, UserId(user_id)))
            wanted = counted(view_of(logs.get(chat_id, ()), UserId(user_id)))
            wrong = sorted(n for n in shown | wanted if shown.get(n) != wanted.get(n))
            if wrong:
                yield (
                    f"{user_id} sees {wrong[0]} in {chat_id} as {shown.get(wrong[0])}, "
                    f"not {wanted.get(wrong[0])} ({len(wrong)} such)"
                )

    def _out_of_line(self, by_key: dict[ClientMessageId, Message]) -> Iterable[str]:
        """What one connection sends to one chat is stored in that order, without a gap (P-13)."""
        for line, keys in self._lines.items():
            last, missing = 0, None
            for key in keys:
                message = by_key.get(key)
                if message is None:
                    # An entry about another one may have been refused, but not answered yet.
                    if self.sends[key].is_plain:
                        missing = missing or key
                elif missing is not None:
                    yield f"{line}: {key} is there, {missing} before it is not"
                elif message.sequence <= last:
                    yield f"{line}: {key} is at {message.sequence}, the one before at {last}"
                else:
                    last = message.sequence

    def _wrong_positions(self, snapshot: Snapshot) -> Iterable[str]:
        own: dict[tuple[str, str], int] = {}
        for message in snapshot.messages:
            own[message.sender_id, message.chat_id] = message.sequence
        for pair, shown in self._shown.items():
            found = snapshot.positions.get(pair, NOWHERE)
            if found.merged(shown) != found:
                yield f"the positions {pair} were shown as {shown} and are now {found}"
        for pair, found in snapshot.positions.items():
            asked = self._asked.get(pair, NOWHERE)
            bound = max(asked.delivered, asked.read, own.get(pair, 0))
            if max(found.delivered, found.read) > bound:
                yield f"the positions {pair} are {found}, but nobody has acknowledged above {bound}"

    def _wrong_members(self, snapshot: Snapshot) -> Iterable[str]:
        for pair, possible in self._members.items():
            if (pair in snapshot.members) not in possible:
                yield f"membership {pair} is {pair in snapshot.members}, not one of {possible}"


def _broken_chains(messages: list[Message]) -> Iterable[str]:
    heads: dict[ChatId, int] = {}
    for message in messages:
        head = heads.get(message.chat_id, 0)
        if message.prev_sequence != head or message.sequence <= head:
            yield f"{message.message_id} comes after {head} in its chat: {place_of(message)}"
        heads[message.chat_id] = message.sequence


def _first_members(cast: Cast) -> Iterable[history.Entry]:
    """The members that a chat is made with. No user does anything in a chat before it is made."""
    pairs = [(chat_id, user_id) for chat_id, *pair in cast.directs for user_id in pair]
    pairs += [(chat_id, user_id) for chat_id, members in cast.groups for user_id in members]
    for op, (chat_id, user_id) in enumerate(pairs, start=1):
        yield history.MemberAdding(op=-op, chat_id=chat_id, user_id=user_id)
        yield history.MembershipDone(op=-op)
