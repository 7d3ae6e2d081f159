"""The played server: does what a good one does, notes everything, and misbehaves on demand.

Whatever a client asks is answered from the `Truth`. A check changes that in three ways: a *rule*
takes the frames of a type over, a *hold* keeps back what would be sent until it is released, and
the lines (one a connection) can be written to, cut and closed by hand.
"""

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidewire.client.conformance.adapter import Account
from tidewire.client.conformance.line import Heard, Line
from tidewire.client.conformance.sockets import Listener, Request, Response, Socket
from tidewire.client.conformance.truth import OTHER, PlayedChat, Truth
from tidewire.domain.chats import ChatType, Role
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, SessionId, UserId
from tidewire.domain.messages import Appended, Message, MessagePage
from tidewire.wire.codec import encode_message_push
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

Rule = Callable[[Heard], bool]
"""Takes a frame; True: it is dealt with, nobody else is to answer it."""

OWN_ID: Final = UserId("user_01J9ZKA2C4E6G8JMNPRTVXZ135")
CALM_MS: Final = 30_000
TOKEN_LIFE_S: Final = 3_600
PAGE_MESSAGES: Final = 100


@dataclass(frozen=True, slots=True)
class Attempt:
    """Somebody wanted to connect."""

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
        """Tokens that were given out, and when they end, on the wall clock."""
        self.attempts: list[Attempt] = []
        self.lines: list[Line] = []
        self.heard: list[Heard] = []
        """Every frame of every connection, in the order of arrival."""
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
        """Take the port, the same one again after `close`."""
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
    def line(self) -> Line:
        """The newest connection."""
        return self.lines[-1]

    @property
    def is_connected(self) -> bool:
        return bool(self.lines) and not self.line.is_over and self.line.is_introduced

    # Waiting.

    async def until(self, is_so: Callable[[], bool], patience_s: float) -> bool:
        """Wait until it is so; it is looked at whenever something happens. False: in vain."""
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
        self, *types: str, line: Line | None = None, chat: PlayedChat | None = None
    ) -> list[Heard]:
        """What was heard of these types."""
        return [
            heard
            for heard in self.heard
            if heard.type in types
            and (line is None or heard.line is line)
            and (chat is None or heard.payload.get("chat_id") == chat.chat_id)
        ]

    def sends(self, text: str) -> list[Heard]:
        """Each time that a client sent this text."""
        return [one for one in self.of("send_message") if one.payload.get("content") == text]

    def acked(self, chat: PlayedChat, line: Line | None = None) -> list[int]:
        """What was acknowledged in a chat, by an ack or by a read, in the order of arrival."""
        return [heard.position for heard in self.of("ack", "read", line=line, chat=chat)]

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
        """Somebody else sends a text; `push`: the client is told."""
        message = self.truth.append(chat, text, skip=skip)
        if push:
            self.push(message)
        return message

    def push(self, message: Message) -> None:
        if self.is_connected:
            self.line.send_raw(encode_message_push(message, message.created_at_ms))

    def push_status(self, chat: PlayedChat, *, delivered: int, read: int) -> None:
        payload = StatusUpdatePayload(
            chat_id=chat.chat_id, others_delivered=delivered, others_read=read
        )
        self.line.send(StatusUpdateFrame(timestamp=_stamp(), payload=payload))

    def push_update(
        self, chat: PlayedChat, change: str, version: int, user_id: UserId = OWN_ID
    ) -> None:
        """Tell of a change of a chat's members; what the truth says of it is for the check."""
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
        self.line.send(ChatUpdateFrame(timestamp=_stamp(), payload=payload))

    def store(self, heard: Heard) -> Message:
        """Store what a client sent, once; the message, new or old."""
        chat = self.truth.chats[heard.payload["chat_id"]]
        # One key whatever its case; what is stored is lower case, what is answered as it was sent.
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
                now_ms=_wall_ms(),
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
                page, request_id=heard.request_id or "", chat_id=chat.chat_id, now_ms=_wall_ms()
            )
        )

    def error(
        self, heard: Heard | None, code: str, *, line: Line | None = None, **details: object
    ) -> None:
        """Refuse a request; without one, complain unasked."""
        chosen = heard.line if heard is not None else (line or self.line)
        chosen.send(
            ErrorFrame(
                request_id=None if heard is None else heard.request_id,
                timestamp=_stamp(),
                payload=ErrorPayload(code=code, message="as the check wants it", details=details),
            )
        )
        if heard is not None:
            heard.line.answered(heard)

    def closing(self, reason: str, *, delay_ms: int = 0, line: Line | None = None) -> float:
        """Announce the end of a connection; when that was."""
        at = self.now()
        payload = ConnectionClosingPayload(
            reason=reason, message="as the check wants it", reconnect_delay_ms=delay_ms
        )
        (line or self.line).send(ConnectionClosingFrame(timestamp=_stamp(), payload=payload))
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
        line = Line(len(self.lines) + 1, self.now, on_frame=self._on_frame, on_news=self._news.set)
        line.socket = Socket(reader, writer, line)
        self.lines.append(line)
        self._news.set()
        self._out("connection_established", lambda: self._introduce(line))
        return line.socket

    def _introduce(self, line: Line) -> None:
        if line.is_over:
            return
        line.introduced_at = self.now()
        line.send(
            ConnectionEstablishedFrame(
                timestamp=_stamp(),
                payload=ConnectionEstablishedPayload(
                    connection_id=ConnectionId(f"conn_{line.number}"),
                    user_id=OWN_ID,
                    device_id=self.account.device_id,
                    server_time=_stamp(),
                    heartbeat_interval_ms=self.heartbeat_ms,
                    protocol_version=1,
                    epoch=self.truth.epoch,
                ),
            )
        )
        self._out("chat_digest", lambda: self.send_digest(line))
        self._news.set()

    def send_digest(self, line: Line, request_id: str | None = None) -> None:
        payload = ChatDigestPayload(
            digest_id=f"digest-{line.number}", page=0, last=True, chats=self.truth.digest()
        )
        line.send(ChatDigestFrame(request_id=request_id, timestamp=_stamp(), payload=payload))
        line.digests_sent += 1
        self._news.set()

    # Frames.

    def _on_frame(self, heard: Heard) -> None:
        self.heard.append(heard)
        rule = self.rules.get(heard.type)
        # Before the introduction nobody may say anything: it is noted, and not answered.
        if heard.is_early or (rule is not None and rule(heard)):
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
        heard.line.send_raw(self.ack_frame(heard, message))
        heard.line.answered(heard)

    def answer_page(self, heard: Heard) -> None:
        heard.line.send_raw(self.page_frame(heard))
        heard.line.answered(heard)
        self._news.set()

    def answer_heartbeat(self, heard: Heard) -> None:
        payload = HeartbeatAckPayload(server_time=_stamp())
        heard.line.send(
            HeartbeatAckFrame(request_id=heard.request_id, timestamp=_stamp(), payload=payload)
        )
        heard.line.answered(heard)

    def _answer_digest(self, heard: Heard) -> None:
        self.send_digest(heard.line, heard.request_id)
        heard.line.answered(heard)

    def _move(self, heard: Heard) -> None:
        chat = self.truth.chats.get(heard.payload.get("chat_id", ""))
        position = heard.position
        if chat is None:
            return
        if position > chat.head:
            self.error(None, "INVALID_SEQUENCE", line=heard.line)
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
        """New ones; the account has them from now on."""
        number = len(self.expiries) + 1
        # Whole seconds, as most programs write them.
        expires_at_s = -(-_wall_ms() // 1000) + self.token_life_s
        claims = {
            "sub": OWN_ID,
            "sid": "sess_01J9ZKA2C4E6G8JMNPRTVXZ135",
            "did": device_id,
            "iat": _wall_ms() // 1000,
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
    """The token and the device, in whichever way a client may tell them."""
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


def wall_s() -> float:
    return time.time()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _stamp() -> str:
    return format_time_ms(_wall_ms())


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
