"""What this device holds of all chats, and what it is missing. PURE.

Entries come as pushes, in pages and as answers to own entries. An entry that continues the prefix
of its chat goes to the disk; the others wait until the missing ones are fetched. The digest tells
the state of all chats. It is merged and never overrules: an entry of it that is older than what is
known is ignored, and at its end the user counts as removed only from chats that were held before
it began and were neither listed nor changed meanwhile.

Every input returns its effects.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tidewire.client.effects import (
    PAUSE,
    RESUME,
    ChatChanged,
    Dropped,
    Effect,
    Erased,
    Keep,
    Now,
    Release,
    ReplicaChanged,
    Restart,
)
from tidewire.client.entries import Item
from tidewire.client.errors import is_retryable
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import OutboxEntry
from tidewire.client.replica import Replica, ReplicaRecord, first_record, replica_from
from tidewire.client.syncs import Syncs
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import EntryKind
from tidewire.wire.forms import form_of
from tidewire.wire.server_frames import (
    ChatDigestPayload,
    ChatUpdatePayload,
    MessagePayload,
    SendMessageAckPayload,
    StatusUpdatePayload,
    SyncItem,
    SyncResponsePayload,
)

if TYPE_CHECKING:
    from random import Random

CREATED: Final = "created"
MEMBER_ADDED: Final = "member_added"
MEMBER_REMOVED: Final = "member_removed"
EARLY_CHATS_MAX: Final = 1_000
"""How many chats that are not known yet may have an answer to an own entry."""
_GONE: Final = frozenset({ErrorCode.NOT_A_MEMBER, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN})

Effects = list[Effect]


class _Early(msgspec.Struct):
    """Own entries that the server has stored in a chat that is not known yet."""

    before: int
    """The sequence before the first of them."""
    through: int
    """The last of them."""
    entries: list[OutboxEntry] = []
    """Those that are told of if the chat turns out to be none of ours; bounded."""


class Replicas:
    def __init__(
        self,
        options: ClientOptions,
        random: "Random",
        *,
        records: Iterable[ReplicaRecord] = (),
        user_id: str | None = None,
    ) -> None:
        """`records` and `user_id` are those of the last run, if there was one."""
        self._options = options
        self.by_chat: dict[ChatId, Replica] = {}
        """Every chat that this device knows of, also those that were left."""
        # Chats that are not known yet, though the server has stored an entry of ours there.
        self._early: dict[ChatId, _Early] = {}
        for record in records:
            self._add(record)
        self.user_id = user_id
        self.is_digest_complete = False
        """This connection has received a whole digest."""
        self._is_live = False
        self._syncs = Syncs(options, random)
        # The digest: whether one is coming, from what time on another one is wanted, and which
        # chats were held when it began and have not been mentioned since.
        self._is_digest_coming = False
        self._digest_from_ms: int | None = None
        self._has_digest_failed = False
        self._unheard: dict[ChatId, None] = {}
        # Chats that have been behind since the connection began: it is ready when none is left.
        self._behind: dict[ChatId, None] = {}
        self._unstored = 0
        self._is_paused = False

    @property
    def is_complete(self) -> bool:
        """This device holds everything that the digest listed."""
        return self.is_digest_complete and not self._behind

    @property
    def is_full(self) -> bool:
        """The disk is far behind the network: no more pages are requested."""
        return self._unstored >= self._options.unstored_max

    @property
    def awaited_chats(self) -> Collection[ChatId]:
        """Chats that are not known yet, and in which the server has stored entries of ours. Without
        a connection none is awaited."""
        return self._early.keys() if self._is_live else frozenset()

    def is_open(self, chat_id: ChatId) -> bool:
        """Whether entries for this chat may leave: it is synced, or by the digest none of ours."""
        replica = self.by_chat.get(chat_id)
        if replica is not None and replica.is_member:
            return replica.is_caught_up
        return self.is_digest_complete

    # The connection.

    def connected(self, user_id: str, epoch: str, *, is_new_epoch: bool) -> Effects:
        """The server has introduced itself; its digest is on its way."""
        self.user_id = user_id
        self._is_live = True
        self._expect_digest()
        if not is_new_epoch:
            return []
        self._early.clear()
        replicas = list(self.by_chat.values())
        for replica in replicas:
            replica.restart(replica.start)
        return [Restart(replicas, epoch)]

    def disconnected(self) -> None:
        self._is_live = self.is_digest_complete = self._is_digest_coming = False
        self._digest_from_ms = None
        self._behind.clear()
        self._syncs.clear()
        for replica in self.by_chat.values():
            replica.disconnected()

    # What to ask for.

    def want_digest(self, from_ms: int) -> None:
        """A push may have been missed: request a digest at this time, or earlier if planned so. If
        the last request failed, the time of the next one stands."""
        if self._has_digest_failed:
            return
        if self._digest_from_ms is None or from_ms < self._digest_from_ms:
            self._digest_from_ms = from_ms

    def take_digest(self, now_ms: int) -> bool:
        """Whether to request a digest now, one at a time; it then counts as requested."""
        is_due = self._digest_from_ms is not None and self._digest_from_ms <= now_ms
        if is_due and not self._is_digest_coming:
            self._expect_digest()
            return True
        return False

    def digest_failed(self, again_at_ms: int) -> None:
        self._is_digest_coming = False
        self._unheard.clear()
        self._digest_from_ms = again_at_ms
        self._has_digest_failed = True

    def take_pages(self, now_ms: int) -> list[Replica]:
        """Chats of which a page is to be requested now; they then count as requested."""
        return [] if self.is_full else self._syncs.take(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When the next request is due."""
        pages_ms = None if self.is_full else self._syncs.next_deadline_ms()
        digest_ms = None if self._is_digest_coming else self._digest_from_ms
        return min((at for at in (pages_ms, digest_ms) if at is not None), default=None)

    def _expect_digest(self) -> None:
        self._is_digest_coming = True
        self._has_digest_failed = False
        self._digest_from_ms = None
        self._unheard = {one.chat_id: None for one in self.by_chat.values() if one.is_member}

    # What the server says.

    def digest(self, payload: ChatDigestPayload, now: Now) -> Effects:
        """One page of the digest."""
        effects: Effects = []
        for entry in payload.chats:
            effects += self._listed(entry, now)
        if payload.last:
            for chat_id in self._unheard:
                effects += self.leave(chat_id)
            self._unheard = {}
            self._is_digest_coming = False
            self.is_digest_complete = True
            if self._early and self._digest_from_ms is None:
                effects.append(self._give_up_early())
        return effects

    def _give_up_early(self) -> Effect:
        """A digest that is younger than all answers has ended: a chat that is still not known is
        none of ours any more, and this device will hold nothing of it."""
        early, self._early = self._early, {}
        return Dropped([entry for one in early.values() for entry in one.entries])

    def _listed(self, entry: DigestEntry, now: Now) -> Effects:
        self._unheard.pop(entry.chat_id, None)
        replica = self.by_chat.get(entry.chat_id)
        if replica is None:
            start = max(entry.delivered, entry.joined_sequence)
            replica = self._add(
                first_record(entry.chat_id, entry.chat_type, start=start, head=entry.head)
            )
        elif entry.membership_version < replica.membership_version:
            return []
        replica.merge_digest(entry)
        replica.is_listed = True
        effects = [ReplicaChanged(replica), *self._progress(replica, now)]
        if replica.is_behind and not self.is_digest_complete:
            self._behind[replica.chat_id] = None
        return effects

    def message(self, item: MessagePayload, now: Now) -> Effects:
        replica = self.by_chat.get(item.chat_id)
        if replica is None or not replica.is_member:
            # The push that announced this chat was missed.
            self.want_digest(now.ms)
            return []
        return self._keep(replica, replica.offer(item), now)

    def own_stored(self, entry: OutboxEntry, ack: SendMessageAckPayload, now: Now) -> Effects:
        """The server has stored an entry of ours: keep it like any other entry of the chat."""
        replica = self.by_chat.get(ack.chat_id)
        if replica is None:
            # The push that announces this chat comes later, or was missed.
            self._note_early(entry, ack)
            self.want_digest(now.ms)
            return []
        item = _own_item(entry, ack, self.user_id or "")
        if ack.sequence <= replica.cursor:
            if item is None:
                return []
            # Sent in an earlier run, and below the start of this device: it is shown all the same.
            self._unstored += 1
            return [Keep(replica, (item,), replica.cursor, replica.generation)]
        replica.own_through = max(replica.own_through, ack.sequence)
        if item is None:
            replica.head = max(replica.head, ack.sequence)
            return self._progress(replica, now)
        return self._keep(replica, replica.offer(item), now)

    def _note_early(self, entry: OutboxEntry, ack: SendMessageAckPayload) -> None:
        early = self._early.get(ack.chat_id)
        if early is None:
            if len(self._early) >= EARLY_CHATS_MAX:
                return
            early = self._early[ack.chat_id] = _Early(ack.prev_sequence, ack.sequence)
        early.before = min(early.before, ack.prev_sequence)
        early.through = max(early.through, ack.sequence)
        if len(early.entries) < self._options.waiting_max:
            early.entries.append(entry)

    def page(self, replica: Replica, page: SyncResponsePayload, now: Now) -> Effects:
        """The answer to `take_pages`."""
        self._syncs.answered(replica.chat_id)
        if page.chat_id != replica.chat_id:
            return []
        before = replica.cursor
        taken = replica.offer_page(page.messages, page.synced_through)
        is_complete = not page.has_more and replica.cursor >= page.synced_through
        if is_complete:
            self._syncs.succeeded(replica.chat_id)
            replica.is_in_doubt = False
        effects = self._keep(replica, taken, now, is_complete=is_complete, is_page=True)
        if replica.is_behind and replica.cursor == before:
            # The page brought nothing: ask again after a wait, not at once in an endless loop.
            self._syncs.failed(replica, now.ms, 0)
        return effects

    def page_refused(
        self, replica: Replica, code: str, details: object, retry_after_ms: int, now: Now
    ) -> Effects:
        self._syncs.answered(replica.chat_id)
        if code in _GONE:
            return self.leave(replica.chat_id)
        if code == ErrorCode.CURSOR_AHEAD:
            head = details.get("head") if isinstance(details, dict) else None
            replica.restart(head if isinstance(head, int) else 0)
            self._syncs.want(replica, now.ms)
            return [Restart([replica], None)]
        if is_retryable(code):
            self._syncs.failed(replica, now.ms, retry_after_ms)
            return []
        # Another request would be refused too; the next digest tells more.
        replica.stop_syncing()
        return self._progress(replica, now)

    def status(self, status: StatusUpdatePayload) -> Effects:
        replica = self.by_chat.get(status.chat_id)
        if replica is None:
            return []
        replica.merge_status(status)
        return [ReplicaChanged(replica)]

    def chat_update(self, update: ChatUpdatePayload, now: Now) -> Effects:
        chat_id = update.chat_id
        replica = self.by_chat.get(chat_id)
        if replica is not None and update.membership_version < replica.membership_version:
            return []
        is_me = update.user_id == self.user_id
        # The chat changed while the digest was read, so what the digest says of it is old.
        self._unheard.pop(chat_id, None)
        if update.change == MEMBER_REMOVED and is_me:
            if replica is None:
                # Kept, because an older push that says otherwise may still be on its way.
                replica = self._add(_record_in(update, start=update.head))
            replica.membership_version = update.membership_version
            return [*self.leave(chat_id), ChatChanged(update)]
        if replica is None:
            if update.change != CREATED and not (is_me and update.change == MEMBER_ADDED):
                self.want_digest(now.ms)
                return []
            replica = self._add(_record_in(update, start=update.joined_sequence or 0))
        replica.is_listed = replica.is_member = True
        replica.membership_version = update.membership_version
        if update.chat_type is ChatType.GROUP:
            replica.name = update.name
        replica.head = max(replica.head, update.head)
        return [ReplicaChanged(replica), *self._progress(replica, now), ChatChanged(update)]

    # What the device does.

    def adopt(self, record: ReplicaRecord, now: Now) -> Effects:
        """Add a chat that was just made or found, but not over the socket."""
        replica = self.by_chat.get(record.chat_id)
        if replica is None:
            replica = self._add(record)
            replica.is_listed = self._is_live
        elif record.membership_version >= replica.membership_version:
            replica.is_member = True
            replica.membership_version = record.membership_version
            replica.name = record.name or replica.name
            replica.head = max(replica.head, record.head)
        return [ReplicaChanged(replica), *self._progress(replica, now)]

    def own_sent(self, chat_id: ChatId) -> None:
        """A message of ours has left for this chat."""
        replica = self.by_chat.get(chat_id)
        if replica is not None:
            replica.sends_flying += 1

    def own_answered(self, chat_id: ChatId) -> None:
        replica = self.by_chat.get(chat_id)
        if replica is not None and replica.sends_flying:
            replica.sends_flying -= 1

    def stored(self, replica: Replica, through: int, count: int, generation: int) -> Effects:
        """The store has carried out a `Keep`: its entries are on the disk."""
        self._unstored -= count
        if generation == replica.generation:
            replica.stored = max(replica.stored, through)
        if self._is_paused and self._unstored <= self._options.unstored_max // 2:
            self._is_paused = False
            return [RESUME]
        return []

    def erased(self, keep: Keep, erased: Iterable[Erased]) -> Effects:
        """Take erased messages out of the unread count, unless the server has counted since."""
        if keep.counts_told != keep.replica.counts_told:
            return []
        return _uncounted(keep.replica, [one for one in erased if one.by in keep.deletions])

    def erased_elsewhere(self, replica: Replica, erased: Iterable[Erased]) -> Effects:
        return _uncounted(replica, [one for one in erased if one.by > replica.counted_through])

    def leave(self, chat_id: ChatId) -> Effects:
        """The user is not in the chat any more. What is held stays."""
        replica = self.by_chat.get(chat_id)
        if replica is None:
            return []
        replica.leave()
        self._syncs.forget(chat_id)
        self._behind.pop(chat_id, None)
        effects: Effects = [ReplicaChanged(replica)]
        if self.is_digest_complete:
            # The server has to refuse entries that wait for it, not this client (EH-03).
            effects.append(Release(chat_id))
        return effects

    # Entries.

    def _keep(
        self,
        replica: Replica,
        items: Sequence[Item],
        now: Now,
        *,
        is_complete: bool = False,
        is_page: bool = False,
    ) -> Effects:
        """Send entries that continue the prefix to the disk; request those that are missing."""
        effects: Effects = []
        deletions: list[int] = []
        if items:
            deletions = replica.count_unread(items, self.user_id or "")
            if deletions:
                self._look_below(replica, items, now)
            self._unstored += len(items)
            if self.is_full and not self._is_paused:
                self._is_paused = True
                effects.append(PAUSE)
        if items or is_page:
            effects.append(
                Keep(
                    replica,
                    items,
                    replica.cursor,
                    replica.generation,
                    is_complete=is_complete,
                    deletions=deletions,
                    counts_told=replica.counts_told,
                )
            )
        effects += self._progress(replica, now)
        return effects

    def _look_below(self, replica: Replica, items: Sequence[Item], now: Now) -> None:
        """Want a digest if a deleted message that this device never held may have been unread: only
        the server can tell."""
        if any(
            item.kind == EntryKind.DELETE
            and item.target is not None
            and replica.read < item.target <= replica.start
            for item in items
        ):
            self.want_digest(now.ms)

    def _progress(self, replica: Replica, now: Now) -> Effects:
        """Request missing entries; if there are none, let entries for this chat leave."""
        if replica.is_behind:
            if replica.is_member and self._is_live:
                # While an answer to an own message is due, that answer may fill the gap.
                is_own = replica.is_caught_up and replica.sends_flying > 0
                self._syncs.want(replica, now.ms + self._options.gap_grace_ms * is_own)
            return []
        self._behind.pop(replica.chat_id, None)
        if replica.is_listed and not replica.is_caught_up:
            replica.is_caught_up = True
            return [Release(replica.chat_id)]
        return []

    def _add(self, record: ReplicaRecord) -> Replica:
        early = self._early.pop(record.chat_id, None)
        if early is not None and early.before < record.start:
            # The server counts an own entry as delivered, but this device does not hold it yet.
            record.start = record.cursor = early.before
        replica = replica_from(record, waiting_max=self._options.waiting_max)
        if early is not None:
            replica.head = max(replica.head, early.through)
            if self._is_live:
                replica.own_through = early.through
        self.by_chat[replica.chat_id] = replica
        return replica


def _uncounted(replica: Replica, erased: Iterable[Erased]) -> Effects:
    gone = [replica.uncount(one.sequence, is_mention=one.is_mention) for one in erased]
    return [ReplicaChanged(replica)] if any(gone) else []


def _record_in(update: ChatUpdatePayload, *, start: int) -> ReplicaRecord:
    return first_record(update.chat_id, update.chat_type, start=start, head=update.head)


def _own_item(entry: OutboxEntry, ack: SendMessageAckPayload, own_id: str) -> SyncItem | None:
    """An own entry as others get it: what was sent, with the numbers of the answer. None: the
    answer lacks one of its numbers, so the entry has to be fetched."""
    amends = entry.amends
    if amends is None:
        return form_of(SyncItem, ack, entry.body, sender_id=own_id)
    is_reaction = amends.kind is EntryKind.REACT
    if is_reaction and ack.count is None:
        return None
    own = form_of(SyncItem, ack, entry.body, amends, sender_id=own_id)
    return own if is_reaction else replace(own, is_on=None)
