"""A history: questions to a store and their answers, in the order in which they were seen. PURE.

Crash runs, contract tests and the simulator record one and hand it to `trace.py`. An act that
takes time is two entries with the same `op`: one when it is asked, one when it is answered. So the
order of the list is real time: A was over before B began if A's answer stands before B's question.
A question without an answer has an unknown outcome, which is no fault by itself.

A history must be whole for the chats that it names: everything that was ever asked about them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tidewire.domain.delivery import Positions
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Something is asked. `op` is given to one question only."""

    op: int
    chat_id: ChatId
    user_id: UserId


class Sent(Question, frozen=True, kw_only=True):
    """The user sends an entry: a message, or an amendment (`amends`)."""

    client_message_id: ClientMessageId
    content: str
    reply_to: int | None = None
    mentions: tuple[UserId, ...] = ()
    amends: Amendment | None = None
    base: int | None = None
    """Of an edit, as in `SendMessage`."""

    @property
    def is_plain(self) -> bool:
        """True if it can be refused only because its sender is not a member."""
        return self.amends is None and self.reply_to is None and not self.mentions

    @property
    def deletes(self) -> int | None:
        """The message to delete, if this is a deletion."""
        amends = self.amends
        return None if amends is None or amends.kind is not EntryKind.DELETE else amends.target

    @property
    def said(self) -> tuple[object, ...]:
        """All that the client chose: the same in a retry."""
        return self.user_id, self.content, self.reply_to, self.mentions, self.amends


class SyncAsked(Question, frozen=True, kw_only=True):
    """A device of the user asks for what is above its own cursor."""

    after: int


class TextsAsked(Question, frozen=True, kw_only=True):
    """The user looks at texts in another way than by a sync."""

    way: str
    """Which way: history, a message by its id, a list of chats, a backup, and so on."""


class AdvanceSent(Question, frozen=True, kw_only=True):
    """A device of the user acknowledges, or reads."""

    delivered: int = 0
    read: int = 0


class PositionAsked(Question, frozen=True, kw_only=True):
    """The user's own positions are looked at."""


class BoundaryAsked(Question, frozen=True, kw_only=True):
    """The others' lowest positions, as the user sees them, are looked at."""


class SummaryAsked(Question, frozen=True, kw_only=True):
    """The user asks who has a message."""

    sequence: int


class MemberAdding(Question, frozen=True, kw_only=True):
    """The user is being added to the chat (or is one of its first members)."""


class MemberRemoving(Question, frozen=True, kw_only=True):
    """The user is being removed, or leaves."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the question with the same `op`."""

    op: int


class Acked(Answer, frozen=True, kw_only=True):
    """To Sent: it is stored, now or since an earlier try."""

    sequence: int
    message_id: MessageId
    created_at_ms: int
    deduplicated: bool = False


class Refused(Answer, frozen=True, kw_only=True):
    """To anything: it was not done and will not be. Not for faults, whose outcome is unknown."""

    code: ErrorCode


class Synced(Answer, frozen=True, kw_only=True):
    """To SyncAsked: a page."""

    messages: Sequence[Message]
    synced_through: int
    has_more: bool = False


class TextsShown(Answer, frozen=True, kw_only=True):
    """To TextsAsked: what was found, by the sequence of the message it is shown for."""

    texts: Mapping[int, str]


class PositionShown(Answer, frozen=True, kw_only=True):
    """To PositionAsked."""

    delivered: int
    read: int


class AdvanceAcked(PositionShown, frozen=True, kw_only=True):
    """To AdvanceSent: the positions afterwards."""

    moved: bool


class BoundaryShown(PositionShown, frozen=True, kw_only=True):
    """To BoundaryAsked."""


class MemberShown(NamedTuple):
    """A current member in a summary."""

    user_id: UserId
    joined_sequence: int
    delivered: int


class SummaryShown(Answer, frozen=True, kw_only=True):
    """To SummaryAsked."""

    author_id: UserId | None
    members: Sequence[MemberShown]
    delivered_count: int
    pending_count: int
    all_delivered: bool


class MembershipDone(Answer, frozen=True, kw_only=True):
    """To MemberAdding and MemberRemoving."""


class Published(msgspec.Struct, frozen=True):
    """The event of a message was handed to the fan-out."""

    chat_id: ChatId
    sequence: int
    prev_sequence: int


class Died(msgspec.Struct, frozen=True):
    """The process ended, by an orderly stop or by kill -9. What follows is another life."""


class CounterJumped(msgspec.Struct, frozen=True):
    """A restore (then of all chats) or a counter recovery put counters ahead."""

    chat_id: ChatId | None = None


class AckFrameSent(msgspec.Struct, frozen=True):
    """A client sent a delivery acknowledgement over its socket."""

    request_id: str


class FrameReceived(msgspec.Struct, frozen=True):
    """A client received a frame in answer to one of its own."""

    request_id: str


Entry = Question | Answer | Published | Died | CounterJumped | AckFrameSent | FrameReceived


Found = tuple[ChatId | None, str]
"""What a check found: the chat, if it concerns one, and a sentence."""


class FinalState(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the store at the end. `messages` are in sequence order."""

    messages: Mapping[ChatId, Sequence[Message]]
    counters: Mapping[ChatId, int]
    positions: Mapping[tuple[UserId, ChatId], Positions]
    leaves_gaps: bool = False
    """True if the engine may use up a sequence without storing a message."""

    def of(self, chat_id: ChatId) -> Sequence[Message]:
        return self.messages.get(chat_id, ())

    def head(self, chat_id: ChatId) -> int:
        messages = self.of(chat_id)
        return messages[-1].sequence if messages else 0


Asked = TypeVar("Asked", bound=Question)
Answered = TypeVar("Answered", bound=Answer)
Asked_co = TypeVar("Asked_co", bound=Question, covariant=True)
Answered_co = TypeVar("Answered_co", bound=Answer, covariant=True)


class Exchange(NamedTuple, Generic[Asked_co, Answered_co]):
    """A question with its answer; `began` and `ended` are their places in the history."""

    began: int
    ended: int
    question: Asked_co
    answer: Answered_co


class History:
    """A list of entries, in which questions are matched with their answers."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._began = {
            entry.op: index for index, entry in enumerate(entries) if isinstance(entry, Question)
        }
        asked = sum(isinstance(entry, Question) for entry in entries)
        assert len(self._began) == asked, "an op is given to one question only"

    def exchanges(
        self, asked: type[Asked], answered: type[Answered]
    ) -> Iterator[Exchange[Asked, Answered]]:
        """Questions of one kind that got an answer of another, in the order of the answers."""
        for ended, entry in enumerate(self.entries):
            if isinstance(entry, answered):
                began = self._began[entry.op]
                question = self.entries[began]
                assert began < ended, "a question stands before its answer"
                if isinstance(question, asked):
                    yield Exchange(began, ended, question, entry)

    def questions(self, asked: type[Asked]) -> Iterator[Asked]:
        """Questions of one kind, answered or not."""
        return (entry for entry in self.entries if isinstance(entry, asked))
