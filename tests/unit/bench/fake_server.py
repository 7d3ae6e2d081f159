"""A server that only speaks the frames, with faults on demand. Holds no test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
    ws_create_server,
)

from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Appended, Message, MessagePage
from tidewire.wire.client_frames import (
    AckFrame,
    ClientFrame,
    SendMessageFrame,
    SyncRequestFrame,
)
from tidewire.wire.codec import FrameRefusal, decode_client_frames, encode_server_frame
from tidewire.wire.frame_builders import (
    message_frame,
    send_message_ack_frame,
    sync_response_frame,
)
from tidewire.wire.framing import messages_of
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ChatDigestPayload,
    ConnectionEstablishedFrame,
    ConnectionEstablishedPayload,
    ErrorFrame,
    ErrorPayload,
    ResyncFrame,
    ResyncPayload,
    ServerFrame,
)
from tidewire_bench.target import Person

NOW = "2031-05-04T11:20:07.412Z"


@dataclass
class FakeServer:
    """Chats by id, with everything in memory. A person's token is his user id."""

    chats: dict[str, list[str]] = field(default_factory=dict)
    """The members of each."""
    messages: dict[str, list[Message]] = field(default_factory=dict)
    acked: dict[tuple[str, str], int] = field(default_factory=dict)
    online: dict[str, "FakeSocket"] = field(default_factory=dict)
    lost_push: int | None = None
    """The push of this sequence is forgotten."""
    doubled_push: int | None = None
    lied_ack: int | None = None
    """The ack of this sequence names another one."""
    resync_at: int | None = None
    """The push of this sequence is forgotten, but its receiver is told to sync."""
    throttled: int = 0
    """So many sends are refused before one is taken."""
    knows_batch: bool = True
    """If a client offers it: it is on, and what is told in one turn goes as an array."""
    arrays: int = 0
    """So many came."""
    refused_handshakes: int = 0
    """So many are answered 429 first."""
    closed_handshakes: int = 0
    """So many are closed instead of getting a digest: come back later."""
    port: int = 0
    is_empty: asyncio.Event = field(default_factory=asyncio.Event)

    def members(self, chat_id: str) -> list[str]:
        return self.chats[chat_id]

    def append(self, chat_id: str, sender: str, client_message_id: str, content: str) -> Message:
        chat = self.messages.setdefault(chat_id, [])
        number = len(chat) + 1
        message = Message(
            ChatId(chat_id),
            number,
            number - 1,
            MessageId(f"msg_{number:026d}"),
            UserId(sender),
            ClientMessageId(client_message_id),
            content,
            "text/plain",
            0,
        )
        chat.append(message)
        return message

    def push(self, message: Message) -> None:
        sequence = message.sequence
        for member in self.members(message.chat_id):
            socket = self.online.get(member)
            if member == message.sender_id or socket is None or sequence == self.lost_push:
                continue
            if sequence == self.resync_at:
                payload = ResyncPayload(reason="test", delay_ms=1)
                socket.tell(ResyncFrame(timestamp=NOW, payload=payload))
                continue
            for _ in range(2 if sequence == self.doubled_push else 1):
                socket.tell(message_frame(message, now_ms=0))

    def listener(self, request: WSUpgradeRequest) -> "FakeSocket | WSUpgradeResponseWithListener":
        if self.refused_handshakes:
            self.refused_handshakes -= 1
            refusal = WSUpgradeResponse.create_error_response(429, b"{}", {"Retry-After": "1"})
            return WSUpgradeResponseWithListener(refusal, None)
        token = request.headers["Authorization"].removeprefix("Bearer ")
        offered = request.headers.get("X-Tidewire-Features")
        return FakeSocket(self, token, is_batching=self.knows_batch and offered == "batch")


class FakeSocket(WSListener):
    def __init__(self, server: FakeServer, user_id: str, *, is_batching: bool) -> None:
        self._server = server
        self._user_id = user_id
        self._is_batching = is_batching
        self._out: list[bytes] = []
        self._transport: WSTransport | None = None

    def tell(self, frame: ServerFrame) -> None:
        assert self._transport is not None
        if self._is_batching:
            if not self._out:
                asyncio.get_running_loop().call_soon(self._flush)
            self._out.append(encode_server_frame(frame))
        else:
            self._transport.send(WSMsgType.TEXT, encode_server_frame(frame))

    def _flush(self) -> None:
        due, self._out = self._out, []
        if self._transport is not None:
            for message in messages_of(due):
                self._transport.send(WSMsgType.TEXT, message)

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._server.online[self._user_id] = self
        self._server.is_empty.clear()
        if self._server.closed_handshakes:
            self._server.closed_handshakes -= 1
            transport.send_close(WSCloseCode.TRY_AGAIN_LATER)
            return
        self.tell(
            ConnectionEstablishedFrame(
                timestamp=NOW,
                payload=ConnectionEstablishedPayload(
                    connection_id=ConnectionId("conn_1"),
                    user_id=UserId(self._user_id),
                    device_id="device",
                    server_time=NOW,
                    heartbeat_interval_ms=30_000,
                    protocol_version=1,
                    epoch="epoch",
                    features=("batch",) if self._is_batching else (),
                ),
            )
        )
        entries = [
            self._entry(chat) for chat, who in self._server.chats.items() if self._user_id in who
        ]
        payload = ChatDigestPayload(digest_id="d", page=1, last=True, chats=entries)
        self.tell(ChatDigestFrame(timestamp=NOW, payload=payload))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._server.online.get(self._user_id) is self:
            del self._server.online[self._user_id]
        if not self._server.online:
            self._server.is_empty.set()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != WSMsgType.TEXT:
            transport.disconnect()
            return
        message = frame.get_payload_as_bytes()
        if message.startswith(b"["):
            assert self._is_batching, "an array that may not be sent"
            self._server.arrays += 1
        for said in decode_client_frames(message):
            assert not isinstance(said, FrameRefusal), said
            self._received(said)

    def _received(self, frame: ClientFrame) -> None:
        server = self._server
        if isinstance(frame, SendMessageFrame):
            self._send(frame)
        elif isinstance(frame, AckFrame):
            key = self._user_id, frame.payload.chat_id
            server.acked[key] = max(server.acked.get(key, 0), frame.payload.last_acked_sequence)
        elif isinstance(frame, SyncRequestFrame):
            chat_id, after = frame.payload.chat_id, frame.payload.last_acked_sequence
            stored = server.messages.get(chat_id, [])
            page = stored[after : after + frame.payload.limit]
            answer = MessagePage(
                page, after + len(page), after + len(page) < len(stored), len(stored)
            )
            self.tell(
                sync_response_frame(
                    answer,
                    request_id=frame.request_id,
                    chat_id=chat_id,
                    now_ms=0,
                    has_entries=True,
                )
            )

    def _send(self, frame: SendMessageFrame) -> None:
        server, wish = self._server, frame.payload
        if server.throttled:
            server.throttled -= 1
            error = ErrorPayload(
                code="RATE_LIMITED", message="slowly", details={"retry_after_seconds": 0}
            )
            self.tell(ErrorFrame(timestamp=NOW, request_id=frame.request_id, payload=error))
            return
        message = server.append(wish.chat_id, self._user_id, wish.client_message_id, wish.content)
        sequence = message.sequence + (message.sequence == server.lied_ack)
        appended = Appended(message.message_id, sequence, message.prev_sequence, 0, False)
        self.tell(
            send_message_ack_frame(
                appended,
                request_id=frame.request_id,
                chat_id=wish.chat_id,
                client_message_id=wish.client_message_id,
                now_ms=0,
            )
        )
        server.push(message)

    def _entry(self, chat_id: str) -> DigestEntry:
        return DigestEntry(
            chat_id=ChatId(chat_id),
            chat_type=ChatType.DIRECT,
            head=len(self._server.messages.get(chat_id, [])),
            membership_version=1,
            joined_sequence=0,
            delivered=0,
            read=0,
            others_delivered=0,
            others_read=0,
            unread=0,
        )


@asynccontextmanager
async def running(fake: FakeServer) -> AsyncIterator[FakeServer]:
    """The server on a port of its own; all its sockets are gone afterwards."""
    server = await ws_create_server(fake.listener, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        await server.wait_closed()
        if fake.online:
            await fake.is_empty.wait()


class FakeMaker:
    """Makes people and chats in the fake server (`tidewire_bench.workload.Maker`)."""

    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake
        self._people = 0

    async def people(self, count: int) -> list[Person]:
        first = self._people
        self._people += count
        return [Person(f"user_{i}", f"user_{i}", "device") for i in range(first, self._people)]

    async def direct(self, pairs: Sequence[tuple[Person, Person]]) -> list[str]:
        return [self._chat(pair) for pair in pairs]

    async def group(self, owner: Person, others: Sequence[Person]) -> str:
        return self._chat([owner, *others])

    async def fill(self, chats: Sequence[tuple[str, Person]], count: int) -> None:
        for chat_id, author in chats:
            for number in range(count):
                key = f"00000000-0000-4000-8000-{number:012x}"
                self._fake.append(chat_id, author.user_id, key, "hello")

    def _chat(self, people: Sequence[Person]) -> str:
        chat_id = f"chat_{len(self._fake.chats)}"
        self._fake.chats[chat_id] = [person.user_id for person in people]
        return chat_id
