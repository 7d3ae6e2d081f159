"""Our client with exactly one rule broken, one mutant a duty. Holds no test.

Each mutant still works as a client: only its own duty is not done. That is what shows that the
check of this duty sees something, and that the other checks do not lean on it.
"""

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tidewire.client import (
    acks,
    chat,
    connection,
    credentials,
    driver,
    holdings,
    link,
    outbox,
    syncs,
    tables,
    transport,
)
from tidewire.client.client import Client
from tidewire.client.connection import Connection
from tidewire.client.digests import Digests
from tidewire.client.effects import ConnectionState, Now, Refusal, Send, Status
from tidewire.client.errors import ClientClosed
from tidewire.client.holdings import Holdings
from tidewire.client.link import Link
from tidewire.client.model import Kept
from tidewire.client.outbox import Entry, Outbox
from tidewire.client.places import Item, Place, PlaceRecord
from tidewire.client.syncs import Syncs
from tidewire.client.writing import Writing
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.errors import ErrorCode, InvalidMessage
from tidewire.domain.ids import ClientMessageId
from tidewire.domain.limits import CONTENT_BYTES_MAX
from tidewire.domain.messages import SendMessage
from tidewire.wire.client_frames import DigestRequestFrame, EmptyPayload
from tidewire.wire.codec import UnknownFrame
from tidewire.wire.server_frames import MessageFrame, MessagePayload, StatusUpdatePayload

Patch = pytest.MonkeyPatch
Apply = Callable[[Patch], None]


@dataclass(frozen=True)
class Mutant:
    """`also_breaks`: other duties that cannot be kept without this one, each with the reason."""

    duty: str
    apply: Apply
    also_breaks: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.duty}-{self.apply.__name__}"


MUTANTS: list[Mutant] = []


def mutant(duty: str, **also_breaks: str) -> Callable[[Apply], Apply]:
    def register(apply: Apply) -> Apply:
        named = {name.replace("_", "-"): reason for name, reason in also_breaks.items()}
        MUTANTS.append(Mutant(duty, apply, named))
        return apply

    return register


# Connecting.


@mutant("CL-01")
def token_in_the_url(patch: Patch) -> None:
    original = transport.Socket.open

    async def mutated(self: Any, url: str, *, headers: dict[str, str], **more: Any) -> None:
        token = headers["Authorization"].removeprefix("Bearer ")
        rest = {name: value for name, value in headers.items() if name != "Authorization"}
        await original(self, f"{url}?token={token}", headers=rest, **more)

    patch.setattr(transport.Socket, "open", mutated)


@mutant("CL-02")
def device_not_told(patch: Patch) -> None:
    original = transport.Socket.open

    async def mutated(self: Any, url: str, *, headers: dict[str, str], **more: Any) -> None:
        rest = {name: value for name, value in headers.items() if name != "X-Device-ID"}
        await original(self, url, headers=rest, **more)

    patch.setattr(transport.Socket, "open", mutated)


@mutant("CL-02")
def new_device_each_time(patch: Patch) -> None:
    original = transport.Socket.open

    async def mutated(self: Any, url: str, *, headers: dict[str, str], **more: Any) -> None:
        await original(self, url, headers={**headers, "X-Device-ID": str(uuid.uuid4())}, **more)

    patch.setattr(transport.Socket, "open", mutated)


@mutant("CL-03")
def talks_before_the_introduction(patch: Patch) -> None:
    original = driver.Driver._connect

    async def mutated(self: Any, with_new_token: bool) -> None:
        await original(self, with_new_token)
        if self._socket is not None and not self.core._link.is_established:
            early = DigestRequestFrame(request_id="early", payload=EmptyPayload())
            self.apply([Send(early)])

    patch.setattr(driver.Driver, "_connect", mutated)


@mutant("CL-04")
def heartbeats_too_seldom(patch: Patch) -> None:
    def mutated(self: Any, now: Now) -> None:
        self._heartbeat_at_ms = now.ms + 3 * self._interval_ms

    patch.setattr(Link, "_schedule_heartbeat", mutated)


@mutant("CL-04")
def heartbeats_too_often(patch: Patch) -> None:
    def mutated(self: Any, now: Now) -> None:
        self._heartbeat_at_ms = now.ms + self._interval_ms // 2

    patch.setattr(Link, "_schedule_heartbeat", mutated)


@mutant("CL-05")
def sends_on_a_closing_connection(patch: Patch) -> None:
    may_send = property(lambda self: self.is_established and not self.is_renewing)
    patch.setattr(Link, "may_send", may_send)


@mutant("CL-05")
def comes_back_before_it_is_time(patch: Patch) -> None:
    original = Link._wait

    def mutated(self: Any, now: Now, reason: str, *, told_ms: int = 0, **more: int) -> None:
        original(self, now, reason, **more)

    patch.setattr(Link, "_wait", mutated)


@mutant("CL-06")
def always_comes_back_after_a_second(patch: Patch) -> None:
    patch.setattr(link, "backoff_ms", lambda failures, random, *, first_ms, longest_ms: first_ms)


@mutant("CL-07")
def never_renews_in_time(patch: Patch) -> None:
    original = credentials.Credentials._take

    def mutated(self: Any, token: str) -> None:
        original(self, token)
        self.renew_at_ms = None

    patch.setattr(credentials.Credentials, "_take", mutated)


@mutant("CL-08")
def always_looks_ready(patch: Patch) -> None:
    patch.setattr(Client, "status", property(lambda self: Status(ConnectionState.READY)))


@mutant("CL-08")
def looks_ready_while_it_syncs(patch: Patch) -> None:
    def status(self: Any) -> Status:
        is_syncing = self.driver.status.state is ConnectionState.SYNCING
        return Status(ConnectionState.READY) if is_syncing else self.driver.status

    patch.setattr(Client, "status", property(status))


# Sending.


@mutant("MS-01")
def ids_of_another_kind(patch: Patch) -> None:
    patch.setattr(Client, "new_id", lambda self: str(uuid.uuid1()))


@mutant("MS-01", MS_05="an id that is made of the text is used again with the text")
def ids_made_of_the_text(patch: Patch) -> None:
    original = chat.Chat.send

    async def mutated(self: Any, text: str, **more: Any) -> Any:
        digest = hashlib.sha256(text.encode()).digest()
        key = str(uuid.UUID(bytes=digest[:16], version=4))
        return await original(self, text, client_message_id=key, **more)

    patch.setattr(chat.Chat, "send", mutated)


@mutant("MS-02")
def new_id_on_each_retry(patch: Patch) -> None:
    original = Outbox.take

    def mutated(self: Any, now_ms: int, wall_ms: int) -> Any:
        leaving, doubtful = original(self, now_ms, wall_ms)
        sent = self.__dict__.setdefault("sent_ids", set())
        for entry in leaving:
            if entry.client_message_id in sent:
                _rename(self, entry)
            sent.add(entry.client_message_id)
        return leaving, doubtful

    def _rename(box: Outbox, entry: Entry) -> None:
        del box._entries[entry.client_message_id]
        flying = box._lanes[entry.chat_id].flying
        del flying[entry.client_message_id]
        entry.client_message_id = ClientMessageId(str(uuid.uuid4()))
        box._entries[entry.client_message_id] = flying[entry.client_message_id] = entry

    patch.setattr(Outbox, "take", mutated)


@mutant("MS-03")
def few_request_ids(patch: Patch) -> None:
    def mutated(self: Any) -> str:
        self._requests_made += 1
        return str(self._requests_made % 8)

    patch.setattr(Connection, "_new_request_id", mutated)


@mutant("MS-04")
def outbox_in_memory_only(patch: Patch) -> None:
    patch.setattr(tables.Tables, "put_entries", lambda self, entries: {})


@mutant("MS-05")
def each_life_counts_from_one(patch: Patch) -> None:
    original = chat.Chat.send

    async def mutated(self: Any, text: str, **more: Any) -> Any:
        client = self._client
        client.sends_made = getattr(client, "sends_made", 0) + 1
        key = f"00000000-0000-4000-9000-{client.sends_made:012d}"
        return await original(self, text, client_message_id=key, **more)

    patch.setattr(chat.Chat, "send", mutated)


@mutant("MS-06")
def any_size_is_sent(patch: Patch) -> None:
    patch.setattr(chat, "check_send", lambda send: None)


@mutant("MS-06")
def letters_are_counted_for_bytes(patch: Patch) -> None:
    def mutated(send: SendMessage) -> None:
        if not 1 <= len(send.content) <= CONTENT_BYTES_MAX:
            raise InvalidMessage("its size is not allowed")

    patch.setattr(chat, "check_send", mutated)


@mutant("MS-07")
def takes_texts_only_when_ready(patch: Patch) -> None:
    original = driver.Driver.send

    async def mutated(self: Any, handle: Any, **more: Any) -> Any:
        if self.status.state in (ConnectionState.CONNECTING, ConnectionState.SYNCING):
            raise ClientClosed("not now")
        return await original(self, handle, **more)

    patch.setattr(driver.Driver, "send", mutated)


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


@mutant("MR-05")
def waits_for_the_missing(patch: Patch) -> None:
    original = Holdings.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> None:
        original(self, item, now)
        self.syncs.forget(item.chat_id)

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


@mutant("AK-02")
def acks_every_message(patch: Patch) -> None:
    def mutated(self: Any, place: Place, count: int, now_ms: int) -> None:
        self._due.setdefault(place.chat_id, place)
        self._due_at_ms = self._not_before_ms = now_ms

    patch.setattr(acks.Acks, "stored", mutated)


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


@mutant("AK-06")
def acks_only_at_the_end(patch: Patch) -> None:
    def mutated(self: Any, place: Place, count: int, now_ms: int) -> None:
        self._due.setdefault(place.chat_id, place)

    patch.setattr(acks.Acks, "stored", mutated)


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


# The protocol's own.


@mutant("TW-04")
def ticks_follow_the_last_word(patch: Patch) -> None:
    def mutated(self: Place, status: StatusUpdatePayload) -> None:
        self.others_delivered, self.others_read = status.others_delivered, status.others_read

    patch.setattr(Place, "merge_status", mutated)


@mutant("TW-05")
def resync_is_ignored(patch: Patch) -> None:
    patch.setattr(Connection, "_on_resync", lambda self, frame, now: None)


@mutant("TW-06")
def epoch_is_ignored(patch: Patch) -> None:
    original = Connection._on_established

    def mutated(self: Any, frame: Any, now: Now) -> None:
        self.epoch = frame.payload.epoch
        original(self, frame, now)

    patch.setattr(Connection, "_on_established", mutated)


@mutant("TW-07")
def silence_is_not_noticed(patch: Patch) -> None:
    original = Connection._watch

    def mutated(self: Any, now: Now) -> None:
        self._link.heard(now)
        original(self, now)

    patch.setattr(Connection, "_watch", mutated)


@mutant("TW-09")
def always_comes_back(patch: Patch) -> None:
    patch.setattr(link, "_comes_back", lambda reason: True)
