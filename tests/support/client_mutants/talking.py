"""Mutants of CL, MS and TW: what a client sends, and when. Holds no test."""

import hashlib
import uuid
from typing import Any

from tests.support.client_mutants.registry import Patch, mutant
from tidewire.client import (
    chat,
    credentials,
    driver,
    link,
    sending,
    tables,
    transport,
)
from tidewire.client.client import Client
from tidewire.client.connection import Connection
from tidewire.client.effects import ConnectionState, Now, Send, Status
from tidewire.client.errors import ClientClosed
from tidewire.client.link import Link
from tidewire.client.outbox import Outbox, OutboxEntry
from tidewire.client.replica import Replica
from tidewire.client.requests import Requests
from tidewire.domain.errors import InvalidMessage
from tidewire.domain.ids import ClientMessageId
from tidewire.domain.limits import CONTENT_BYTES_MAX
from tidewire.domain.messages import SendMessage
from tidewire.wire.client_frames import DigestRequestFrame, EmptyPayload
from tidewire.wire.server_frames import StatusUpdatePayload

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
    patch.setattr(link, "backoff_ms", lambda failures, random, options: options.backoff_ms)


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

    def _rename(box: Outbox, entry: OutboxEntry) -> None:
        del box._entries[entry.client_message_id]
        flying = box._lanes[entry.chat_id].flying
        del flying[entry.client_message_id]
        entry.client_message_id = ClientMessageId(str(uuid.uuid4()))
        box._entries[entry.client_message_id] = flying[entry.client_message_id] = entry

    patch.setattr(Outbox, "take", mutated)


@mutant("MS-03")
def few_request_ids(patch: Patch) -> None:
    def mutated(self: Any) -> str:
        self._made += 1
        return str(self._made % 8)

    patch.setattr(Requests, "new_id", mutated)


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
    patch.setattr(sending, "check_send", lambda send: None)


@mutant("MS-06")
def letters_are_counted_for_bytes(patch: Patch) -> None:
    def mutated(send: SendMessage) -> None:
        if not 1 <= len(send.content) <= CONTENT_BYTES_MAX:
            raise InvalidMessage("its size is not allowed")

    patch.setattr(sending, "check_send", mutated)


@mutant("MS-07")
def takes_texts_only_when_ready(patch: Patch) -> None:
    original = sending.Sending.send

    async def mutated(self: Any, *given: Any, **more: Any) -> Any:
        if self._driver.status.state in (ConnectionState.CONNECTING, ConnectionState.SYNCING):
            raise ClientClosed("not now")
        return await original(self, *given, **more)

    patch.setattr(sending.Sending, "send", mutated)


# The protocol's own.


@mutant("TW-01")
def refused_ones_go_to_the_end(patch: Patch) -> None:
    def mutated(self: Any, lane: Any, entries: Any) -> None:
        lane.queued.extend(entries)

    patch.setattr(Outbox, "_requeue", mutated)


@mutant("TW-01")
def gives_up_without_a_word(patch: Patch) -> None:
    original = OutboxEntry.frame

    def mutated(self: OutboxEntry, request_id: str) -> Any:
        self.is_first = False
        return original(self, request_id)

    patch.setattr(OutboxEntry, "frame", mutated)


@mutant("TW-04")
def ticks_follow_the_last_word(patch: Patch) -> None:
    def mutated(self: Replica, status: StatusUpdatePayload) -> None:
        self.others_delivered, self.others_read = status.others_delivered, status.others_read

    patch.setattr(Replica, "merge_status", mutated)


@mutant("TW-05")
def resync_is_ignored(patch: Patch) -> None:
    patch.setattr(Connection, "_on_resync", lambda self, frame, now: [])


@mutant("TW-06")
def epoch_is_ignored(patch: Patch) -> None:
    original = Connection._on_established

    def mutated(self: Any, frame: Any, now: Now) -> Any:
        self.epoch = frame.payload.epoch
        return original(self, frame, now)

    patch.setattr(Connection, "_on_established", mutated)


@mutant("TW-07")
def silence_is_not_noticed(patch: Patch) -> None:
    original = Connection._watch

    def mutated(self: Any, now: Now) -> Any:
        self._link.heard(now)
        return original(self, now)

    patch.setattr(Connection, "_watch", mutated)


@mutant("TW-09")
def always_comes_back(patch: Patch) -> None:
    patch.setattr(link, "_comes_back", lambda reason: True)
