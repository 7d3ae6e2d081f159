"""Verifies a store: checks every state invariant on everything that an Inspector shows.

Violations are counted, and the first offenders are kept. A part that cannot be read is a violation
like any other, and the rest is verified all the same. So is an impossible value, a missing number
for example: bytes that have changed can be anything.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tidewire.ops.change_checks import check_changes, check_kept, is_sound_change, is_sound_kept
from tidewire.ops.checks import (
    EntryWalk,
    MessageWalk,
    Violation,
    check_chat,
    check_pairs,
    check_positions,
    differences,
)
from tidewire.ops.invariants import BY_NAME, Kind, names_of
from tidewire.ports.inspection import ChatRow, Damaged, EntryRow, Inspector

OFFENDERS_MAX: Final = 10
"""How many offenders of one invariant are kept to be shown."""

UNREADABLE: Final = (Damaged, TypeError, ValueError, LookupError, ArithmeticError, AssertionError)
"""What changed bytes lead to: the store reports damage, or a value does not fit its place."""

Progress = Callable[[str, int, int | None], None]
"""Called with the stage, how much of it is done, and the total (None if it is not known)."""


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Progress callback that does nothing."""


class CheckResult(msgspec.Struct):
    """The result for one invariant. `checked` counts the chats, messages or members that it is
    about; None if it could not be checked."""

    name: str
    source: str
    checked: int | None = 0
    violations: int = 0
    offenders: list[Violation] = msgspec.field(default_factory=list)


class Counts(msgspec.Struct):
    """How much was looked at. `message_ids` is None if the store has no index of them."""

    chats: int = 0
    members: int = 0
    messages: int = 0
    keys: int = 0
    message_ids: int | None = 0
    positions: int = 0
    changes: int | None = 0
    """Amendments, replies, mentions and deleted entries; None if the store cannot list them."""
    kept: int | None = 0
    """Rows that are kept of them beside the log; None if the store cannot list them."""


class Report(msgspec.Struct, kw_only=True):
    """The result of a verification."""

    epoch: str | None = None
    counts: Counts = msgspec.field(default_factory=Counts)
    checks: list[CheckResult]

    @property
    def violations(self) -> int:
        return sum(check.violations for check in self.checks)


def verify(open_inspector: Callable[[], Inspector], progress: Progress = no_progress) -> Report:
    """Run every state check. Raises only if there is nothing to verify."""
    run = _Run(progress)
    try:
        inspector = open_inspector()
    except UNREADABLE as damage:
        run.note(_damage(damage, None, "; nothing could be checked"))
        return run.report
    try:
        run.report.epoch = inspector.epoch
        run.chats(inspector)
        run.message_ids(inspector)
        run.kept(inspector)
        run.positions(inspector)
        run.direct_pairs(inspector)
    finally:
        inspector.close()
    for check in run.report.checks:
        check.checked = getattr(run.counts, BY_NAME[check.name].per)
    return run.report


class _Run:
    """One verification under way."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._checks = {
            name: CheckResult(name, BY_NAME[name].source) for name in names_of(Kind.STATE)
        }
        self.report = Report(checks=list(self._checks.values()))
        self.counts = self.report.counts
        self._ids_sum = 0
        self._has_damaged_messages = False

    def note(self, violation: Violation) -> None:
        check = self._checks[violation.invariant]
        check.violations += 1
        if len(check.offenders) < OFFENDERS_MAX:
            check.offenders.append(violation)

    def chats(self, inspector: Inspector) -> None:
        """Check every chat with its messages and keys."""
        total = inspector.messages_estimate()
        last: str | None = None
        self._progress("messages", 0, total)
        try:
            for chat in inspector.chats():
                self._note_all(check_chat(chat))
                self.counts.chats += 1
                self.counts.members += len(chat.members)
                self._messages(inspector, chat, total)
                last = chat.chat_id
        except UNREADABLE as damage:
            self._has_damaged_messages = True
            unchecked = "no chat was" if last is None else f"chats after {last} were not"
            self.note(_damage(damage, None, f"; {unchecked} checked"))

    def _messages(self, inspector: Inspector, chat: ChatRow, total: int) -> None:
        walk = MessageWalk(chat)
        try:
            for rows in inspector.messages(chat):
                self._note_all(walk.take(rows))
                self.counts.messages += len(rows)
                self._progress("messages", self.counts.messages, total)
            self._note_all(walk.end())
            self._ids_sum += walk.ids_sum
            self._keys(inspector, chat, walk)
            self._changes(inspector, chat)
        except UNREADABLE as damage:
            self._has_damaged_messages = True
            self.note(_damage(damage, chat.chat_id, "; the rest of this chat was not checked"))

    def _keys(self, inspector: Inspector, chat: ChatRow, messages: MessageWalk) -> None:
        walk = EntryWalk("one_message_per_key", chat, "client_message_id")
        for rows in inspector.keys(chat):
            self._note_all(walk.take(rows))
        self.counts.keys += walk.count
        if (walk.count, walk.sum) == (messages.count, messages.keys_sum):
            return
        for name, identity, is_key in differences(
            lambda: ([(row[4], row[5]) for row in rows] for rows in inspector.messages(chat)),
            lambda: inspector.keys(chat),
            messages.count,
        ):
            found = _disagreement("client_message_id", name, identity, is_index=is_key)
            self.note(Violation("idempotency_sequence_consistency", chat.chat_id, found))

    def _changes(self, inspector: Inspector, chat: ChatRow) -> None:
        listing = inspector.changes(chat, is_sound_change)
        if listing is None:
            self.counts.changes = None
            return
        for rows in listing:
            self._note_all(check_changes(chat.chat_id, rows))
            self.counts.changes = (self.counts.changes or 0) + len(rows)

    def kept(self, inspector: Inspector) -> None:
        """Check the rows that are kept beside the logs against the logs."""
        listing = inspector.kept(is_sound_kept)
        if listing is None:
            self.counts.kept = None
            return
        done = 0
        try:
            for rows in listing:
                self._note_all(check_kept(rows))
                done += len(rows)
                self.counts.kept = done
                self._progress("changes", done, None)
        except UNREADABLE as damage:
            self.note(_damage(damage, None, "; the rest of what is kept was not checked"))

    def message_ids(self, inspector: Inspector) -> None:
        """Check the index of message ids against the messages of all chats."""
        listing = inspector.message_ids()
        if listing is None:
            self.counts.message_ids = None
            return
        walk = EntryWalk("message_ids_exact", None, "message_id")
        try:
            for rows in listing:
                self._note_all(walk.take(rows))
                self._progress("message ids", walk.count, self.counts.messages)
            self.counts.message_ids = walk.count
            if self._has_damaged_messages:
                return  # Unreadable messages would be reported a second time, as missing.
            if (walk.count, walk.sum) != (self.counts.messages, self._ids_sum):
                self._note_all(_differing_ids(inspector, self.counts.messages))
        except UNREADABLE as damage:
            self.note(_damage(damage, None, "; the rest of the index was not checked"))

    def positions(self, inspector: Inspector) -> None:
        try:
            for rows in inspector.positions():
                self._note_all(check_positions(rows))
                self.counts.positions += len(rows)
                self._progress("positions", self.counts.positions, None)
        except UNREADABLE as damage:
            self.note(_damage(damage, None, "; the rest of the positions was not checked"))

    def direct_pairs(self, inspector: Inspector) -> None:
        done = 0
        try:
            for rows in inspector.direct_pairs():
                self._note_all(check_pairs(rows))
                done += len(rows)
                self._progress("direct chats", done, None)
        except UNREADABLE as damage:
            self.note(_damage(damage, None, "; the rest of that index was not checked"))

    def _note_all(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self.note(violation)


def _differing_ids(inspector: Inspector, count: int) -> Iterator[Violation]:
    def by_message() -> Iterator[Sequence[EntryRow]]:
        for chat in inspector.chats():
            for rows in inspector.messages(chat):
                yield [(row[3], row[5]) for row in rows]

    def by_index() -> Iterable[Sequence[EntryRow]]:
        return inspector.message_ids() or ()

    for name, identity, is_index in differences(by_message, by_index, count):
        found = _disagreement("message_id", name, identity, is_index=is_index)
        yield Violation("message_ids_exact", None, found)


def _disagreement(what: str, name: str, identity: object, *, is_index: bool) -> str:
    if is_index:
        return f"{what} {name} leads to message {identity}, which is not its message"
    return f"message {identity} is not found by its {what} {name}"


def _damage(damage: Exception, chat_id: str | None, consequence: str) -> Violation:
    if isinstance(damage, Damaged):
        found = f"cannot read {damage.place}: {damage.reason}{consequence}"
    else:
        found = f"a value is not what it must be ({type(damage).__name__}){consequence}"
    return Violation("database_readable", chat_id, found)
