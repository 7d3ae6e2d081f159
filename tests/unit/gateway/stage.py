"""The gateway with everything real behind it but the sockets: services, memory engine, a clock that
the test turns. The fan-out is the least that can be called one."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.engines import MemoryHarness
from tests.support.memory import MemoryStorage
from tests.support.world import World
from tests.unit.gateway.fakes import (
    DEVICE,
    WALL_MS,
    FakeAuthenticator,
    FakeTransport,
    ManualClock,
    turns,
)
from tidewire.delivery.options import DeliveryOptions
from tidewire.delivery.service import DeliveryService
from tidewire.domain.delivery import DigestPage
from tidewire.domain.errors import TidewireError
from tidewire.domain.events import Acknowledged, Event, MessageAppended
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.messages import MessagePage
from tidewire.gateway.driver import ConnectionDriver, Desk
from tidewire.gateway.hub import Hub
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.service import Gateway, send_limiter
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ports.event_log import CommitBus
from tidewire.ports.router import Push
from tidewire.ports.storage import Storage
from tidewire.ports.transport import Admission, UpgradeRequest
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.wire.codec import encode_message_push
from tidewire.wire.framing import frame_text

SETTLED = 30
"""How many turns of the loop the memory engine and the services need at most."""


class StageStorage(MemoryStorage):
    """Can be made to wait, or to fail, when somebody reads."""

    gate: asyncio.Event
    faults: list[TidewireError]
    reads: list[str]

    async def _pass(self, what: str) -> None:
        self.reads.append(what)
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)

    async def digest(self, user_id: UserId, *, after: ChatId | None, count_max: int) -> DigestPage:
        await self._pass("digest")
        return await super().digest(user_id, after=after, count_max=count_max)

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        await self._pass("sync")
        return await super().messages_after(
            reader, chat_id, after, count_max=count_max, bytes_max=bytes_max
        )


class StageHarness(MemoryHarness):
    on_commit: Callable[[Sequence[Event]], None] | None = None

    async def _open(self) -> Storage:
        storage = StageStorage(self._listen, epoch="epoch_1", tables=self._tables)
        storage.gate = asyncio.Event()
        storage.gate.set()
        storage.faults = []
        storage.reads = []
        return storage

    def _listen(self, events: Sequence[Event]) -> None:
        super()._listen(events)
        if self.on_commit is not None:
            self.on_commit(events)

    def members(self, chat_id: ChatId) -> list[UserId]:
        return list(self._tables.chats[chat_id].members)


class Peer:
    """A client at the other end of one connection."""

    def __init__(self, stage: "Stage", driver: ConnectionDriver, transport: FakeTransport) -> None:
        self.stage = stage
        self.driver = driver
        self.transport = transport

    @property
    def connection_id(self) -> ConnectionId:
        return self.driver.core.connection_id

    def says(self, kind: str, request_id: str | None = None, **payload: object) -> None:
        """Send one frame; nothing is waited for."""
        frame: dict[str, object] = {"type": kind, "payload": payload}
        if request_id is not None:
            frame["request_id"] = request_id
        self.driver.text_received(json.dumps(frame).encode())

    def says_all(self, *frames: object) -> int:
        """Send an array; how many of its frames were counted."""
        return self.driver.text_received(json.dumps(frames).encode())

    def sends(self, request_id: str, chat_id: ChatId, key: int, content: str = "hello") -> None:
        self.says(
            "send_message",
            request_id,
            chat_id=chat_id,
            client_message_id=f"{key:08x}-0000-4000-8000-000000000000",
            content=content,
        )

    async def asks(self, kind: str, request_id: str, **payload: object) -> list[dict[str, Any]]:
        """Send one frame and wait; all that came meanwhile."""
        self.says(kind, request_id, **payload)
        await turns(SETTLED)
        return self.new_frames()

    def new_frames(self) -> list[dict[str, Any]]:
        return self.transport.new_frames()

    def new_types(self) -> list[str]:
        return self.transport.new_types()

    @property
    def closed(self) -> tuple[int, str] | None:
        return self.transport.closed

    def goes(self, *, says_goodbye: bool = False) -> None:
        self.driver.lost(is_closed_by_peer=says_goodbye)


class Stage:
    def __init__(self, engine: StageHarness, options: GatewayOptions) -> None:
        self.engine = engine
        self.world = World(engine)
        self.options = options
        self.features: tuple[str, ...] = ()
        """Of connections that name none themselves."""
        self.clock = ManualClock()
        self.tasks = TaskSupervisor()
        self.authenticator = FakeAuthenticator()
        self.typed: list[tuple[UserId, ChatId, bool, ConnectionId]] = []
        self.bus = CommitBus()
        self.hub = Hub(clock=self.clock, options=options, publish=self.bus)
        self.ingest = IngestService(
            store=engine.storage,
            clock=self.clock,
            ids=self.world.ids,
            tasks=self.tasks,
            options=IngestOptions(),
        )
        self.delivery = DeliveryService(
            store=engine.storage,
            clock=self.clock,
            tasks=self.tasks,
            options=DeliveryOptions(),
            publish=self.bus,
            gather_ms=0,
        )
        self.bus.subscribe((Acknowledged,), self.hub.acknowledged)
        self.bus.subscribe((MessageAppended,), self.fan_out)
        desk = Desk(
            hub=self.hub,
            intake=self.ingest,
            acknowledger=self.delivery,
            typing=self,
            messages=engine.storage,
            positions=engine.storage,
            clock=self.clock,
            tasks=self.tasks,
            options=options,
        )
        self.gateway = Gateway(
            desk,
            authenticator=self.authenticator,
            ids=self.world.ids,
            epoch=engine.storage.epoch,
            sends=send_limiter(options),
        )
        engine.on_commit = self.bus

    @property
    def storage(self) -> StageStorage:
        storage = self.engine.storage
        assert isinstance(storage, StageStorage)
        return storage

    def fan_out(self, events: Sequence[MessageAppended]) -> None:
        """Push entries to whoever is in the chat."""
        for event in events:
            message = event.message
            self.hub.push(
                Push(
                    self.engine.members(message.chat_id),
                    "message" if message.amends is None else "entry",
                    frame_text(encode_message_push(message, self.clock.wall_ms())),
                    event.origin_connection_id,
                )
            )

    def typing(
        self, user_id: UserId, chat_id: ChatId, *, is_typing: bool, origin: ConnectionId
    ) -> None:
        self.typed.append((user_id, chat_id, is_typing, origin))

    def arrives(
        self,
        user_id: UserId,
        *,
        device_id: str = DEVICE,
        session_id: str | None = None,
        features: tuple[str, ...] | None = None,
    ) -> Peer:
        """A connection that has just been upgraded; the digest is still to be read."""
        transport = FakeTransport()
        admission = Admission(
            user_id=user_id,
            session_id=SessionId(session_id or f"sess_{user_id}_{device_id[:8]}"),
            device_id=device_id,
            token_expires_at_ms=WALL_MS + 3_600_000,
            client_ip="192.0.2.1",
            features=self.features if features is None else features,
        )
        driver = self.gateway.connected(admission, transport)
        assert isinstance(driver, ConnectionDriver)
        transport.on_drained = driver.drained
        return Peer(self, driver, transport)

    async def connect(
        self, user_id: UserId, *, device_id: str = DEVICE, features: tuple[str, ...] | None = None
    ) -> Peer:
        """A connection that is established, with its digest received."""
        peer = self.arrives(user_id, device_id=device_id, features=features)
        await turns(SETTLED)
        assert peer.new_types() == ["connection_established", "chat_digest"]
        return peer

    async def pair(self) -> tuple[UserId, UserId, ChatId]:
        """Two people in a direct chat."""
        ann, ben = await self.world.people(2)
        return ann, ben, await self.world.direct(ann, ben)

    def time_passes(self, ms: int) -> None:
        """Turn the clock on, half a second at a time, and look after the connections."""
        end_ms = self.clock.now_ms + ms
        while self.clock.now_ms < end_ms:
            self.clock.now_ms = min(end_ms, self.clock.now_ms + 500)
            self.hub.tick()

    @staticmethod
    def request(
        token: str, *, device_id: str = DEVICE, client_ip: str = "192.0.2.1"
    ) -> UpgradeRequest:
        return UpgradeRequest(
            path="/v1/ws",
            query="",
            headers={"authorization": f"Bearer {token}", "x-device-id": device_id},
            client_ip=client_ip,
        )


@asynccontextmanager
async def staged(directory: Path, options: GatewayOptions | None = None) -> AsyncIterator[Stage]:
    engine = StageHarness(directory)
    await engine.open()
    stage = Stage(engine, GatewayOptions() if options is None else options)
    try:
        yield stage
    finally:
        stage.hub.close()
        stage.storage.gate.set()
        await stage.ingest.drain()
        await stage.delivery.drain()
        await stage.tasks.close()
        await engine.close()
