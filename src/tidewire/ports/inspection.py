"""Looking at a whole store from outside, to verify it, and mending the one row that can be mended.

Synchronous on purpose: an operator's command reads at its own pace, beside a running server or
without one. Rows come as plain tuples in bounded chunks, because a verification reads millions.

Writes during the inspection give no false alarm. Data that can change (members, counters, heads,
positions) is returned together with everything it is compared with, as of one instant: one
`ChatRow`, one `PositionRow`. Data that cannot change (messages and their keys) is read afterwards,
and only if it was there when the inspection began; such a message is at or below every head and
counter that is read later. An edit, a deletion or a reaction changes rows beside the message: they,
too, are returned together with the entries that they belong to.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Amendment, EntryKind

MemberRow = tuple[str, str, int, int | None, int | None]
"""user_id, role, joined_sequence; delivered and read, or None twice if there is no position row."""

MessageRow = tuple[int, int, int | None, str, str, Hashable, bool]
"""sequence, prev_sequence, position in the order of commits (None: the store keeps none),
message_id, client_message_id, what identifies this message in the store, whether it is damaged: not
what was stored. A number or an id that cannot be read is 0 or empty."""

EntryRow = tuple[str, Hashable]
"""An entry of an index: client_message_id or message_id, and what identifies its message."""

PairRow = tuple[str, ChatId, str | None]
"""pair_key, chat_id, the type of that chat (None: there is no such chat)."""


class ChatRow(NamedTuple):
    """Everything about one chat that can change, as of one instant."""

    chat_id: ChatId
    chat_type: str | None
    """None: rows name this chat, but it does not exist."""
    member_count: int
    """The number in the chat's own row; `members` are the member rows."""
    members: Sequence[MemberRow]
    counter: int | None
    head: int
    """The sequence of the last entry, 0 if there is none."""
    pair_key: str | None
    """Its key in the index of direct chats."""
    floor_delivered: int | None
    floor_read: int | None
    """The lowest effective positions as the store's own index gives them; None: it has no entry."""
    marked: Sequence[str] = ()
    """The members whose membership says that they are blocked, by id."""
    blocked: Sequence[str] = ()
    """In a direct chat: the members whom the other one blocks, by id."""
    is_closed: bool = False
    """A group that was closed: it has no members."""
    membership_version: int = 1
    block_changes: int = 0
    refusing: Sequence[str] = ()
    """The members who have refused to be added to this group again, by id."""


class PositionRow(NamedTuple):
    """One user's positions in one chat with everything that bounds them, as of one instant."""

    user_id: str
    chat_id: ChatId
    delivered: int
    read: int
    joined_sequence: int | None
    """As the position row repeats it; None: not a member."""
    membership_joined: int | None
    """As the membership says; None: not a member."""
    head: int
    counter: int | None
    chat_exists: bool
    hidden_through: int | None = None
    """The user does not see the chat until there is a message above this one."""


class TargetRow(NamedTuple):
    """The row at the sequence that an entry names."""

    is_message: bool
    has_text: bool
    deleted_by: int | None


class ChangeRow(NamedTuple):
    """An entry that is linked to other rows, with the values of those, as of one instant: an
    amendment, a reply, a message with mentions, or a deleted entry."""

    sequence: int
    sender_id: str
    amends: Amendment | None
    reply_to: int | None
    mentions: Sequence[str]
    counted: int
    """Of a reaction: the users that it counted."""
    has_text: bool
    deleted_by: int | None
    target: TargetRow | None = None
    """The row of the target, or of the message that is replied to; None: there is none."""
    deletes: int | None = None
    """The target of the entry `deleted_by`; None: that is not a deletion, or does not exist."""
    kept: int | None = None
    """Of an edit, and of a reaction by this user with this emoji: the sequence in the row that the
    store keeps for it beside the log; None: there is no row."""
    on_count: int | None = None
    """Of the last reaction with its emoji: how many users have set the emoji according to the kept
    rows; None: it is not the last one."""
    told: tuple[int, int] | None = None
    """The same count in the target's own row, and the entry that it comes from; 0 and 0: no count
    there, as no user has set it. None: the store keeps no count there, or as for `on_count`."""
    found_mentions: Sequence[str] = ()
    """Those of its mentions that the index of mentions has."""
    message_before: int | None = None
    """For an entry that is not a message: the last message before it, as the store keeps it. If the
    store keeps it only for the end of a chat: the last message up to the last entry."""
    chained_before: int | None = None
    """The same, according to the entry before it or to the log."""


class KeptRow(NamedTuple):
    """A row beside the log, with the entry that it is of, as of one instant."""

    chat_id: ChatId
    kind: EntryKind
    """EDIT, REACT; MESSAGE: of a mention."""
    sequence: int
    user_id: str
    """Who reacts, or who is mentioned; empty for an edit."""
    amends: Amendment | None
    """The row's copy of the amendment; None: the row is for a mention."""
    entry: ChangeRow | None
    """The entry, without the values of other rows; None: there is none."""
    is_target_deleted: bool
    """Whether the message that it is about is deleted."""
    counted: int | None = None
    """If the row is a count of reactions: the number of users; None: the row is no count."""


class Damaged(Exception):
    """A part of the store cannot be read. `place` says which, `reason` what the store said."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason

    def as_unusable(self) -> StoreUnusable:
        """For callers that cannot go on without that part."""
        return StoreUnusable(
            f"cannot read {self.place} ({self.reason}); run 'tidewire verify' to see how far the "
            "damage goes, and restore the last backup"
        )


class Inspector(Protocol):
    """Reads a whole store without slowing it down.

    Every read is short (one chunk, one read transaction), takes no lock that a server waits for,
    and writes nothing. Each iterator may raise Damaged where the store cannot be read; that
    iterator ends then, the others still work.
    """

    @property
    def epoch(self) -> str:
        """The epoch of the store."""
        ...

    def messages_estimate(self) -> int:
        """About how many messages there are, at once, for a progress bar."""
        ...

    def chats(self) -> Iterator[ChatRow]:
        """Every chat that any row names, by id, each once.

        A store that cannot read all of a ChatRow in one transaction reads positions before heads,
        heads before counters, and the members again if the membership version moved meanwhile.
        """
        ...

    def messages(self, chat: ChatRow) -> Iterator[Sequence[MessageRow]]:
        """The messages of a chat in sequence order, in chunks: every one that was there when the
        inspection began, none that came after `chat` was read. May be called again."""
        ...

    def keys(self, chat: ChatRow) -> Iterator[Sequence[EntryRow]]:
        """The idempotency keys of exactly those messages, by client_message_id, in chunks. A store
        whose keys expire gives a message without a key as if it had one."""
        ...

    def message_ids(self) -> Iterator[Sequence[EntryRow]] | None:
        """The message ids of the messages of all chats, by id, in chunks; None if the store has no
        such index. May be called again."""
        ...

    def changes(
        self, chat: ChatRow, is_sound: Callable[[ChangeRow], bool]
    ) -> Iterator[Sequence[ChangeRow]] | None:
        """The entries of a chat that are linked to others, in sequence order, in chunks, as far as
        they were there when the inspection began; None if the store cannot say. Damaged entries are
        left out.

        If it costs too much to read all of them as of one instant, a store reads them otherwise
        first, and reads only those that are not `is_sound` again as of one instant."""
        ...

    def kept(self, is_sound: Callable[[KeptRow], bool]) -> Iterator[Sequence[KeptRow]] | None:
        """Every row that is kept beside the logs of all chats, in chunks; None if the store cannot
        say. `is_sound` as for `changes`; a row that is deleted meanwhile is left out."""
        ...

    def positions(self) -> Iterator[Sequence[PositionRow]]:
        """Every position row, of members and of those who left, in chunks, each row once."""
        ...

    def direct_pairs(self) -> Iterator[Sequence[PairRow]]:
        """The index of direct chats by pair_key, in chunks."""
        ...

    def close(self) -> None: ...


class CounterEvidence(NamedTuple):
    """What a store knows about the highest sequence given out in a chat, as of one instant."""

    chat_exists: bool
    counter: int | None
    highest_message: int
    """0 if there is none."""
    highest_position: int
    """The highest sequence that a member has acknowledged or joined at: it was given out, even if
    the message is gone."""


class NewCounter(NamedTuple):
    """A counter row to be put in place of a missing one."""

    sequence_counter: int
    recovered_from_sequence: int
    now_ms: int


class CounterRepair(Protocol):
    """Puts a missing counter back."""

    def evidence(self, chat_id: ChatId) -> CounterEvidence:
        """Look, and change nothing. Works beside a running server."""
        ...

    def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        """Read the evidence, call `decide`, and put the counter it returns. Returns the evidence.

        Refuses while a server uses the store, if that server could make writes not seen here.
        Atomicity: evidence and put are one transaction where the store can; in any case the put
        happens only if the row is still absent, and nothing else is written. Durable on return.
        `decide` may raise: then nothing is written. Raises StoreUnusable or StoreUnavailable.
        """
        ...

    def close(self) -> None: ...
