"""A server that is made of frames, and a core that talks to it. Holds no test."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, TypeVar

from tidewire.client.connection import Connection
from tidewire.client.effects import (
    Connect,
    Dropped,
    Effect,
    Keep,
    Mark,
    Now,
    Send,
    SendFailed,
)
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Outbox, OutboxEntry
from tidewire.client.replica import ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, MessageBody
from tidewire.wire.client_frames import (
    ClientFrame,
    SendMessageFrame,
    SubmitFrame,
    SyncRequestFrame,
)
from tidewire.wire.forms import form_of
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ChatDigestPayload,
    ChatUpdateFrame,
    ChatUpdatePayload,
    ConnectionClosingFrame,
    ConnectionClosingPayload,
    ConnectionEstablishedFrame,
    ConnectionEstablishedPayload,
    EntryFrame,
    ErrorFrame,
    ErrorPayload,
    HeartbeatAckFrame,
    HeartbeatAckPayload,
    MessageFrame,
    MessagePayload,
    SendMessageAckFrame,
    SendMessageAckPayload,
    ServerFrame,
    SyncItem,
    SyncResponseFrame,
    SyncResponsePayload,
)

ME = UserId("user_me")
THEM = UserId("user_them")
CHAT = ChatId("chat_1")
TIME = "2031-05-04T11:20:07.412Z"
WALL_MS = 1_900_000_000_000

E = TypeVar("E", bound=Effect)


def key(number: int) -> ClientMessageId:
    return ClientMessageId(f"{number:08x}-0000-4000-8000-000000000000")


def entry(number: int, chat_id: ChatId = CHAT, **fields: Any) -> OutboxEntry:
    given: dict[str, Any] = {
        "left_at_ms": WALL_MS,
        "body": MessageBody(content=f"text {number}"),
        **fields,
    }
    return OutboxEntry(
        client_message_id=key(number),
        chat_id=chat_id,
        seen_sequence=0,
        created_at_ms=WALL_MS,
        number=number,
        **given,
    )


def amending(
    number: int,
    kind: EntryKind,
    target: int = 0,
    behind: int | None = None,
    chat_id: ChatId = CHAT,
    **fields: Any,
) -> OutboxEntry:
    """An amendment in the outbox: of a message of the server's, or behind one that waits there."""
    what = {"emoji": "👍"} if kind is EntryKind.REACT else {}
    text = f"edited {number}" if kind is EntryKind.EDIT else ""
    given: dict[str, Any] = {
        "body": MessageBody(content=text),
        "amends": Amendment(kind=kind, target=target, **what),  # type: ignore[arg-type]
        "target_key": None if behind is None else key(behind),
        **fields,
    }
    return entry(number, chat_id, **given)


def item(
    sequence: int, prev: int | None = None, *, sender: UserId = THEM, **fields: Any
) -> SyncItem:
    given: dict[str, Any] = {
        "client_message_id": key(100_000 + sequence),
        "content": f"message {sequence}",
        **fields,
    }
    return SyncItem(
        message_id=MessageId(f"msg_{sequence}"),
        sequence=sequence,
        prev_sequence=sequence - 1 if prev is None else prev,
        sender_id=sender,
        content_type="text/plain",
        created_at=TIME,
        **given,
    )


def edit(sequence: int, target: int, content: str, **fields: Any) -> SyncItem:
    return item(sequence, kind="edit", target=target, content=content, **fields)


def deletion(sequence: int, target: int, **fields: Any) -> SyncItem:
    return item(sequence, kind="delete", target=target, content="", **fields)


def reaction(
    sequence: int, target: int, emoji: str, *, count: int, is_on: bool = True, **fields: Any
) -> SyncItem:
    given: dict[str, Any] = {"emoji": emoji, "is_on": is_on, "count": count, **fields}
    return item(sequence, kind="react", target=target, content="", **given)


def push(
    sequence: int, prev: int | None = None, chat_id: ChatId = CHAT, **fields: Any
) -> MessageFrame:
    return MessageFrame(timestamp=TIME, payload=_payload(item(sequence, prev, **fields), chat_id))


def entry_push(made: SyncItem, chat_id: ChatId = CHAT) -> EntryFrame:
    return EntryFrame(timestamp=TIME, payload=_payload(made, chat_id))


def _payload(made: SyncItem, chat_id: ChatId) -> MessagePayload:
    return form_of(MessagePayload, made, chat_id=chat_id)


def listed(head: int, chat_id: ChatId = CHAT, **fields: Any) -> DigestEntry:
    numbers: dict[str, Any] = {
        "membership_version": 1,
        "joined_sequence": 0,
        "delivered": 0,
        "read": 0,
        "others_delivered": 0,
        "others_read": 0,
        "unread": 0,
        **fields,
    }
    return DigestEntry(chat_id=chat_id, chat_type=ChatType.DIRECT, head=head, **numbers)


def digest(
    *entries: DigestEntry, last: bool = True, request_id: str | None = None
) -> ChatDigestFrame:
    payload = ChatDigestPayload(digest_id="d", page=0, last=last, chats=entries)
    return ChatDigestFrame(timestamp=TIME, request_id=request_id, payload=payload)


def established(epoch: str = "one", **fields: Any) -> ConnectionEstablishedFrame:
    given: dict[str, Any] = {
        "user_id": ME,
        "heartbeat_interval_ms": 30_000,
        "protocol_version": 1,
        "features": ("batch", "entries"),
        **fields,
    }
    return ConnectionEstablishedFrame(
        timestamp=TIME,
        payload=ConnectionEstablishedPayload(
            connection_id=ConnectionId("conn_1"),
            device_id="device",
            server_time=TIME,
            epoch=epoch,
            **given,
        ),
    )


def page(
    request_id: str,
    items: Sequence[SyncItem],
    *,
    through: int | None = None,
    has_more: bool = False,
    chat_id: ChatId = CHAT,
) -> SyncResponseFrame:
    synced = items[-1].sequence if through is None and items else through or 0
    return SyncResponseFrame(
        request_id=request_id,
        timestamp=TIME,
        payload=SyncResponsePayload(
            chat_id=chat_id,
            messages=items,
            synced_through=synced,
            has_more=has_more,
            next_sequence=synced + 1 if has_more else None,
        ),
    )


def send_ack(
    frame: SubmitFrame,
    sequence: int,
    prev: int | None = None,
    *,
    deduplicated: bool = False,
    count: int | None = None,
) -> SendMessageAckFrame:
    return SendMessageAckFrame(
        request_id=frame.request_id,
        timestamp=TIME,
        payload=SendMessageAckPayload(
            client_message_id=frame.payload.client_message_id,
            message_id=MessageId(f"msg_{sequence}"),
            chat_id=frame.payload.chat_id,
            sequence=sequence,
            prev_sequence=sequence - 1 if prev is None else prev,
            created_at=TIME,
            deduplicated=deduplicated,
            count=count,
        ),
    )


def error(code: str, request_id: str | None = None, **details: Any) -> ErrorFrame:
    payload = ErrorPayload(code=code, message="no", details=details or None)
    return ErrorFrame(timestamp=TIME, request_id=request_id, payload=payload)


def heartbeat_ack(request_id: str | None) -> HeartbeatAckFrame:
    payload = HeartbeatAckPayload(server_time=TIME)
    return HeartbeatAckFrame(request_id=request_id, timestamp=TIME, payload=payload)


def closing(reason: str, delay_ms: int = 0) -> ConnectionClosingFrame:
    return ConnectionClosingFrame(
        timestamp=TIME,
        payload=ConnectionClosingPayload(reason=reason, message="bye", reconnect_delay_ms=delay_ms),
    )


def chat_update(
    change: str, version: int, chat_id: ChatId = CHAT, **fields: Any
) -> ChatUpdateFrame:
    given: dict[str, Any] = {"chat_type": ChatType.GROUP, "head": 0, **fields}
    return ChatUpdateFrame(
        timestamp=TIME,
        payload=ChatUpdatePayload(
            chat_id=chat_id,
            membership_version=version,
            change=change,
            changed_by=THEM,
            changed_at=TIME,
            **given,
        ),
    )


class Stage:
    """A core with a clock that is turned by hand, and a disk that is as quick as one likes."""

    def __init__(
        self,
        options: ClientOptions | None = None,
        *,
        entries: Sequence[OutboxEntry] = (),
        replicas: Iterable[ReplicaRecord] = (),
        user_id: str | None = ME,
        epoch: str | None = "one",
        stores: bool = True,
    ) -> None:
        self.options = options or ClientOptions()
        random = Random(7)
        self.core = Connection(
            self.options,
            random,
            outbox=Outbox(self.options, random, entries),
            replicas=replicas,
            user_id=user_id,
            epoch=epoch,
        )
        self.now = Now(1_000_000, WALL_MS)
        self.stores = stores
        self.effects: list[Effect] = []
        self.kept: list[int] = []
        """The sequences that were given to the disk, of all chats."""

    def did(self, effects: Sequence[Effect]) -> list[Effect]:
        """Note what is wanted; the disk does its part at once, if it is to."""
        done: list[Effect] = []
        pending = list(effects)
        while pending:
            effect = pending.pop(0)
            done.append(effect)
            if isinstance(effect, Keep):
                self.kept.extend(one.sequence for one in effect.items)
                if self.stores:
                    pending += self.core.stored(
                        effect.replica,
                        effect.through,
                        len(effect.items),
                        effect.generation,
                        self.now,
                    )
            elif isinstance(effect, Mark) and self.stores:
                pending += self.core.marked(effect.entries, self.now.wall_ms, self.now)
            elif isinstance(effect, SendFailed) and self.stores:
                pending += self.core.saved([effect.entry], self.now)
            elif isinstance(effect, Dropped) and self.stores:
                pending += self.core.saved(effect.entries, self.now)
        self.effects += done
        return done

    def receive(self, *frames: ServerFrame) -> list[Effect]:
        return [
            effect for frame in frames for effect in self.did(self.core.receive(frame, self.now))
        ]

    def wait(self, ms: int) -> list[Effect]:
        """Let time pass, with a tick at each deadline on the way."""
        until_ms = self.now.ms + ms
        done: list[Effect] = []
        for _ in range(1_000):
            deadline_ms = self.core.next_deadline_ms()
            if deadline_ms is None or deadline_ms > until_ms:
                break
            self._turn_to(max(deadline_ms, self.now.ms))
            done += self.did(self.core.tick(self.now))
        else:
            raise AssertionError("the core wants to be woken again and again")
        self._turn_to(until_ms)
        return done

    def _turn_to(self, ms: int) -> None:
        self.now = Now(ms, self.now.wall_ms + ms - self.now.ms)

    def connect(self, *entries: DigestEntry, epoch: str = "one") -> list[Effect]:
        """From offline to wherever the digest leads."""
        done = self.did(self.core.start(self.now))
        assert of(done, Connect), done
        done += self.did(self.core.opened(self.now))
        return done + self.receive(established(epoch), digest(*entries))

    def submit(self, *entries: OutboxEntry) -> list[Effect]:
        return [effect for one in entries for effect in self.did(self.core.submit(one, self.now))]

    def lose(self, **how: Any) -> list[Effect]:
        return self.did(self.core.lost(self.now, **how))


def of(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


F = TypeVar("F", bound=ClientFrame)


def frames(effects: Iterable[Effect], kind: type[F]) -> list[F]:
    return [effect.frame for effect in of(effects, Send) if isinstance(effect.frame, kind)]


def sends(effects: Iterable[Effect]) -> list[SendMessageFrame]:
    return frames(effects, SendMessageFrame)


def syncs(effects: Iterable[Effect]) -> list[SyncRequestFrame]:
    return frames(effects, SyncRequestFrame)
