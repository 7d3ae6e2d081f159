"""What this device holds of all chats, and what it is missing. PURE.

Messages come by themselves, in pages and as answers to own ones; what continues the prefix of its
chat goes to the disk, the rest waits while what is missing is asked for. Effects go into the list
that is shared with the connection.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidewire.client.digests import Digests
from tidewire.client.effects import (
    PAUSE,
    RESUME,
    ChatChanged,
    Effect,
    Keep,
    Now,
    PlaceChanged,
    Restart,
    Settled,
)
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Entry, Outbox
from tidewire.client.places import Item, Place, PlaceRecord
from tidewire.client.syncs import Syncs
from tidewire.domain.chats import ChatType
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, UserId
from tidewire.wire.error_table import ERROR_TABLE
from tidewire.wire.server_frames import (
    ChatDigestPayload,
    ChatUpdatePayload,
    MessagePayload,
    SendMessageAckPayload,
    StatusUpdatePayload,
    SyncItem,
    SyncResponseFrame,
)

if TYPE_CHECKING:
    from random import Random

CREATED: Final = "created"
MEMBER_ADDED: Final = "member_added"
MEMBER_REMOVED: Final = "member_removed"
_GONE: Final = frozenset({ErrorCode.NOT_A_MEMBER, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN})


class Holdings:
    def __init__(
        self,
        options: ClientOptions,
        random: "Random",
        *,
        outbox: Outbox,
        effects: list[Effect],
        records: Iterable[PlaceRecord],
        user_id: str | None,
    ) -> None:
        self.places: dict[ChatId, Place] = {
            record.chat_id: Place(record, waiting_max=options.waiting_max) for record in records
        }
        self.user_id = user_id
        self.digests = Digests(options)
        self.syncs = Syncs(options, random)
        self.is_digest_complete = False
        """The whole state of all chats was told on this connection."""
        self._options = options
        self._outbox = outbox
        self._effects = effects
        self._is_live = False
        # Chats that are behind since the connection began: it is ready when none is left.
        self._behind: dict[ChatId, None] = {}
        self._unstored = 0
        self._is_paused = False

    @property
    def is_complete(self) -> bool:
        """Everything that the digest told of is held."""
        return self.is_digest_complete and not self._behind

    @property
    def is_full(self) -> bool:
        """The disk is far behind the network: nothing more is asked for."""
        return self._unstored >= self._options.unstored_max

    # The connection.

    def begin(self, user_id: str, *, is_new_epoch: bool, epoch: str, now: Now) -> None:
        """The server has introduced itself; its digest is on its way."""
        self.user_id = user_id
        self._is_live = True
        if is_new_epoch:
            for place in self.places.values():
                place.restarted(place.start)
            self._effects.append(Restart(list(self.places.values()), epoch))
        self.digests.begin(self.member_ids(), now.ms)

    def disconnected(self) -> None:
        self._is_live = self.is_digest_complete = False
        self._behind.clear()
        self.syncs.clear()
        self.digests.clear()
        for place in self.places.values():
            place.disconnected()

    def member_ids(self) -> list[ChatId]:
        return [place.chat_id for place in self.places.values() if place.is_member]

    def is_open(self, chat_id: ChatId) -> bool:
        """Whether what waits for this chat may leave: it is synced, or none of ours to know."""
        place = self.places.get(chat_id)
        if place is not None and place.is_member:
            return place.is_caught_up
        return self.is_digest_complete

    def stored(self, place: Place, through: int, count: int, life: int) -> bool:
        """What a `Keep` asked for is on the disk; False if it was for an earlier life."""
        self._unstored -= count
        if self._is_paused and self._unstored <= self._options.unstored_max // 2:
            self._is_paused = False
            self._effects.append(RESUME)
        if life != place.life:
            return False
        place.stored = max(place.stored, through)
        return True

    # What the server says.

    def digest(self, payload: ChatDigestPayload, now: Now) -> bool:
        """One page; True if it is the last one of the first digest of this connection."""
        for entry in payload.chats:
            place, is_news = self.digests.merge(self.places, entry)
            if is_news:
                place.is_listed = True
                self._effects.append(PlaceChanged(place))
                self._progress(place, now)
                if place.is_behind and not self.is_digest_complete:
                    self._behind[place.chat_id] = None
        if not payload.last:
            return False
        for chat_id in self.digests.complete():
            self.leave(self.places[chat_id])
        is_first = not self.is_digest_complete
        self.is_digest_complete = True
        if is_first:
            for chat_id in self._outbox.waiting_chats():
                if self.is_open(chat_id):
                    self._outbox.release(chat_id)
        return is_first

    def message(self, item: MessagePayload, now: Now) -> None:
        place = self.places.get(item.chat_id)
        if place is None or not place.is_member:
            # A push was missed that told of this chat.
            self.digests.want(now.ms)
            return
        self._keep(place, place.offer(item), now)

    def own_stored(self, entry: Entry, ack: SendMessageAckPayload, now: Now) -> None:
        """The server has a message of ours: it is one of the chat like any other."""
        place = self.places.get(ack.chat_id)
        if place is None:
            self.digests.want(now.ms)
            return
        item = _own_item(entry, ack, self.user_id or "")
        if ack.sequence <= place.cursor:
            # Of an earlier life, and below where this device began: it is shown all the same.
            self._effects.append(Keep(place, (item,), place.cursor, place.life))
            self._unstored += 1
        else:
            place.own_through = max(place.own_through, ack.sequence)
            self._keep(place, place.offer(item), now)

    def page(self, frame: SyncResponseFrame, now: Now) -> None:
        flight = self.syncs.answered(frame.request_id)
        if flight is None or flight.place.chat_id != frame.payload.chat_id:
            return
        place, page = flight.place, frame.payload
        before = place.cursor
        taken = place.offer_page(page.messages, page.synced_through)
        is_complete = not page.has_more and place.cursor >= page.synced_through
        if is_complete:
            self.syncs.succeeded(place)
            place.is_in_doubt = False
        self._keep(place, taken, now, is_complete=is_complete, is_page=True)
        if place.is_behind and place.cursor == before:
            # The page brought nothing: ask again later, not at once and for ever.
            self.syncs.failed(place, now.ms, 0)

    def sync_refused(
        self, place: Place, code: str, retry_after_ms: int, details: object, now: Now
    ) -> None:
        if code in _GONE:
            self.leave(place)
        elif code == ErrorCode.CURSOR_AHEAD:
            head = details.get("head") if isinstance(details, dict) else None
            place.restarted(head if isinstance(head, int) else 0)
            self._effects.append(Restart([place], None))
            self.syncs.want(place, now.ms)
        elif _is_retryable(code):
            self.syncs.failed(place, now.ms, retry_after_ms)
        else:
            # It will not get better by asking again; the next digest will tell.
            place.head = place.cursor
            place.is_in_doubt = False
            self._progress(place, now)

    def status(self, status: StatusUpdatePayload) -> None:
        place = self.places.get(status.chat_id)
        if place is not None:
            place.merge_status(status)
            self._effects.append(PlaceChanged(place))

    def chat_update(self, update: ChatUpdatePayload, now: Now) -> None:
        place = self.places.get(update.chat_id)
        if place is not None and update.membership_version < place.membership_version:
            return
        is_me = update.user_id == self.user_id
        self.digests.updated(update.chat_id)
        if update.change == MEMBER_REMOVED and is_me:
            if place is None:
                # Kept, because an older push that says otherwise may still be on its way.
                place = self._new_place(_place_in(update, start=update.head))
            place.membership_version = update.membership_version
            self.leave(place)
        else:
            if place is None:
                if update.change != CREATED and not (is_me and update.change == MEMBER_ADDED):
                    self.digests.want(now.ms)
                    return
                start = min(update.joined_sequence or 0, update.head)
                place = self._new_place(_place_in(update, start=start))
            place.is_listed = place.is_member = True
            place.membership_version = update.membership_version
            if update.chat_type is ChatType.GROUP:
                place.name = update.name
            place.head = max(place.head, update.head)
            self._effects.append(PlaceChanged(place))
            self._progress(place, now)
        self._effects.append(ChatChanged(update))

    def adopt(self, record: PlaceRecord, now: Now) -> None:
        """A chat that was just made or found by other means than the socket."""
        place = self.places.get(record.chat_id)
        if place is None:
            place = self._new_place(record)
            place.is_listed = self._is_live
        elif record.membership_version >= place.membership_version:
            place.is_member = True
            place.membership_version = record.membership_version
            place.name = record.name or place.name
            place.head = max(place.head, record.head)
        self._effects.append(PlaceChanged(place))
        self._progress(place, now)

    # Messages.

    def _keep(
        self,
        place: Place,
        items: Sequence[Item],
        now: Now,
        *,
        is_complete: bool = False,
        is_page: bool = False,
    ) -> None:
        """What continues the prefix goes to the disk; what is behind it is asked for."""
        if items:
            own_id = self.user_id or ""
            place.count_unread(items, own_id)
            if len(self._outbox):
                for item in items:
                    if item.sender_id == own_id and not item.is_damaged:
                        self._own_arrived(place, item)
            self._unstored += len(items)
            if self.is_full and not self._is_paused:
                self._is_paused = True
                self._effects.append(PAUSE)
        if items or is_page:
            self._effects.append(
                Keep(place, items, place.cursor, place.life, is_complete=is_complete)
            )
        self._progress(place, now)

    def _own_arrived(self, place: Place, item: Item) -> None:
        """A message of ours came back: it is stored, whatever became of the answer."""
        if self._outbox.stored(item.client_message_id) is not None:
            self._effects.append(Settled(item.client_message_id, place.chat_id, item.sequence))

    def _progress(self, place: Place, now: Now) -> None:
        if place.is_behind:
            if place.is_member and self._is_live:
                # While an answer to an own message is due, it may be what fills the gap.
                is_own = place.is_caught_up and place.sends_flying > 0
                self.syncs.want(place, now.ms + self._options.gap_grace_ms * is_own)
            return
        if place.is_listed and not place.is_caught_up:
            place.is_caught_up = True
            self._outbox.release(place.chat_id)
        if place.chat_id in self._behind:
            del self._behind[place.chat_id]

    def leave(self, place: Place) -> None:
        """The chat is not the user's any more. What is held stays."""
        place.is_member = False
        place.waiting.clear()
        place.own_through = 0
        place.head = place.cursor
        place.is_in_doubt = False
        self.syncs.forget(place.chat_id)
        self._behind.pop(place.chat_id, None)
        self._effects.append(PlaceChanged(place))
        # What waits for it is for the server to refuse, not for us (EH-03).
        if self.is_digest_complete:
            self._outbox.release(place.chat_id)

    def _new_place(self, record: PlaceRecord) -> Place:
        place = Place(record, waiting_max=self._options.waiting_max)
        self.places[place.chat_id] = place
        return place


def _place_in(update: ChatUpdatePayload, *, start: int) -> PlaceRecord:
    """A chat that this device hears of for the first time, by a change of it."""
    return PlaceRecord(
        chat_id=update.chat_id,
        chat_type=update.chat_type,
        start=start,
        cursor=start,
        head=update.head,
    )


def _own_item(entry: Entry, ack: SendMessageAckPayload, own_id: str) -> SyncItem:
    """An own message as others get it: the text that was sent, with the numbers of the answer."""
    return SyncItem(
        message_id=ack.message_id,
        sequence=ack.sequence,
        prev_sequence=ack.prev_sequence,
        sender_id=UserId(own_id),
        client_message_id=ack.client_message_id,
        content=entry.content,
        content_type=entry.content_type,
        created_at=ack.created_at,
    )


def _is_retryable(code: str) -> bool:
    try:
        return ERROR_TABLE[ErrorCode(code)].retryable
    except ValueError:
        return True
