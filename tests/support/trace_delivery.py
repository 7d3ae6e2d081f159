"""The trace invariants about positions, ticks and membership. PURE. See `trace.py`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tests.support.history import (
    Acked,
    AdvanceAcked,
    AdvanceSent,
    Answer,
    BoundaryAsked,
    BoundaryShown,
    Exchange,
    FinalState,
    Found,
    History,
    MemberAdding,
    MemberRemoving,
    MembershipDone,
    PositionShown,
    Question,
    Refused,
    Sent,
    SummaryAsked,
    SummaryShown,
    SyncAsked,
    Synced,
)
from tidewire.domain.delivery import NOWHERE
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, UserId

_User = tuple[UserId, ChatId]
_Seen = list[Exchange[Question, PositionShown]]

_NEVER: Final = 1 << 62
"""A place behind the end of every history."""


def falls(observed: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Of (began, ended, value): pairs of a value and a later one that is not above it.

    Later means that its exchange began after the other one had ended."""
    in_order = sorted(observed)
    by_end = sorted(in_order, key=lambda one: one[1])
    over = 0
    highest: int | None = None
    for began, _, value in in_order:
        while by_end[over][1] < began:
            ended_value = by_end[over][2]
            highest = ended_value if highest is None else max(highest, ended_value)
            over += 1
        if highest is not None and value <= highest:
            yield highest, value


def _drops(observed: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """As `falls`, but a later value may be equal."""
    return (pair for pair in falls(observed) if pair[1] < pair[0])


def _own_positions(history: History) -> dict[_User, _Seen]:
    """Every exchange that showed a user's own positions, by user and chat."""
    seen: defaultdict[_User, _Seen] = defaultdict(list)
    for exchange in history.exchanges(Question, PositionShown):
        question = exchange.question
        if not isinstance(question, BoundaryAsked):
            seen[question.user_id, question.chat_id].append(exchange)
    return seen


def check_watermark_monotonic(history: History, final: FinalState) -> Iterator[Found]:
    for (user_id, chat_id), seen in _own_positions(history).items():
        end = final.positions.get((user_id, chat_id))
        for what in ("delivered", "read"):
            values = [(began, ended, getattr(shown, what)) for began, ended, _, shown in seen]
            if end is not None:
                place = len(history.entries)
                values.append((place, place, getattr(end, what)))
            for before, after in _drops(values):
                yield chat_id, f"{what} of {user_id} fell from {before} to {after}"


def check_boundary_never_falls(history: History, final: FinalState) -> Iterator[Found]:
    seen: defaultdict[_User, _Seen] = defaultdict(list)
    for exchange in history.exchanges(BoundaryAsked, BoundaryShown):
        question = exchange.question
        seen[question.user_id, question.chat_id].append(exchange)
    for (user_id, chat_id), shown_to_user in seen.items():
        for what in ("delivered", "read"):
            values = [
                (began, ended, getattr(shown, what)) for began, ended, _, shown in shown_to_user
            ]
            for before, after in _drops(values):
                yield chat_id, f"others' {what} as {user_id} sees it fell from {before} to {after}"


def check_ack_cumulative(history: History, final: FinalState) -> Iterator[Found]:
    advances = list(history.exchanges(AdvanceSent, AdvanceAcked))
    for began, _, asked, summary in history.exchanges(SummaryAsked, SummaryShown):
        shown = {member.user_id: member.delivered for member in summary.members}
        for _, ended, advance, _ in advances:
            acknowledged = max(advance.delivered, advance.read)
            if (
                advance.chat_id == asked.chat_id
                and ended < began
                and shown.get(advance.user_id, acknowledged) < asked.sequence <= acknowledged
            ):
                found = (
                    f"{advance.user_id} acknowledged {acknowledged}, then counted as not having "
                    f"{asked.sequence}"
                )
                yield asked.chat_id, found


def check_delivered_implies_persisted(history: History, final: FinalState) -> Iterator[Found]:
    for _, _, question, shown in history.exchanges(Question, PositionShown):
        head = final.head(question.chat_id)
        if max(shown.delivered, shown.read) > head:
            found = (
                f"{question.user_id} was shown delivered {shown.delivered}, read {shown.read}, "
                f"but the last message is {head}"
            )
            yield question.chat_id, found


def check_conditional_write(history: History, final: FinalState) -> Iterator[Found]:
    for (user_id, chat_id), seen in _own_positions(history).items():
        for began, _, question, answer in seen:
            if not (isinstance(question, AdvanceSent) and isinstance(answer, AdvanceAcked)):
                continue
            if not answer.moved:
                continue
            before = [shown for _, ended, _, shown in seen if ended < began]
            delivered = max((shown.delivered for shown in before), default=0)
            read = max((shown.read for shown in before), default=0)
            asked = max(question.delivered, question.read)
            if asked <= delivered and question.read <= read:
                found = (
                    f"{user_id} acknowledged {asked} (read {question.read}) and that moved "
                    f"positions that stood at {delivered} (read {read})"
                )
                yield chat_id, found


def check_highest_wins(history: History, final: FinalState) -> Iterator[Found]:
    tried: defaultdict[_User, int] = defaultdict(int)
    taken: defaultdict[_User, int] = defaultdict(int)
    for advance in history.questions(AdvanceSent):
        user = advance.user_id, advance.chat_id
        tried[user] = max(tried[user], advance.delivered, advance.read)
    for _, _, advance, _ in history.exchanges(AdvanceSent, AdvanceAcked):
        user = advance.user_id, advance.chat_id
        taken[user] = max(taken[user], advance.delivered, advance.read)
    for chat_id, messages in final.messages.items():
        for message in messages:
            user = message.sender_id, chat_id
            tried[user] = max(tried[user], message.sequence)
    for user in {**taken, **final.positions}:
        delivered = final.positions.get(user, NOWHERE).delivered
        if not taken[user] <= delivered <= tried[user]:
            found = (
                f"{user[0]} stands at {delivered}; the user's devices got {taken[user]} "
                f"acknowledged and had nothing above {tried[user]}"
            )
            yield user[1], found


def check_positions_outlive(history: History, final: FinalState) -> Iterator[Found]:
    removed = {
        (question.user_id, question.chat_id)
        for _, _, question, _ in history.exchanges(MemberRemoving, MembershipDone)
    }
    for user, seen in _own_positions(history).items():
        if (
            user in removed
            and user not in final.positions
            and any(s.answer.delivered for s in seen)
        ):
            yield user[1], f"{user[0]} was removed, and the positions as well"


def check_group_delivered(history: History, final: FinalState) -> Iterator[Found]:
    for _, _, asked, summary in history.exchanges(SummaryAsked, SummaryShown):
        awaited = [
            member
            for member in summary.members
            if member.user_id != summary.author_id and member.joined_sequence < asked.sequence
        ]
        delivered = sum(member.delivered >= asked.sequence for member in awaited)
        expected = (delivered, len(awaited) - delivered, delivered == len(awaited))
        shown = (summary.delivered_count, summary.pending_count, summary.all_delivered)
        if shown != expected:
            found = (
                f"message {asked.sequence} was shown as (delivered, pending, all) {shown}, "
                f"by its members it is {expected}"
            )
            yield asked.chat_id, found


def check_query_authorization(history: History, final: FinalState) -> Iterator[Found]:
    roster = _Roster(history)
    for shown in history.exchanges(SummaryAsked, SummaryShown):
        if roster.was_member(shown) is False:
            found = f"{shown.question.user_id} is no member and was told who has a message"
            yield shown.question.chat_id, found
    for refused in history.exchanges(SummaryAsked, Refused):
        is_member = roster.was_member(refused)
        code = refused.answer.code
        if is_member is not None and is_member is (code is ErrorCode.NOT_A_MEMBER):
            who = "a member" if is_member else "no member"
            found = f"{refused.question.user_id}, who is {who}, was refused with {code}"
            yield refused.question.chat_id, found


def check_membership_holds(history: History, final: FinalState) -> Iterator[Found]:
    roster = _Roster(history)
    # A retry is still answered if the message was stored while its sender was a member.
    done: list[Exchange[Question, Answer]] = [
        one for one in history.exchanges(Sent, Acked) if not one.answer.deduplicated
    ]
    done += history.exchanges(SyncAsked, Synced)
    for exchange in done:
        if roster.was_member(exchange) is False:
            did = "sent" if isinstance(exchange.question, Sent) else "read"
            found = f"{exchange.question.user_id} {did} a message while being no member"
            yield exchange.question.chat_id, found


class _Roster:
    """Who was a member when, as far as the history shows it for certain."""

    def __init__(self, history: History) -> None:
        self._changes: defaultdict[_User, list[tuple[int, int, bool]]] = defaultdict(list)
        ended = {
            entry.op: place
            for place, entry in enumerate(history.entries)
            if isinstance(entry, Answer)
        }
        refused = {entry.op for entry in history.entries if isinstance(entry, Refused)}
        self._chats: set[ChatId] = set()
        for began, entry in enumerate(history.entries):
            if isinstance(entry, MemberAdding | MemberRemoving) and entry.op not in refused:
                self._chats.add(entry.chat_id)
                self._changes[entry.user_id, entry.chat_id].append(
                    (began, ended.get(entry.op, _NEVER), isinstance(entry, MemberAdding))
                )

    def was_member(self, exchange: Exchange[Question, Answer]) -> bool | None:
        """Whether the user was a member for the whole exchange; None if a change overlapped it, or
        if the history does not say who is in the chat."""
        user_id, chat_id = exchange.question.user_id, exchange.question.chat_id
        if chat_id not in self._chats:
            return None
        changes = self._changes.get((user_id, chat_id), [])
        if any(began < exchange.ended and ended > exchange.began for began, ended, _ in changes):
            return None
        before = [change for change in changes if change[1] < exchange.began]
        return before[-1][2] if before else False
