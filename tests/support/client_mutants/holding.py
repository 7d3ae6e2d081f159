"""Mutants of MR, AK, RS, EH and some of TW: a client's state, and what it shows. Holds no test."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.support.client_mutants.registry import Patch, mutant
from tidewire.client import (
    acks,
    chat,
    connection,
    driver,
    errors,
    link,
    outbox,
    replicas,
    schema,
    syncs,
    tables,
    transport,
)
from tidewire.client.connection import Connection
from tidewire.client.effects import Introduced, Now, Refusal, Send
from tidewire.client.entries import Item
from tidewire.client.errors import ClientClosed
from tidewire.client.link import Link
from tidewire.client.model import MessageRow
from tidewire.client.outbox import Outbox, OutboxEntry
from tidewire.client.replica import Replica, ReplicaRecord
from tidewire.client.replicas import Replicas
from tidewire.client.syncs import Syncs
from tidewire.client.writing import Writing
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.errors import ErrorCode
from tidewire.domain.messages import EntryKind
from tidewire.wire.client_frames import AckFrame, AckPayload
from tidewire.wire.codec import UnknownFrame, decode_server_frames
from tidewire.wire.server_frames import (
    ChatUpdatePayload,
    EntryFrame,
    MessageFrame,
    MessagePayload,
    SyncItem,
    SyncResponseFrame,
)

# Receiving.


def _shown_by(patch: Patch, key: Callable[[MessageRow], object]) -> None:
    original = tables.Tables.messages

    def mutated(self: Any, *given: Any, **more: Any) -> list[MessageRow]:
        return sorted(original(self, *given, **more), key=key)  # type: ignore[arg-type]

    patch.setattr(tables.Tables, "messages", mutated)


@mutant("MR-01")
def shown_by_time(patch: Patch) -> None:
    _shown_by(patch, lambda kept: kept.created_at)


@mutant("MR-02")
def duplicates_are_kept(patch: Patch) -> None:
    original = Replica.offer

    def mutated(self: Replica, item: Item) -> Sequence[Item]:
        return (item,) if item.sequence <= self.cursor else original(self, item)

    patch.setattr(Replica, "offer", mutated)
    patch.setattr(schema, "_SCHEMA", schema._SCHEMA.replace("CREATE UNIQUE INDEX", "CREATE INDEX"))


@mutant("MR-03", TW_06="a restore jumps the numbers ahead: a hole like any other")
def waits_for_every_number(patch: Patch) -> None:
    def offer(self: Replica, item: Item) -> Sequence[Item]:
        self.head = max(self.head, item.sequence)
        return _taken(self, [item])

    def offer_page(self: Replica, items: Sequence[Item], through: int) -> Sequence[Item]:
        return _taken(self, items)

    def _taken(replica: Replica, items: Sequence[Item]) -> list[Item]:
        for item in items:
            if item.sequence > replica.cursor:
                replica.waiting[item.sequence] = item
        taken = []
        while replica.cursor + 1 in replica.waiting:
            replica.cursor += 1
            taken.append(replica.waiting.pop(replica.cursor))
        replica.head = max(replica.head, replica.cursor)
        return taken

    patch.setattr(Replica, "offer", offer)
    patch.setattr(Replica, "offer_page", offer_page)


@mutant("MR-04")
def shown_as_it_arrives(patch: Patch) -> None:
    original = Replica.offer

    def mutated(self: Replica, item: Item) -> Sequence[Item]:
        taken = original(self, item)
        return (item,) if not taken and item.sequence > self.cursor else taken

    patch.setattr(Replica, "offer", mutated)
    _shown_by(patch, lambda kept: kept.position)


@mutant("MR-05", TW_12="that check begins with a message that was lost")
def waits_for_the_missing(patch: Patch) -> None:
    original = Replicas.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> Any:
        effects = original(self, item, now)
        self._syncs.forget(item.chat_id)
        return effects

    patch.setattr(Replicas, "message", mutated)


@mutant("TW-02")
def own_messages_look_like_gaps(patch: Patch) -> None:
    original = Syncs.want

    def mutated(self: Any, replica: Replica, from_ms: int) -> None:
        original(self, replica, 0)

    patch.setattr(Syncs, "want", mutated)


@mutant("TW-12")
def pushes_are_dropped_while_it_syncs(patch: Patch) -> None:
    original = Replicas.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> Any:
        return [] if item.chat_id in self._syncs._asked else original(self, item, now)

    patch.setattr(Replicas, "message", mutated)


# Whose chats.


@mutant("TW-10")
def the_last_word_counts(patch: Patch) -> None:
    original = Replicas.chat_update

    def mutated(self: Any, update: ChatUpdatePayload, now: Now) -> Any:
        replica = self.by_chat.get(update.chat_id)
        if replica is not None:
            replica.membership_version = 0
        return original(self, update, now)

    patch.setattr(Replicas, "chat_update", mutated)


@mutant("TW-10")
def a_removal_from_an_unknown_chat_is_forgotten(patch: Patch) -> None:
    original = Replicas.chat_update

    def mutated(self: Any, update: ChatUpdatePayload, now: Now) -> Any:
        is_gone = update.change == replicas.MEMBER_REMOVED and update.user_id == self.user_id
        if is_gone and update.chat_id not in self.by_chat:
            return []
        return original(self, update, now)

    patch.setattr(Replicas, "chat_update", mutated)


@mutant("TW-11")
def news_about_others_mean_nothing(patch: Patch) -> None:
    original = Replicas.chat_update

    def mutated(self: Any, update: ChatUpdatePayload, now: Now) -> Any:
        replica = self.by_chat.get(update.chat_id)
        if update.user_id == self.user_id or (replica is not None and replica.is_member):
            return original(self, update, now)
        return []

    patch.setattr(Replicas, "chat_update", mutated)


@mutant("TW-11")
def a_push_of_an_unknown_chat_means_nothing(patch: Patch) -> None:
    original = Replicas.message

    def mutated(self: Any, item: MessagePayload, now: Now) -> Any:
        return original(self, item, now) if item.chat_id in self.by_chat else []

    patch.setattr(Replicas, "message", mutated)


# Acknowledging.


def _ack_frames(patch: Patch, position: Callable[[Replica], int]) -> None:
    """Acknowledge another position than the stored one."""
    original = acks._frames

    def mutated(replica: Replica) -> Any:
        stored = replica.stored
        replica.stored = max(stored, position(replica))
        try:
            return original(replica)
        finally:
            replica.stored = stored

    patch.setattr(acks, "_frames", mutated)


@mutant("AK-01")
def acks_the_highest(patch: Patch) -> None:
    _ack_frames(patch, lambda replica: max(replica.waiting, default=0))


@mutant("AK-02", TW_03="who acknowledges each message does so in groups, too")
def acks_every_message(patch: Patch) -> None:
    original = Connection.stored

    def mutated(
        self: Any, replica: Replica, through: int, count: int, generation: int, now: Now
    ) -> Any:
        payload = AckPayload(chat_id=replica.chat_id, last_acked_sequence=through)
        each = [Send(AckFrame(payload=payload))] * count
        return [*original(self, replica, through, count, generation, now), *each]

    patch.setattr(Connection, "stored", mutated)


@mutant("AK-03")
def acks_before_storing(patch: Patch) -> None:
    original = Connection.receive

    def receive(self: Any, frame: Any, now: Now) -> Any:
        effects = original(self, frame, now)
        if not isinstance(frame, MessageFrame):
            return effects
        replica = self.replicas[frame.payload.chat_id]
        replica.stored = replica.cursor
        self._acks.stored(replica, 1, now.ms)
        return [*effects, *self.tick(now)]

    def soon(self: Any) -> None:
        if not self._is_soon:
            self._is_soon = True
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(0.3, self.flush)

    patch.setattr(Connection, "receive", receive)
    patch.setattr(Writing, "_soon", soon)


@mutant("AK-04")
def leaves_without_acks(patch: Patch) -> None:
    original = Connection._acks_due

    def mutated(self: Any, now: Now, *, is_last: bool = False) -> Any:
        return [] if is_last else original(self, now)

    patch.setattr(Connection, "_acks_due", mutated)


@mutant("AK-05")
def one_position_for_all_chats(patch: Patch) -> None:
    original = Replicas.stored
    owners: dict[int, tuple[Replica, Replicas]] = {}

    def mutated(self: Any, replica: Replica, *given: Any) -> Any:
        owners[id(replica)] = replica, self
        return original(self, replica, *given)

    def position(replica: Replica) -> int:
        if id(replica) not in owners:
            return 0
        return max(other.stored for other in owners[id(replica)][1].by_chat.values())

    patch.setattr(Replicas, "stored", mutated)
    _ack_frames(patch, position)


@mutant("AK-06", TW_03="an acknowledgement that does not come is not there at once")
def acks_only_at_the_end(patch: Patch) -> None:
    patch.setattr(acks.Acks, "next_deadline_ms", lambda self: None)


@mutant("TW-03")
def second_tick_takes_five_seconds(patch: Patch) -> None:
    patch.setattr(
        acks.Acks, "_from_ms", lambda self, replica, now_ms: now_ms + self._options.ack_ms
    )


@mutant("TW-03")
def groups_are_like_direct_chats(patch: Patch) -> None:
    def mutated(self: Any, replica: Replica, now_ms: int) -> int:
        return now_ms

    patch.setattr(acks.Acks, "_from_ms", mutated)


@mutant("TW-18")
def dropped_positions_are_forgotten(patch: Patch) -> None:
    patch.setattr(acks.Acks, "dropped", acks.Acks.wait)


@mutant("TW-18")
def dropped_positions_are_told_again_at_once(patch: Patch) -> None:
    original = acks.Acks.dropped
    patch.setattr(acks.Acks, "dropped", lambda self, until_ms: original(self, 0))


# Recovering.


@mutant("RS-01")
def syncs_two_chats_after_a_reconnect(patch: Patch) -> None:
    original = Replicas._listed

    def mutated(self: Any, entry: DigestEntry, now: Now) -> Any:
        effects = original(self, entry, now)
        replica = self.by_chat[entry.chat_id]
        if list(self.by_chat).index(entry.chat_id) >= 2 and replica.cursor > 0:
            replica.head = replica.cursor
            self._syncs.forget(entry.chat_id)
            self._behind.pop(entry.chat_id, None)
        return effects

    patch.setattr(Replicas, "_listed", mutated)


@mutant("RS-02")
def syncs_from_where_the_user_is(patch: Patch) -> None:
    original = Replica.merge_digest

    def mutated(self: Replica, entry: DigestEntry) -> None:
        original(self, entry)
        self.cursor = max(self.cursor, min(entry.delivered, entry.head))

    patch.setattr(Replica, "merge_digest", mutated)


@mutant("RS-02")
def each_life_syncs_from_the_start(patch: Patch) -> None:
    original = tables.Tables.replicas

    def mutated(self: Any) -> list[ReplicaRecord]:
        return [msgspec.structs.replace(one, cursor=one.start) for one in original(self)]

    patch.setattr(tables.Tables, "replicas", mutated)


@mutant("RS-03")
def slow_consumer_is_the_end(patch: Patch) -> None:
    original = link._comes_back
    patch.setattr(
        link, "_comes_back", lambda reason: reason != "slow_consumer" and original(reason)
    )


@mutant("RS-04")
def retries_forbidden(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: OutboxEntry, code: str) -> bool:
        return code in (ErrorCode.FORBIDDEN, ErrorCode.NOT_A_MEMBER) or original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("RS-04")
def asks_again_where_it_is_no_member(patch: Patch) -> None:
    original = errors.is_retryable
    patch.setattr(replicas, "_GONE", frozenset())
    patch.setattr(
        replicas, "is_retryable", lambda code: code == ErrorCode.NOT_A_MEMBER or original(code)
    )


@mutant("RS-05")
def syncs_one_at_a_time(patch: Patch) -> None:
    original = Syncs.take

    def mutated(self: Any, now_ms: int) -> list[Replica]:
        if self._asked:
            return []
        due = original(self, now_ms)
        for replica in due[1:]:
            del self._asked[replica.chat_id]
            self._wanted[replica.chat_id] = (replica, now_ms)
        return due[:1]

    patch.setattr(Syncs, "take", mutated)


# Errors.


@mutant("EH-01")
def rate_limits_are_failures(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: OutboxEntry, code: str) -> bool:
        return code != ErrorCode.RATE_LIMITED and original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("EH-01")
def retries_what_is_final(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: OutboxEntry, code: str) -> bool:
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
    original = Replicas.page_refused

    def mutated(self: Any, replica: Replica, code: str, *more: Any) -> Any:
        return original(self, replica, "INVALID_MESSAGE" if code == "CURSOR_AHEAD" else code, *more)

    patch.setattr(Replicas, "page_refused", mutated)


@mutant("EH-02")
def unknown_types_end_it(patch: Patch) -> None:
    original = Connection.receive

    def mutated(self: Any, frame: Any, now: Now) -> Any:
        if isinstance(frame, UnknownFrame):
            return self._give_up(now, "unknown_frame")
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
    patch.setattr(outbox, "backoff_ms", lambda failures, random, options: 0)


@mutant("EH-04")
def unavailable_is_a_failure(patch: Patch) -> None:
    original = Outbox._may_retry

    def mutated(self: Outbox, entry: OutboxEntry, code: str) -> bool:
        return code != ErrorCode.SERVICE_UNAVAILABLE and original(self, entry, code)

    patch.setattr(Outbox, "_may_retry", mutated)


@mutant("EH-04")
def asks_again_at_once(patch: Patch) -> None:
    patch.setattr(syncs, "backoff_ms", lambda failures, random, options: 0)


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
        for said in decode_server_frames(data):
            if isinstance(said, SyncResponseFrame):
                is_damaged = any(item.is_damaged for item in said.payload.messages)
            else:
                is_damaged = isinstance(said, MessageFrame) and said.payload.is_damaged
            yield UnknownFrame("message") if is_damaged else said

    patch.setattr(transport, "decode_server_frames", mutated)


def _unlike(patch: Patch, change: Callable[[MessagePayload | SyncItem], Any]) -> None:
    """Change each entry that comes, pushed or in a page; None: it is dropped."""

    def mutated(data: Any) -> Any:
        for said in decode_server_frames(data):
            if isinstance(said, EntryFrame):
                payload = change(said.payload)
                is_dropped = payload is None
                yield UnknownFrame("entry") if is_dropped else replace(said, payload=payload)
            elif isinstance(said, SyncResponseFrame):
                items = [change(item) if item.kind else item for item in said.payload.messages]
                held = [item for item in items if item is not None]
                yield replace(said, payload=replace(said.payload, messages=held))
            else:
                yield said

    patch.setattr(transport, "decode_server_frames", mutated)


@mutant("TW-15")
def unknown_kinds_are_nothing(patch: Patch) -> None:
    known = frozenset(EntryKind)
    _unlike(patch, lambda entry: entry if entry.kind in known else None)


@mutant("TW-16")
def edits_are_not_shown(patch: Patch) -> None:
    _unlike(
        patch,
        lambda entry: replace(entry, kind="unknown") if entry.kind == EntryKind.EDIT else entry,
    )


@mutant("TW-17")
def deletions_are_not_shown(patch: Patch) -> None:
    _unlike(
        patch,
        lambda entry: replace(entry, kind="unknown") if entry.kind == EntryKind.DELETE else entry,
    )


@mutant("TW-14")
def one_unknown_frame_spoils_its_array(patch: Patch) -> None:
    def mutated(data: Any) -> Any:
        said = list(decode_server_frames(data))
        return said[:1] if any(isinstance(one, UnknownFrame) for one in said) else said

    patch.setattr(transport, "decode_server_frames", mutated)


@mutant("TW-14")
def arrays_are_sent_to_every_server(patch: Patch) -> None:
    original = driver.Driver._introduced

    def mutated(self: Any, effect: Introduced) -> None:
        original(self, effect)
        self._socket.is_batching = True

    patch.setattr(driver.Driver, "_introduced", mutated)
