"""Mutants of MR, AK, RS, EH and some of TW: what a client holds, and tells of it. Holds no test."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.support.client_mutants.registry import Patch, mutant
from tidewire.client import (
    acks,
    chat,
    connection,
    holdings,
    link,
    outbox,
    syncs,
    tables,
    transport,
)
from tidewire.client.connection import Connection
from tidewire.client.digests import Digests
from tidewire.client.effects import Now, Refusal, Send
from tidewire.client.errors import ClientClosed
from tidewire.client.holdings import Holdings
from tidewire.client.link import Link
from tidewire.client.model import Kept
from tidewire.client.outbox import Entry, Outbox
from tidewire.client.places import Item, Place, PlaceRecord
from tidewire.client.syncs import Syncs
from tidewire.client.writing import Writing
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.errors import ErrorCode
from tidewire.wire.client_frames import AckFrame, AckPayload
from tidewire.wire.codec import FrameRefusal, UnknownFrame, decode_server_frame
from tidewire.wire.server_frames import ChatUpdatePayload, MessageFrame, MessagePayload

# Receiving.


def _shown_by(patch: Patch, key: Callable[[Kept], object]) -> None:
    original = tables.Tables.messages

    def mutated(self: Any, *given: Any, **more: Any) -> list[Kept]:
        return sorted(original(self, *given, **more), key=key)  # type: ignore[arg-type]

    patch.setattr(tables.Tables, "messages", mutated)


@mutant("MR-01")
def shown_by_time(patch: Patch) -> None:
    _shown_by(patch, lambda kept: kept.created_at)


@mutant("MR-02")
def duplicates_are_kept(patch: Patch) -> None:
    original = Place.offer

    def mutated(self: Place, item: Item) -> Sequence[Item]:
        return (item,) if item.sequence <= self.cursor else original(self, item)

    patch.setattr(Place, "offer", mutated)
    patch.setattr(tables, "_SCHEMA", tables._SCHEMA.replace("CREATE UNIQUE INDEX", "CREATE INDEX"))


@mutant("MR-03", TW_06="a restore jumps the numbers ahead: a hole like any other")
def waits_for_every_number(patch: Patch) -> None:
    def offer(self: Place, item: Item) -> Sequence[Item]:
        self.head = max(self.head, item.sequence)
        return _taken(self, [item])

    def offer_page(self: Place, items: Sequence[Item], through: int) -> Sequence[Item]:
        return _taken(self, items)

    def _taken(place: Place, items: Sequence[Item]) -> list[Item]:
        for item in items:
            if item.sequence > place.cursor:
                place.waiting[item.sequence] = item
        taken = []
        while place.cursor + 1 in place.waiting:
            place.cursor += 1
            taken.append(place.waiting.pop(place.cursor))
        place.head = max(place.head, place.cursor)
        return taken

    patch.setattr(Place, "offer", offer)
    patch.setattr(Place, "offer_page", offer_page)


@mutant("MR-04")
def shown_as_it_arrives(patch: Patch) -> None:
    original = Place.offer

    def mutated(self: Place, item: Item) -> Sequence[Item]:
        taken = original(self, item)
        return (item,) if not taken and item.sequence > self.cursor else taken

    patch.setattr(Place, "offer", mutated)
    _shown_by(patch, lambda kept: kept.position)


@mutant("MR-05", TW_12="that check begins with a message that was lost")
def waits_for_the_missing(patch: Patch) -> None:
    original = Holdings.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> None:
        original(self, item, now)
        self.syncs.forget(item.chat_id)

    patch.setattr(Holdings, "message", mutated)


@mutant("TW-02")
def own_messages_look_like_gaps(patch: Patch) -> None:
    original = Syncs.want

    def mutated(self: Any, place: Place, from_ms: int) -> None:
        original(self, place, 0)

    patch.setattr(Syncs, "want", mutated)


@mutant("TW-12")
def pushes_are_dropped_while_it_syncs(patch: Patch) -> None:
    original = Holdings.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> None:
        if item.chat_id not in self.syncs._asked:
            original(self, item, now)

    patch.setattr(Holdings, "message", mutated)


# Whose chats.


@mutant("TW-10")
def the_last_word_counts(patch: Patch) -> None:
    original = Holdings.chat_update

    def mutated(self: Any, update: ChatUpdatePayload, now: Now) -> None:
        place = self.places.get(update.chat_id)
        if place is not None:
            place.membership_version = 0
        original(self, update, now)

    patch.setattr(Holdings, "chat_update", mutated)


@mutant("TW-10")
def a_removal_from_an_unknown_chat_is_forgotten(patch: Patch) -> None:
    original = Holdings.chat_update

    def mutated(self: Any, update: ChatUpdatePayload, now: Now) -> None:
        is_gone = update.change == holdings.MEMBER_REMOVED and update.user_id == self.user_id
        if not is_gone or update.chat_id in self.places:
            original(self, update, now)

    patch.setattr(Holdings, "chat_update", mutated)


@mutant("TW-11")
def news_about_others_mean_nothing(patch: Patch) -> None:
    original = Holdings.chat_update

    def mutated(self: Any, update: ChatUpdatePayload, now: Now) -> None:
        place = self.places.get(update.chat_id)
        if update.user_id == self.user_id or (place is not None and place.is_member):
            original(self, update, now)

    patch.setattr(Holdings, "chat_update", mutated)


@mutant("TW-11")
def a_push_of_an_unknown_chat_means_nothing(patch: Patch) -> None:
    original = Holdings.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> None:
        if item.chat_id in self.places:
            original(self, item, now)

    patch.setattr(Holdings, "message", mutated)


# Acknowledging.


def _ack_frames(patch: Patch, position: Callable[[Place], int]) -> None:
    """Acknowledge another position than what is stored."""
    original = acks._frames

    def mutated(place: Place) -> Any:
        stored = place.stored
        place.stored = max(stored, position(place))
        try:
            return original(place)
        finally:
            place.stored = stored

    patch.setattr(acks, "_frames", mutated)


@mutant("AK-01")
def acks_the_highest(patch: Patch) -> None:
    _ack_frames(patch, lambda place: max(place.waiting, default=0))


@mutant("AK-02", TW_03="who acknowledges each message does so in groups, too")
def acks_every_message(patch: Patch) -> None:
    original = Connection.stored

    def mutated(self: Any, place: Place, through: int, count: int, life: int, now: Now) -> Any:
        payload = AckPayload(chat_id=place.chat_id, last_acked_sequence=through)
        each = [Send(AckFrame(payload=payload))] * count
        return [*original(self, place, through, count, life, now), *each]

    patch.setattr(Connection, "stored", mutated)


@mutant("AK-03")
def acks_before_storing(patch: Patch) -> None:
    original = Connection._on_message

    def on_message(self: Any, frame: MessageFrame, now: Now) -> None:
        original(self, frame, now)
        place = self.places[frame.payload.chat_id]
        place.stored = place.cursor
        self._acks.stored(place, 1, now.ms)

    def soon(self: Any) -> None:
        if not self._is_soon:
            self._is_soon = True
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(0.3, self.flush)

    patch.setattr(Connection, "_on_message", on_message)
    patch.setattr(Writing, "_soon", soon)


@mutant("AK-04")
def leaves_without_acks(patch: Patch) -> None:
    original = Connection._flush_acks

    def mutated(self: Any, now: Now, *, is_last: bool = False) -> None:
        if not is_last:
            original(self, now)

    patch.setattr(Connection, "_flush_acks", mutated)


@mutant("AK-05")
def one_position_for_all_chats(patch: Patch) -> None:
    original = Holdings.stored
    owners: dict[int, tuple[Place, Holdings]] = {}

    def mutated(self: Any, place: Place, *given: Any) -> bool:
        owners[id(place)] = place, self
        return original(self, place, *given)

    def position(place: Place) -> int:
        if id(place) not in owners:
            return 0
        return max(other.stored for other in owners[id(place)][1].places.values())

    patch.setattr(Holdings, "stored", mutated)
    _ack_frames(patch, position)


@mutant("AK-06", TW_03="an acknowledgement that does not come is not there at once")
def acks_only_at_the_end(patch: Patch) -> None:
    patch.setattr(acks.Acks, "next_deadline_ms", lambda self: None)


@mutant("TW-03")
def second_tick_takes_five_seconds(patch: Patch) -> None:
    patch.setattr(acks.Acks, "_from_ms", lambda self, place, now_ms: now_ms + self._options.ack_ms)


@mutant("TW-03")
def groups_are_like_direct_chats(patch: Patch) -> None:
    def mutated(self: Any, place: Place, now_ms: int) -> int:
        return now_ms

    patch.setattr(acks.Acks, "_from_ms", mutated)


# Recovering.


@mutant("RS-01")
def syncs_two_chats_after_a_reconnect(patch: Patch) -> None:
    original = Digests.merge

    def mutated(self: Digests, places: dict[Any, Place], entry: DigestEntry) -> Any:
        place, is_news = original(self, places, entry)
        if list(places).index(entry.chat_id) >= 2 and place.cursor > 0:
            place.head = place.cursor
        return place, is_news

    patch.setattr(Digests, "merge", mutated)


@mutant("RS-02")
def syncs_from_where_the_user_is(patch: Patch) -> None:
    original = Place.merge_digest

    def mutated(self: Place, entry: DigestEntry) -> None:
        original(self, entry)
        self.cursor = max(self.cursor, min(entry.delivered, entry.head))

    patch.setattr(Place, "merge_digest", mutated)


@mutant("RS-02")
def each_life_syncs_from_the_start(patch: Patch) -> None:
    original = tables.Tables.places

    def mutated(self: Any) -> list[PlaceRecord]:
        return [msgspec.structs.replace(one, cursor=one.start) for one in original(self)]

    patch.setattr(tables.Tables, "places", mutated)


@mutant("RS-03")
def slow_consumer_is_the_end(patch: Patch) -> None:
    original = link._comes_back
    patch.setattr(
        link, "_comes_back", lambda reason: reason != "slow_consumer" and original(reason)
    )


@mutant("RS-04")
def retries_forbidden(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: Entry, code: str) -> bool:
        return code in (ErrorCode.FORBIDDEN, ErrorCode.NOT_A_MEMBER) or original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("RS-04")
def asks_again_where_it_is_no_member(patch: Patch) -> None:
    original = holdings._is_retryable
    patch.setattr(holdings, "_GONE", frozenset())
    patch.setattr(
        holdings, "_is_retryable", lambda code: code == ErrorCode.NOT_A_MEMBER or original(code)
    )


@mutant("RS-05")
def syncs_one_at_a_time(patch: Patch) -> None:
    original = Syncs.due

    def mutated(self: Any, now_ms: int) -> list[Place]:
        if self._flying:
            return []
        due = original(self, now_ms)
        for place in due[1:]:
            self._wanted[place.chat_id] = (place, now_ms)
        return due[:1]

    patch.setattr(Syncs, "due", mutated)


# Errors.


@mutant("EH-01")
def rate_limits_are_failures(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: Entry, code: str) -> bool:
        return code != ErrorCode.RATE_LIMITED and original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("EH-01")
def retries_what_is_final(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: Entry, code: str) -> bool:
        return code == ErrorCode.INVALID_CONTENT or original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("EH-01")
def does_not_wait_as_long_as_told(patch: Patch) -> None:
    patch.setattr(connection, "_retry_after_ms", lambda details: 0)


@mutant("EH-01")
def keeps_the_token_that_ended(patch: Patch) -> None:
    never = property(lambda self: False, lambda self, value: None)
    patch.setattr(Link, "needs_new_token", never, raising=False)


@mutant("EH-01")
def cursor_ahead_is_ignored(patch: Patch) -> None:
    original = Holdings.sync_refused

    def mutated(self: Any, place: Place, code: str, *more: Any) -> None:
        original(self, place, "INVALID_MESSAGE" if code == "CURSOR_AHEAD" else code, *more)

    patch.setattr(Holdings, "sync_refused", mutated)


@mutant("EH-02")
def unknown_types_end_it(patch: Patch) -> None:
    original = Connection.receive

    def mutated(self: Any, frame: Any, now: Now) -> Any:
        if isinstance(frame, UnknownFrame):
            self._give_up(now, "unknown_frame")
        return original(self, frame, now)

    patch.setattr(Connection, "receive", mutated)


@mutant("EH-03")
def decides_who_may_send(patch: Patch) -> None:
    original = chat.Chat.send

    async def mutated(self: Any, text: str, **more: Any) -> Any:
        if not self.is_member:
            raise ClientClosed("not a member")
        return await original(self, text, **more)

    patch.setattr(chat.Chat, "send", mutated)


@mutant("EH-04")
def retries_at_once(patch: Patch) -> None:
    patch.setattr(outbox, "backoff_ms", lambda failures, random, *, first_ms, longest_ms: 0)


@mutant("EH-04")
def unavailable_is_a_failure(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: Entry, code: str) -> bool:
        return code != ErrorCode.SERVICE_UNAVAILABLE and original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("EH-04")
def asks_again_at_once(patch: Patch) -> None:
    patch.setattr(syncs, "backoff_ms", lambda failures, random, *, first_ms, longest_ms: 0)


@mutant("EH-04")
def unavailable_is_the_end(patch: Patch) -> None:
    original = Link.refused

    def mutated(self: Any, refusal: Refusal, now: Now) -> Any:
        gone = msgspec.structs.replace(refusal, status=400) if refusal.status == 503 else refusal
        return original(self, gone, now)

    patch.setattr(Link, "refused", mutated)


@mutant("EH-05")
def measures_nothing(patch: Patch) -> None:
    patch.setattr(Link, "heartbeat_answered", lambda self, request_id, now: None)


@mutant("TW-13")
def damaged_messages_are_no_messages(patch: Patch) -> None:
    def mutated(data: Any) -> Any:
        if b'"is_damaged":true' not in bytes(data):
            return decode_server_frame(data)
        return FrameRefusal(
            code=ErrorCode.INVALID_MESSAGE,
            message="no content",
            request_id=None,
            counts_against_budget=True,
            frame_type=None,
        )

    patch.setattr(transport, "decode_server_frame", mutated)
