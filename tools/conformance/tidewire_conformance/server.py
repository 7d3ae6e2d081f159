"""The played server: acts as a good server, notes everything, and misbehaves on demand.

Whatever a client asks is answered from the `Truth`. A check changes that in three ways: a *rule*
takes the frames of a type over, a *hold* keeps back what would be sent until it is released, and
the connections can be written to, cut and closed by hand.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidewire.domain.chats import ChatType, Role
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, SessionId, UserId
from tidewire.domain.messages import Appended, EntryKind, Message, MessagePage
from tidewire.wire.codec import encode_message_push, encode_plain_push
from tidewire.wire.features import Feature
from tidewire.wire.frame_builders import send_message_ack_frame, sync_response_frame
from tidewire.wire.rest_models import (
    AccountView,
    Envelope,
    LoginResult,
    OpenedSessionView,
    RefreshResult,
    TokensView,
)
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ChatDigestPayload,
    ChatUpdateFrame,
    ChatUpdatePayload,
    ConnectionClosingFrame,
    ConnectionClosingPayload,
    ConnectionEstablishedFrame,
    ConnectionEstablishedPayload,
    ErrorFrame,
    ErrorPayload,
    HeartbeatAckFrame,
    HeartbeatAckPayload,
    StatusUpdateFrame,
    StatusUpdatePayload,
)
from tidewire.wire.timestamps import format_time_ms
from tidewire_conformance.adapter import Account
from tidewire_conformance.connection import Connection, Heard, wall_ms
from tidewire_conformance.sockets import Listener, Request, Response, Socket
from tidewire_conformance.truth import OTHER, PlayedChat, Truth

Rule = Callable[[Heard], bool | None]
"""Handles a frame; returns False if it does not, and then the frame is answered as usual."""

OWN_ID: Final = UserId("user_01J9ZKA2C4E6G8JMNPRTVXZ135")
CALM_MS: Final = 30_000
TOKEN_LIFE_S: Final = 3_600
PAGE_MESSAGES: Final = 100


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request to connect."""

    at: float
    request: Request
    token: str
    device_id: str
    was_refused: bool


class PlayedServer:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.truth = Truth(OWN_ID)
        self.heartbeat_ms = CALM_MS
        self.token_life_s = TOKEN_LIFE_S
        self.expiries: dict[str, float] = {}
        """Tokens that were given out, and when they expire, in seconds of the wall clock."""
        self.attempts: list[Attempt] = []
        self.connections: list[Connection] = []
        self.heard: list[Heard] = []
        """Every frame of every connection, in the order of arrival."""
        self.features: tuple[str, ...] = tuple(Feature)
        """What is turned on if a client offers it; empty: as a server from before features."""
        self.rules: dict[str, Rule] = {}
        self.refuse: Callable[[Request], Response | None] = lambda _: None
        """May refuse a request to connect."""
        self._held: dict[str, list[Callable[[], None]]] = {}
        self._news = asyncio.Event()
        self._listener = Listener(answer=self._answer, opened=self._opened)
        self.account = Account(
            username="ann",
            password="conformance",  # noqa: S106 - of a server that lives for a second
            user_id=OWN_ID,
            device_id="6f1c7c52-3f0e-4d8a-9a53-0f3c1f1c9a10",
            token="",
            refresh_token="",
        )

    async def open(self) -> None:
        """Listen on the port; after `close` on the same one again."""
        await self._listener.open()
        if not self.account.token:
            self._give_tokens(self.account.device_id)

    async def close(self) -> None:
        await self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.port}"

    def now(self) -> float:
        return self._loop.time()

    @property
    def connection(self) -> Connection:
        """The newest connection."""
        return self.connections[-1]

    @property
    def is_connected(self) -> bool:
        if not self.connections or self.connection.is_over:
            return False
        return self.connection.introduced_at is not None

    # Waiting.

    async def until(self, is_so: Callable[[], bool], patience_s: float) -> bool:
        """Wait until `is_so()` holds, checked whenever something happens. False if it timed out."""
        deadline = self.now() + patience_s
        while not is_so():
            self._news.clear()
            wait_s = deadline - self.now()
            if wait_s <= 0:
                return False
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return is_so()
        return True

    def of(
        self, *types: str, connection: Connection | None = None, chat: PlayedChat | None = None
    ) -> list[Heard]:
        """The frames of these types that were heard."""
        return [
            heard
            for heard in self.heard
            if heard.type in types
            and (connection is None or heard.connection is connection)
            and (chat is None or heard.payload.get("chat_id") == chat.chat_id)
        ]

    def sends(self, text: str) -> list[Heard]:
        """Each time that a client sent this text."""
        return [one for one in self.of("send_message") if one.payload.get("content") == text]

    def acked(self, chat: PlayedChat, connection: Connection | None = None) -> list[int]:
        """What was acknowledged in a chat, by an ack or by a read, in the order of arrival."""
        return [
            heard.position for heard in self.of("ack", "read", connection=connection, chat=chat)
        ]

    # Holding back.

    def hold(self, *kinds: str) -> None:
        """From now on keep frames of these types back."""
        for kind in kinds:
            self._held.setdefault(kind, [])

    def release(self, *kinds: str) -> None:
        """Send what was kept back, and keep nothing more of these types back."""
        for kind in kinds:
            for send in self._held.pop(kind, []):
                send()

    def _out(self, kind: str, send: Callable[[], None]) -> None:
        held = self._held.get(kind)
        if held is None:
            send()
        else:
            held.append(send)

    # By hand.

    def say(self, chat: PlayedChat, text: str, *, push: bool = True, skip: int = 0) -> Message:
        """The other member sends a text; `push`: the client is told."""
        message = self.truth.append(chat, text, skip=skip)
        if push:
            self.push(message)
        return message

    def say_many(self, chat: PlayedChat, count: int, *, push: bool = True) -> None:
        for number in range(1, count + 1):
            self.say(chat, f"text {number}", push=push)

    def push(self, message: Message) -> None:
        data = encode_message_push(message, message.created_at_ms)
        if message.amends is not None:
            self._push_entry(data)
        elif self.is_connected:
            self.connection.send_raw(data)

    def _push_entry(self, data: bytes) -> None:
        """Push an entry in the form that the client has offered to read."""
        if self.is_connected:
            knows_entries = Feature.ENTRIES in self.connection.features
            self.connection.send_raw(data if knows_entries else encode_plain_push(data))

    def push_unknown(self, chat: PlayedChat) -> int:
        """The other member appends an entry of an unknown kind; returns its sequence."""
        entry = self.truth.amend(chat, EntryKind.REACT, chat.messages[-1])
        payload = {
            **msgspec.json.decode(encode_message_push(entry, entry.created_at_ms))["payload"],
            "kind": "of_next_year",
            "answers": ["yes", "no"],
        }
        frame = {"type": "entry", "timestamp": _stamp(), "payload": payload}
        self._push_entry(msgspec.json.encode(frame))
        return entry.sequence

    def push_status(self, chat: PlayedChat, *, delivered: int, read: int) -> None:
        payload = StatusUpdatePayload(
            chat_id=chat.chat_id, others_delivered=delivered, others_read=read
        )
        self.connection.send(StatusUpdateFrame, payload)

    def push_update(
        self, chat: PlayedChat, change: str, version: int, user_id: UserId = OWN_ID
    ) -> None:
        """Tell of a change of a chat's members; the check itself changes the truth."""
        payload = ChatUpdatePayload(
            chat_id=chat.chat_id,
            membership_version=version,
            change=change,
            chat_type=chat.chat_type,
            name="as the check wants it" if chat.chat_type is ChatType.GROUP else None,
            user_id=user_id,
            role=None if user_id == OWN_ID else Role.MEMBER,
            joined_sequence=0 if change == "member_added" else None,
            head=chat.head,
            changed_by=OTHER,
            changed_at=_stamp(),
        )
        self.connection.send(ChatUpdateFrame, payload)

    def store(self, heard: Heard) -> Message:
        """Store what a client sent, once; returns the message, new or old."""
        chat = self.truth.chats[heard.payload["chat_id"]]
        # The case of a key does not count: it is stored in lower case, and answered as it was sent.
        key = heard.payload["client_message_id"].lower()
        known = self.truth.find(chat, key)
        heard.was_stored = known is None
        if known is not None:
            return known
        return self.truth.append(
            chat, heard.payload["content"], sender_id=OWN_ID, client_message_id=key
        )

    def ack_frame(self, heard: Heard, message: Message) -> bytes:
        """The answer to a send."""
        return msgspec.json.encode(
            send_message_ack_frame(
                Appended(
                    message.message_id,
                    message.sequence,
                    message.prev_sequence,
                    message.created_at_ms,
                    not heard.was_stored,
                ),
                request_id=heard.request_id or "",
                chat_id=ChatId(message.chat_id),
                client_message_id=ClientMessageId(heard.payload["client_message_id"]),
                now_ms=wall_ms(),
            )
        )

    def page_frame(self, heard: Heard) -> bytes:
        """The answer to a sync."""
        chat = self.truth.chats[heard.payload["chat_id"]]
        cursor = heard.payload["last_acked_sequence"]
        limit = min(heard.payload.get("limit", PAGE_MESSAGES), PAGE_MESSAGES)
        messages, has_more = chat.after(cursor, limit)
        through = messages[-1].sequence if messages else cursor
        page = MessagePage(messages, through, has_more, chat.head)
        return msgspec.json.encode(
            sync_response_frame(
                page,
                request_id=heard.request_id or "",
                chat_id=chat.chat_id,
                now_ms=wall_ms(),
                has_entries=Feature.ENTRIES in heard.connection.features,
            )
        )

    def error(
        self,
        heard: Heard | None,
        code: str,
        *,
        connection: Connection | None = None,
        **details: object,
    ) -> None:
        """Refuse a request; without one, send an error that answers no request."""
        payload = ErrorPayload(code=code, message="as the check wants it", details=details)
        if heard is None:
            (connection or self.connection).send(ErrorFrame, payload)
        else:
            heard.connection.send(ErrorFrame, payload, request_id=heard.request_id)
            heard.connection.answered(heard)

    def closing(self, reason: str, *, delay_ms: int = 0) -> float:
        """Announce the end of the newest connection; returns when that was."""
        at = self.now()
        payload = ConnectionClosingPayload(
            reason=reason, message="as the check wants it", reconnect_delay_ms=delay_ms
        )
        self.connection.send(ConnectionClosingFrame, payload)
        return at

    # Connecting.

    async def _answer(self, request: Request) -> Response | None:
        if not request.is_upgrade:
            response = self._rest(request)
            self._news.set()
            return response
        token, device_id = _credentials(request)
        refusal = self.refuse(request)
        self.attempts.append(
            Attempt(self.now(), request, token, device_id, was_refused=refusal is not None)
        )
        self._news.set()
        return refusal

    def _opened(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Socket:
        connection = Connection(
            len(self.connections) + 1,
            reader,
            writer,
            features=tuple(one for one in self.features if one in request.features),
            on_frame=self._on_frame,
            on_news=self._news.set,
        )
        self.connections.append(connection)
        self._news.set()
        self._out("connection_established", lambda: self._introduce(connection))
        return connection

    def _introduce(self, connection: Connection) -> None:
        if connection.is_over:
            return
        connection.introduced_at = self.now()
        payload = ConnectionEstablishedPayload(
            connection_id=ConnectionId(f"conn_{connection.number}"),
            user_id=OWN_ID,
            device_id=self.account.device_id,
            server_time=_stamp(),
            heartbeat_interval_ms=self.heartbeat_ms,
            protocol_version=1,
            epoch=self.truth.epoch,
            features=connection.features,
        )
        connection.send(ConnectionEstablishedFrame, payload)
        self._out("chat_digest", lambda: self.send_digest(connection))
        self._news.set()

    def send_digest(self, connection: Connection, request_id: str | None = None) -> None:
        payload = ChatDigestPayload(
            digest_id=f"digest-{connection.number}", page=0, last=True, chats=self.truth.digest()
        )
        connection.send(ChatDigestFrame, payload, request_id=request_id)
        connection.digests_sent += 1
        self._news.set()

    # Frames.

    def _on_frame(self, heard: Heard) -> None:
        self.heard.append(heard)
        rule = self.rules.get(heard.type)
        # A frame that comes before the introduction is noted, and not answered.
        if heard.is_early or (rule is not None and rule(heard) is not False):
            self._news.set()
            return
        match heard.type:
            case "send_message":
                message = self.store(heard)
                self._out("send_message_ack", lambda: self.answer(heard, message))
            case "sync_request":
                self._out("sync_response", lambda: self.answer_page(heard))
            case "digest_request":
                self._out("chat_digest", lambda: self._answer_digest(heard))
            case "heartbeat":
                self._out("heartbeat_ack", lambda: self.answer_heartbeat(heard))
            case "ack" | "read":
                self._move(heard)
            case _:
                pass
        self._news.set()

    def answer(self, heard: Heard, message: Message) -> None:
        heard.connection.send_raw(self.ack_frame(heard, message))
        heard.connection.answered(heard)

    def answer_page(self, heard: Heard) -> None:
        heard.connection.send_raw(self.page_frame(heard))
        heard.connection.answered(heard)
        self._news.set()

    def answer_heartbeat(self, heard: Heard) -> None:
        payload = HeartbeatAckPayload(server_time=_stamp())
        heard.connection.send(HeartbeatAckFrame, payload, request_id=heard.request_id)
        heard.connection.answered(heard)

    def _answer_digest(self, heard: Heard) -> None:
        self.send_digest(heard.connection, heard.request_id)
        heard.connection.answered(heard)

    def _move(self, heard: Heard) -> None:
        chat = self.truth.chats.get(heard.payload.get("chat_id", ""))
        position = heard.position
        if chat is None:
            return
        if position > chat.head:
            self.error(None, "INVALID_SEQUENCE", connection=heard.connection)
            return
        chat.delivered = max(chat.delivered, position)
        if heard.type == "read":
            chat.read = max(chat.read, position)

    # REST.

    def _rest(self, request: Request) -> Response:
        path = request.path.removeprefix("/api/v1")
        body: dict[str, Any] = {}
        if request.body:
            body = msgspec.json.decode(request.body)
        if request.method == "POST" and path in ("/auth/login", "/auth/register"):
            return Response(200, msgspec.json.encode(Envelope(self._login(str(body["device_id"])))))
        if request.method == "POST" and path == "/auth/refresh":
            tokens = self._give_tokens(str(body.get("device_id") or self.account.device_id))
            return Response(200, msgspec.json.encode(Envelope(RefreshResult(tokens=tokens))))
        answer = {
            "error": {"code": "NOT_FOUND", "message": "not played here", "request_id": "none"}
        }
        return Response(404, msgspec.json.encode(answer))

    def _login(self, device_id: str) -> LoginResult:
        now = _stamp()
        return LoginResult(
            user=AccountView(
                user_id=OWN_ID,
                username=self.account.username,
                display_name="Ann",
                created_at=now,
                updated_at=now,
            ),
            session=OpenedSessionView(
                session_id=SessionId("sess_01J9ZKA2C4E6G8JMNPRTVXZ135"),
                device_id=device_id,
                created_at=now,
                expires_at=now,
            ),
            tokens=self._give_tokens(device_id),
            is_new_user=False,
        )

    def _give_tokens(self, device_id: str) -> TokensView:
        """Give out new tokens; the account has them from now on."""
        number = len(self.expiries) + 1
        # Whole seconds, as most programs write them.
        expires_at_s = -(-wall_ms() // 1000) + self.token_life_s
        claims = {
            "sub": OWN_ID,
            "sid": "sess_01J9ZKA2C4E6G8JMNPRTVXZ135",
            "did": device_id,
            "iat": wall_ms() // 1000,
            "exp": expires_at_s,
            "jti": str(number),
        }
        parts = ({"alg": "HS256", "typ": "JWT"}, claims)
        token = ".".join([*(_url64(msgspec.json.encode(part)) for part in parts), "AAAA"])
        self.expiries[token] = expires_at_s
        self.account.device_id = device_id
        self.account.token = token
        self.account.refresh_token = f"refresh-{number}"
        return TokensView(
            access_token=token,
            refresh_token=self.account.refresh_token,
            expires_in=self.token_life_s,
        )


def _credentials(request: Request) -> tuple[str, str]:
    """The token and the device, in any way in which a client may send them."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    device_id = request.headers.get("x-device-id", "")
    for name in request.protocols:
        if name.startswith("bearer."):
            token = token or name.removeprefix("bearer.")
        if name.startswith("device."):
            device_id = device_id or name.removeprefix("device.")
    # A token in the URL is noted, so that the other checks can go on; CL-01 sees where it stood.
    return (
        token or request.query.get("token", ""),
        device_id or request.query.get("device_id", ""),
    )


def _stamp() -> str:
    return format_time_ms(wall_ms())


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
