"""The state invariants as functions over what an Inspector reads. PURE.

The functions know no engine, and need no more memory for more messages. A chunk is checked as a
whole with a few operations that run in C; only a chunk that fails is checked row by row.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import lt, mul
from typing import Final

import msgspec

from tidewire.domain.chats import ChatType, Role, pair_key
from tidewire.domain.delivery import effective
from tidewire.domain.ids import UserId
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.ports.inspection import ChatRow, EntryRow, MessageRow, PairRow, PositionRow

_BUCKET_ENTRIES: Final = 1_000
_BUCKETS_MAX: Final = 1 << 16
_BUCKETS_SEARCHED_MAX: Final = 64


class Violation(msgspec.Struct, frozen=True):
    """An invariant that does not hold. `found` is one sentence with the numbers in it."""

    invariant: str
    chat_id: str | None
    found: str


def check_chat(chat: ChatRow) -> Iterator[Violation]:
    """Check a chat by itself, without its messages."""
    if chat.chat_type is None:
        rows = f"{len(chat.members)} members, counter {chat.counter}, last message {chat.head}"
        yield _of(chat, "rows_belong_to_a_chat", f"no such chat, but rows name it: {rows}")
        return
    if chat.counter is None:
        found = f"no counter row; the last message is {chat.head}"
        yield _of(chat, "counter_must_exist", found)
    elif chat.counter > SEQUENCE_MAX:
        found = f"the counter is {chat.counter}, above {SEQUENCE_MAX}"
        yield _of(chat, "sequence_fits_the_wire", found)
    yield from _check_members(chat)
    yield from _check_kind(chat)
    yield from _check_floors(chat)
    yield from _check_blocks(chat)
    yield from _check_versions(chat)


def _check_versions(chat: ChatRow) -> Iterator[Violation]:
    shown = chat.membership_version - chat.block_changes
    if not 1 <= shown <= chat.membership_version:
        found = f"version {chat.membership_version} with {chat.block_changes} changes by blocks"
        yield _of(chat, "shown_version_sound", found)
    for user_id in chat.refusing:
        yield _of(chat, "refusal_keeps_out", f"{user_id} has refused the group, and is in it")


def _check_members(chat: ChatRow) -> Iterator[Violation]:
    if chat.member_count != len(chat.members):
        found = f"member_count is {chat.member_count}, but there are {len(chat.members)} rows"
        yield _of(chat, "member_count_exact", found)
    for user_id, _role, joined, delivered, _read in chat.members:
        if delivered is None:
            yield _of(chat, "member_has_positions", f"{user_id} is a member without positions")
        if joined > chat.head:
            found = f"{user_id} joined at {joined}, but the last message is {chat.head}"
            yield _of(chat, "joined_bounded_by_head", found)


def _check_kind(chat: ChatRow) -> Iterator[Violation]:
    if chat.is_closed:
        if chat.members:
            found = f"the group was closed, but has {len(chat.members)} members"
            yield _of(chat, "closed_group_is_empty", found)
    elif chat.chat_type == ChatType.GROUP:
        owners = [member[0] for member in chat.members if member[1] == Role.OWNER]
        if len(owners) != 1:
            found = f"{len(owners)} owners: {', '.join(owners[:5]) or 'none'}"
            yield _of(chat, "group_has_one_owner", found)
        if chat.pair_key is not None:
            found = f"a group, but the index has it as {chat.pair_key}"
            yield _of(chat, "direct_chat_is_indexed", found)
    elif len(chat.members) != 2:
        found = f"a direct chat with {len(chat.members)} members"
        yield _of(chat, "direct_chat_has_two_members", found)
    else:
        one, other = (UserId(member[0]) for member in chat.members)
        if chat.pair_key != pair_key(one, other):
            found = f"the chat of {pair_key(one, other)}, but the index has it as {chat.pair_key}"
            yield _of(chat, "direct_chat_is_indexed", found)


def _check_floors(chat: ChatRow) -> Iterator[Violation]:
    """The store's index of lowest positions must equal the rows, because ticks are made of it."""
    if any(member[3] is None for member in chat.members):
        return  # Reported as member_has_positions; the floor cannot be right.
    delivered = min((effective(m[3] or 0, m[2]) for m in chat.members), default=None)
    read = min((effective(m[4] or 0, m[2]) for m in chat.members), default=None)
    if (chat.floor_delivered, chat.floor_read) != (delivered, read):
        found = (
            f"lowest positions by the index {chat.floor_delivered} delivered, {chat.floor_read} "
            f"read, by the rows {delivered} and {read}"
        )
        yield _of(chat, "lowest_positions_exact", found)


def _check_blocks(chat: ChatRow) -> Iterator[Violation]:
    """The mark that a send is checked against must be there for each block, and only then."""
    for user_id in sorted({*chat.marked} - {*chat.blocked}):
        found = f"{user_id} is marked as blocked, but the other member blocks no one"
        yield _of(chat, "block_marks_exact", found)
    for user_id in sorted({*chat.blocked} - {*chat.marked}):
        found = f"{user_id} is blocked by the other one, but not marked"
        yield _of(chat, "block_marks_exact", found)


class MessageWalk:
    """Checks the messages of one chat, chunk by chunk, in sequence order."""

    def __init__(self, chat: ChatRow) -> None:
        self._chat = chat
        self._last = 0
        self._last_position = -1
        self._has_begun = False
        self.count = 0
        # Sums over the rows. The indexes must have the same sums, in whatever order they are read.
        # Hashes of text differ between processes, but within one process equal rows have equal
        # sums.
        self.keys_sum = 0
        self.ids_sum = 0

    def take(self, rows: Sequence[MessageRow]) -> Iterator[Violation]:
        """The next chunk, which has at least one row."""
        sequences, prevs, positions, message_ids, keys, identities, damages = zip(
            *rows, strict=True
        )
        before = (self._last, *sequences[:-1])
        is_sound = (
            prevs == before
            and all(map(lt, before, sequences))
            and self._are_commits_in_order(positions)
        )
        if not is_sound:
            yield from self._find(rows)
        if any(damages):
            for sequence, is_damaged in zip(sequences, damages, strict=True):
                if is_damaged:
                    found = f"the message at sequence {sequence} is damaged"
                    yield _of(self._chat, "message_checksum_holds", found)
        self.keys_sum += _sum(zip(keys, identities, strict=True))
        self.ids_sum += _sum(zip(message_ids, identities, strict=True))
        self.count += len(rows)
        self._last = sequences[-1]
        self._has_begun = True
        if positions[-1] is not None:
            self._last_position = positions[-1]

    def _are_commits_in_order(self, positions: tuple[int | None, ...]) -> bool:
        numbers = [position for position in positions if position is not None]
        return all(map(lt, [self._last_position, *numbers], numbers))

    def _find(self, rows: Sequence[MessageRow]) -> Iterator[Violation]:
        last, last_position, has_begun = self._last, self._last_position, self._has_begun
        for sequence, prev, position, message_id, _key, _identity, _is_damaged in rows:
            here = f"{message_id} at sequence {sequence}"
            if sequence < 1:
                yield _of(self._chat, "no_zero_sequence", f"{here} is below 1")
            if has_begun and sequence == last:
                found = f"{here} shares it with the message before"
                yield _of(self._chat, "sequence_uniqueness", found)
            elif prev != last:
                found = f"{here} has prev_sequence {prev}, but the message before it is {last}"
                yield _of(self._chat, "prev_chain_exact", found)
            if position is not None and position <= last_position:
                found = f"{here} was committed as {position}, the one before as {last_position}"
                yield _of(self._chat, "sequence_monotonic", found)
            last, has_begun = sequence, True
            last_position = last_position if position is None else position

    def end(self) -> Iterator[Violation]:
        """After the last chunk: check the counter, read with the chat, against the messages."""
        counter = self._chat.counter
        if counter is None:
            return  # Reported as counter_must_exist.
        if self._last > counter:
            found = f"the last message is {self._last}, above the counter {counter}"
            yield _of(self._chat, "sequence_monotonicity", found)
        if self.count > counter:
            found = f"{self.count} messages, but the counter is {counter}"
            yield _of(self._chat, "counter_lower_bound", found)


def _sum(entries: Iterable[EntryRow]) -> int:
    """Equal for the same entries in any order, and (but for chance) different for others.

    The hashes are squared: the plain hashes of two pairs often have the same sum as those of the
    pairs with exchanged halves, because a tuple's hash is nearly the sum of its elements' hashes.
    """
    hashes = list(map(hash, entries))
    return sum(map(mul, hashes, hashes))


class EntryWalk:
    """Checks an index, chunk by chunk, in the order of its names: no name may come twice."""

    def __init__(self, invariant: str, chat: ChatRow | None, name: str) -> None:
        self._invariant = invariant
        self._chat_id = None if chat is None else chat.chat_id
        self._name = name
        self._last: str | None = None
        self.count = 0
        self.sum = 0

    def take(self, rows: Sequence[EntryRow]) -> Iterator[Violation]:
        names = [row[0] for row in rows]
        if names[0] == self._last or len(set(names)) != len(names):
            last = self._last
            for name in names:
                if name == last:
                    found = f"{self._name} {name} stands for more than one message"
                    yield Violation(self._invariant, self._chat_id, found)
                last = name
        self._last = names[-1]
        self.count += len(rows)
        self.sum += _sum(rows)


Listing = Callable[[], Iterable[Sequence[EntryRow]]]


def differences(
    messages: Listing, index: Listing, count: int
) -> Iterator[tuple[str, Hashable, bool]]:
    """Where messages and an index disagree: name, message, and whether it is the index's entry.

    Runs only when the sums differ, and then reads both lists twice. Memory is bounded: entries
    fall into buckets by their hash, and only some of those whose sums differ are held in memory.
    """
    buckets = min(_BUCKETS_MAX, count // _BUCKET_ENTRIES + 1)
    sums = [0] * buckets
    for sign, listing in ((1, messages), (-1, index)):
        for rows in listing():
            for row in rows:
                value = hash(row)
                sums[value % buckets] += sign * value * value
    differing = [bucket for bucket, total in enumerate(sums) if total]
    searched = frozenset(differing[:_BUCKETS_SEARCHED_MAX])
    missing = {row: None for rows in messages() for row in rows if hash(row) % buckets in searched}
    for rows in index():
        for row in rows:
            if hash(row) % buckets in searched:
                if row in missing:
                    del missing[row]
                else:
                    yield *row, True
    for row in missing:
        yield *row, False


def check_positions(rows: Iterable[PositionRow]) -> Iterator[Violation]:
    """Check positions of users against everything that bounds them."""
    for row in rows:
        user_id, _chat_id, delivered, read, joined, membership_joined, head, counter = row[:8]
        if delivered > head:
            found = f"{user_id} has acknowledged {delivered}, but the last message is {head}"
            yield _at(row, "delivery_state_consistency", found)
        if counter is not None and delivered > counter:
            found = f"{user_id} has acknowledged {delivered}, above the counter {counter}"
            yield _at(row, "watermark_bounded_by_counter", found)
        if read > delivered:
            found = f"{user_id} has read {read}, but acknowledged only {delivered}"
            yield _at(row, "read_implies_delivered", found)
        if joined != membership_joined:
            found = (
                f"{user_id} joined at {_joined(membership_joined)} by the membership, "
                f"at {_joined(joined)} by the positions"
            )
            yield _at(row, "joined_sequence_consistent", found)
        if row.hidden_through is not None and row.hidden_through > head:
            found = f"{user_id} has hidden it up to {row.hidden_through}, above the head {head}"
            yield _at(row, "hidden_bounded_by_head", found)
        if not row.chat_exists:
            yield _at(row, "rows_belong_to_a_chat", f"{user_id} has positions in no chat")


def check_pairs(rows: Iterable[PairRow]) -> Iterator[Violation]:
    """Every entry of the index of direct chats must lead to one; check_chat checks the reverse."""
    for key, chat_id, chat_type in rows:
        if chat_type != ChatType.DIRECT:
            what = "no chat" if chat_type is None else f"a {chat_type}"
            found = f"the index of direct chats leads from {key} to {what}"
            yield Violation("direct_chat_is_indexed", chat_id, found)


def _joined(sequence: int | None) -> str:
    return "no point (not a member)" if sequence is None else str(sequence)


def _of(chat: ChatRow, invariant: str, found: str) -> Violation:
    return Violation(invariant, chat.chat_id, found)


def _at(row: PositionRow, invariant: str, found: str) -> Violation:
    return Violation(invariant, row.chat_id, found)
