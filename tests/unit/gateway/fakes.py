"""What the tests of the gateway put around it: a clock, a socket, frames in short form."""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidewire.domain.delivery import Advance
from tidewire.domain.errors import AuthFailure, Unauthorized
from tidewire.domain.ids import ChatId, ClientMessageId, SessionId, UserId
from tidewire.gateway.effects import Effect, Send
from tidewire.ports.runtime import Clock
from tidewire.ports.services import Identity
from tidewire.ports.transport import Admission, SocketTransport
from tidewire.wire import client_frames as client
from tidewire.wire.server_frames import ServerFrame

if TYPE_CHECKING:
    from collections.abc import Callable

WALL_MS = 1_800_000_000_000
CHAT = ChatId("chat_1")
DEVICE = "11111111-0000-4000-8000-000000000000"
OTHER_DEVICE = "22222222-0000-4000-8000-000000000000"


class ManualClock:
    """Time stands still until a test moves it. The two clocks do not agree on what it is."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_MS - 1_000_000 + self.now_ms

    def forward(self, ms: int) -> None:
        self.now_ms += ms


class Submit(NamedTuple):
    """A core wants this entry stored, under this number."""

    frame: client.SubmitFrame
    number: int


Wanted = tuple[Effect | Submit | Advance, ...]


class FakeTransport:
    """A socket whose peer reads when the test says so."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.pings = 0
        self.closed: tuple[int, str] | None = None
        self.is_reading = True
        self.stuck_bytes = 0
        self.drained_bytes_max = 0
        self.on_drained: Callable[[], None] | None = None
        self._seen = 0

    def write(self, framed: bytes) -> None:
        assert self.closed is None, "written after close"
        self.writes.append(framed)
        if not self.is_reading:
            self.stuck_bytes += len(framed)

    def unsent_bytes(self) -> int:
        return self.stuck_bytes

    def tell_drained_below(self, unsent_bytes: int) -> None:
        self.drained_bytes_max = unsent_bytes

    def ping(self) -> None:
        self.pings += 1

    def close(self, code: int, reason: str) -> None:
        assert self.closed is None, "closed twice"
        self.closed = (code, reason)

    def read_all(self) -> None:
        """The peer catches up."""
        self.read_down_to(0)

    def read_down_to(self, unsent_bytes: int) -> None:
        before, self.stuck_bytes = self.stuck_bytes, unsent_bytes
        if unsent_bytes <= self.drained_bytes_max < before and self.on_drained is not None:
            self.on_drained()

    def frames(self) -> list[dict[str, Any]]:
        """Every frame that was written so far, alone or in an array."""
        said = [msgspec.json.decode(message) for message in self.messages()]
        return [frame for one in said for frame in (one if isinstance(one, list) else (one,))]

    def messages(self) -> list[bytes]:
        """Every message that was written so far."""
        return unframed(b"".join(self.writes))

    def new_frames(self) -> list[dict[str, Any]]:
        """Those that were written since the last time this was asked."""
        frames = self.frames()[self._seen :]
        self._seen += len(frames)
        return frames

    def new_types(self) -> list[str]:
        return [frame["type"] for frame in self.new_frames()]


def unframed(data: bytes) -> list[bytes]:
    """The payloads of unmasked text frames, read by the letter of RFC 6455."""
    payloads = []
    while data:
        assert data[0] == 0x81
        size, head = data[1], 2
        if size == 126:
            size, head = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, head = int.from_bytes(data[2:10], "big"), 10
        payloads.append(data[head : head + size])
        assert len(payloads[-1]) == size
        data = data[head + size :]
    return payloads


class FakeAuthenticator:
    """Tokens are what the test says. A token without an entry is not valid."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Identity | Exception] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.gate: asyncio.Event | None = None

    async def authenticate(self, token: str, *, device_id: str | None) -> Identity:
        self.asked.append((token, device_id))
        if self.gate is not None:
            await self.gate.wait()
        outcome = self.outcomes.get(token) or Unauthorized(AuthFailure.INVALID_TOKEN)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def turns(count: int = 1) -> None:
    """Let the loop go round so many times."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned


# Frames in short form.


def send(
    request_id: str = "r1", *, chat_id: str = CHAT, text: str = "hello", key: int = 1
) -> client.SendMessageFrame:
    return client.SendMessageFrame(
        request_id=request_id,
        payload=client.SendMessagePayload(
            client_message_id=_key(key),
            chat_id=ChatId(chat_id),
            content=text,
        ),
    )


def edit(
    request_id: str = "r1", *, chat_id: str = CHAT, text: str = "better", key: int = 1
) -> client.EditMessageFrame:
    return client.EditMessageFrame(
        request_id=request_id,
        payload=client.EditMessagePayload(
            client_message_id=_key(key), chat_id=ChatId(chat_id), target=3, content=text
        ),
    )


def delete(
    request_id: str = "r1", *, chat_id: str = CHAT, key: int = 1
) -> client.DeleteMessageFrame:
    return client.DeleteMessageFrame(
        request_id=request_id,
        payload=client.DeleteMessagePayload(
            client_message_id=_key(key), chat_id=ChatId(chat_id), target=3
        ),
    )


def react(request_id: str = "r1", *, chat_id: str = CHAT, key: int = 1) -> client.ReactFrame:
    return client.ReactFrame(
        request_id=request_id,
        payload=client.ReactPayload(
            client_message_id=_key(key), chat_id=ChatId(chat_id), target=3, emoji="👍"
        ),
    )


def _key(number: int) -> ClientMessageId:
    return ClientMessageId(f"{number:08x}-0000-4000-8000-000000000000")


def ack(sequence: int = 1, chat_id: str = CHAT) -> client.AckFrame:
    return client.AckFrame(
        payload=client.AckPayload(chat_id=ChatId(chat_id), last_acked_sequence=sequence)
    )


def read(sequence: int = 1, chat_id: str = CHAT) -> client.ReadFrame:
    return client.ReadFrame(
        payload=client.ReadPayload(chat_id=ChatId(chat_id), last_read_sequence=sequence)
    )


def typing_start(chat_id: str = CHAT) -> client.TypingStartFrame:
    return client.TypingStartFrame(payload=client.TypingPayload(chat_id=ChatId(chat_id)))


def typing_stop(chat_id: str = CHAT) -> client.TypingStopFrame:
    return client.TypingStopFrame(payload=client.TypingPayload(chat_id=ChatId(chat_id)))


def sync(request_id: str = "s1", *, chat_id: str = CHAT, after: int = 0) -> client.SyncRequestFrame:
    return client.SyncRequestFrame(
        request_id=request_id,
        payload=client.SyncRequestPayload(chat_id=ChatId(chat_id), last_acked_sequence=after),
    )


def digest(request_id: str = "d1") -> client.DigestRequestFrame:
    return client.DigestRequestFrame(request_id=request_id, payload=client.EmptyPayload())


def heartbeat(request_id: str | None = None) -> client.HeartbeatFrame:
    return client.HeartbeatFrame(request_id=request_id, payload=client.EmptyPayload())


def admission(
    user_id: str = "user_1", *, device_id: str = DEVICE, session_id: str | None = None
) -> Admission:
    """Somebody who may connect, with a token for an hour."""
    return Admission(
        user_id=UserId(user_id),
        session_id=SessionId(session_id or f"sess_{user_id}_{device_id[:8]}"),
        device_id=device_id,
        token_expires_at_ms=WALL_MS + 3_600_000,
        client_ip="192.0.2.1",
    )


def sent(effects: Wanted) -> list[ServerFrame]:
    """The frames that effects send."""
    return [effect.frame for effect in effects if isinstance(effect, Send)]


_CLOCK: type[Clock] = ManualClock
_TRANSPORT: type[SocketTransport] = FakeTransport
