"""Histories for the tests of trace checks: a sound one that a test can bend, and short words."""

from itertools import count

from msgspec.structs import replace

from tests.support.history import (
    Acked,
    AdvanceAcked,
    AdvanceSent,
    Answer,
    BoundaryAsked,
    BoundaryShown,
    Entry,
    FinalState,
    MemberAdding,
    MemberRemoving,
    MembershipDone,
    MemberShown,
    PositionAsked,
    PositionShown,
    Question,
    Refused,
    Sent,
    SummaryAsked,
    SummaryShown,
    SyncAsked,
    Synced,
    TextsAsked,
    TextsShown,
)
from tests.support.trace import check_history
from tests.support.trace_entries import subject_of
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message

CHAT = ChatId("chat_1")
ANN, BOB, EVE = UserId("user_ann"), UserId("user_bob"), UserId("user_eve")


class Story:
    """Entries and the state they end in. Every method asks and is answered at once, unless it says
    otherwise; the state is what the teller makes of it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.messages: list[Message] = []
        self.counters: dict[ChatId, int] = {CHAT: 0}
        self.positions: dict[tuple[UserId, ChatId], Positions] = {}
        self.leaves_gaps = False
        self._ops = count(1)

    def violated(self) -> set[str]:
        """The names of everything that this story violates."""
        final = FinalState(
            messages={CHAT: self.messages},
            counters=self.counters,
            positions=self.positions,
            leaves_gaps=self.leaves_gaps,
        )
        return {violation.invariant for violation in check_history(self.entries, final)}

    def ask(self, question: Question) -> int:
        self.entries.append(question)
        return question.op

    def answer(self, answer: Answer) -> None:
        self.entries.append(answer)

    def op(self) -> int:
        return next(self._ops)

    # Messages.

    def store(self, sequence: int, key: str, user: UserId = ANN, text: str = "hi") -> Message:
        """A message is in the store, with the counter at its sequence."""
        prev = self.messages[-1].sequence if self.messages else 0
        message = Message(
            CHAT,
            sequence,
            prev,
            MessageId(f"msg_{sequence}"),
            user,
            ClientMessageId(key),
            text,
            "text/plain",
            1_000 + sequence,
        )
        self.messages.append(message)
        self.counters[CHAT] = max(self.counters[CHAT], sequence)
        return message

    def begin_send(
        self, key: str, user: UserId = ANN, text: str = "hi", amends: Amendment | None = None
    ) -> int:
        sent = Sent(
            op=self.op(),
            chat_id=CHAT,
            user_id=user,
            client_message_id=ClientMessageId(key),
            content=text,
            amends=amends,
        )
        return self.ask(sent)

    def ack(self, op: int, sequence: int, *, deduplicated: bool = False) -> None:
        self.answer(
            Acked(
                op=op,
                sequence=sequence,
                message_id=MessageId(f"msg_{sequence}"),
                created_at_ms=1_000 + sequence,
                deduplicated=deduplicated,
            )
        )

    def send(self, sequence: int, key: str, user: UserId = ANN, text: str = "hi") -> None:
        """A message is sent, stored and acknowledged."""
        op = self.begin_send(key, user, text)
        self.store(sequence, key, user, text)
        self.ack(op, sequence)

    def amend(
        self,
        sequence: int,
        kind: EntryKind,
        target: int = 1,
        text: str = "",
        *,
        erases: bool = True,
    ) -> None:
        """Ann changes a message; a deletion leaves the texts only if that is told."""
        amends = Amendment(kind=kind, target=target)
        op = self.begin_send(f"k{sequence}", ANN, text, amends)
        self.store(sequence, f"k{sequence}", ANN, text)
        self.messages[-1] = replace(self.messages[-1], amends=amends)
        self.ack(op, sequence)
        if kind is EntryKind.DELETE and erases:
            self.messages = [
                replace(one, content="", mentions=(), deleted_by=sequence)
                if subject_of(one) == target
                else one
                for one in self.messages
            ]

    def look_at_texts(self, texts: dict[int, str], way: str = "history") -> None:
        op = self.ask(TextsAsked(op=self.op(), chat_id=CHAT, user_id=BOB, way=way))
        self.answer(TextsShown(op=op, texts=texts))

    def refuse(self, op: int, code: ErrorCode = ErrorCode.NOT_A_MEMBER) -> None:
        self.answer(Refused(op=op, code=code))

    def sync(
        self,
        after: int,
        *messages: Message,
        through: int | None = None,
        has_more: bool = False,
        user: UserId = BOB,
    ) -> None:
        op = self.ask(SyncAsked(op=self.op(), chat_id=CHAT, user_id=user, after=after))
        last = messages[-1].sequence if messages else after
        end = last if through is None else through
        self.answer(Synced(op=op, messages=messages, synced_through=end, has_more=has_more))

    # Positions.

    def advance(
        self,
        delivered: int,
        read: int = 0,
        *,
        shown: tuple[int, int] | None = None,
        moved: bool = True,
        user: UserId = BOB,
    ) -> None:
        asked = AdvanceSent(
            op=self.op(), chat_id=CHAT, user_id=user, delivered=delivered, read=read
        )
        op = self.ask(asked)
        now = (max(delivered, read), read) if shown is None else shown
        self.answer(AdvanceAcked(op=op, delivered=now[0], read=now[1], moved=moved))
        self.positions[user, CHAT] = Positions(*now)

    def look(self, delivered: int, read: int = 0, user: UserId = BOB) -> None:
        op = self.ask(PositionAsked(op=self.op(), chat_id=CHAT, user_id=user))
        self.answer(PositionShown(op=op, delivered=delivered, read=read))

    def boundary(self, delivered: int, read: int = 0, user: UserId = ANN) -> None:
        op = self.ask(BoundaryAsked(op=self.op(), chat_id=CHAT, user_id=user))
        self.answer(BoundaryShown(op=op, delivered=delivered, read=read))

    def ask_summary(self, sequence: int, user: UserId = ANN) -> int:
        asked = SummaryAsked(op=self.op(), chat_id=CHAT, user_id=user, sequence=sequence)
        return self.ask(asked)

    def show_summary(
        self, op: int, delivered: int, pending: int, *members: tuple[UserId, int, int]
    ) -> None:
        self.answer(
            SummaryShown(
                op=op,
                author_id=ANN,
                members=[MemberShown(*member) for member in members],
                delivered_count=delivered,
                pending_count=pending,
                all_delivered=pending == 0,
            )
        )

    # Members.

    def join(self, *users: UserId) -> None:
        for user in users:
            op = self.ask(MemberAdding(op=self.op(), chat_id=CHAT, user_id=user))
            self.answer(MembershipDone(op=op))

    def leave(self, user: UserId) -> None:
        op = self.ask(MemberRemoving(op=self.op(), chat_id=CHAT, user_id=user))
        self.answer(MembershipDone(op=op))


def sound_story() -> Story:
    """Some of everything, and nothing wrong with it."""
    story = Story()
    story.join(ANN, BOB)
    story.send(1, "k1")
    story.send(2, "k2", BOB)
    op = story.begin_send("k2", BOB)
    story.ack(op, 2, deduplicated=True)
    story.send(3, "k3")
    story.sync(0, *story.messages)
    story.advance(2, 1)
    story.look(2, 1)
    story.boundary(2, 1)
    story.advance(3, 2)
    story.advance(1, shown=(3, 2), moved=False)
    story.boundary(3, 2)
    story.show_summary(story.ask_summary(3), 1, 0, (ANN, 0, 3), (BOB, 0, 3))
    story.refuse(story.ask_summary(3, EVE))
    story.refuse(story.begin_send("k9", EVE))
    story.positions[ANN, CHAT] = Positions(3, 3)
    return story
