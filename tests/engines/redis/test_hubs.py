"""Two gateways with real hubs and connections, wired as a server wires them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.pushing import give
from tests.support.redis import PATIENCE_S, Net, net_on
from tests.unit.gateway.fakes import DEVICE, OTHER_DEVICE
from tests.unit.gateway.stage import Peer, Stage, staged
from tests.unit.gateway.test_driver import push
from tidewire.accounts.recheck import SessionRecheck
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, SessionId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.engines.redis.inbox import Inbox
from tidewire.gateway.options import GatewayOptions
from tidewire.ports.router import Push
from tidewire.runtime.clock import SystemClock
from tidewire.wire.codec import encode_message_push
from tidewire.wire.framing import frame_text


class Server:
    """A gateway of the cluster. Each has a store of its own here: no chats, so empty digests."""

    def __init__(self, name: str, stage: Stage, net: Net) -> None:
        self.stage = stage
        self.hub = stage.hub
        self.recheck = SessionRecheck(
            store=stage.storage,
            clock=stage.clock,
            tasks=stage.tasks,
            connected=lambda: self.hub.sessions,
            on_ended=self.hub.close_session,
        )
        self.inbox = Inbox(
            net.options,
            local=self.hub,
            gateway_id=f"gw_{name}",
            random_hex=secrets.token_hex,
            clock=SystemClock(),
            tasks=stage.tasks,
            on_revoked=self.hub.close_session,
            on_roster_changed=lambda _: None,
            on_news=lambda _: None,
            on_forward=lambda _: None,
            on_unrouted=lambda _: None,
            on_lost=self.recheck,
        )
        self.hub.use_registrar(self.inbox, stage.tasks)

    async def connect(
        self, user_id: UserId, device_id: str = DEVICE, session_id: str | None = None
    ) -> Peer:
        peer = self.stage.arrives(user_id, device_id=device_id, session_id=session_id)
        await until(lambda: "chat_digest" in peer.new_types() or peer.closed is not None)
        return peer


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def next_frame(peer: Peer, kind: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def has_come() -> bool:
        found.extend(frame for frame in peer.new_frames() if frame["type"] == kind)
        return bool(found)

    await until(has_come)
    return found[0]


@pytest.fixture
async def net(url: Secret) -> AsyncIterator[Net]:
    """A connection whose route is not known in time is let in, uncounted; a busy machine may take
    longer than the second that this is usually given."""
    async with net_on(url, register_ms=30_000) as made:
        yield made


@pytest.fixture
async def servers(net: Net, tmp_path: Path) -> AsyncIterator[tuple[Server, Server]]:
    async with AsyncExitStack() as stack:
        made: list[Server] = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            options = GatewayOptions(user_connections_max=2)
            stage = await stack.enter_async_context(staged(tmp_path / name, options))
            # The ids of a stage are always the same ones; a cluster's never are.
            for _ in range(1_000 * len(made)):
                stage.world.ids.connection_id(stage.clock.wall_ms())
            server = Server(name, stage, net)
            await server.inbox.start()
            stack.push_async_callback(server.inbox.stop)
            made.append(server)
        yield made[0], made[1]


async def test_push_reaches_a_connection_anywhere(net: Net, servers: tuple[Server, Server]) -> None:
    a, b = servers
    ann = UserId("user_ann")
    phone, laptop = await a.connect(ann), await b.connect(ann, OTHER_DEVICE)
    give(net.router, [ann], push(), except_connection=phone.connection_id)
    await next_frame(laptop, "message")
    assert phone.new_frames() == []
    assert await net.router.presence([ann]) == {ann: 2}
    laptop.goes()
    # Wishes are granted in order, so this one tells that the one before was.
    await b.connect(UserId("user_ben"))
    assert await net.router.presence([ann]) == {ann: 1}


async def test_entry_comes_to_each_connection_in_the_form_that_it_knows(
    net: Net, servers: tuple[Server, Server]
) -> None:
    """Redis carries one form; each gateway makes the other where it is needed."""
    a, b = servers
    ann, ben = UserId("user_ann"), UserId("user_ben")
    a.stage.features = ("entries",)
    new, old = await a.connect(ann), await b.connect(ben)
    reaction = Message(
        ChatId("chat_1"),
        2,
        1,
        MessageId("msg_2"),
        UserId("user_cleo"),
        ClientMessageId("00000002-0000-4000-8000-000000000000"),
        "",
        "text/plain",
        0,
        amends=Amendment(kind=EntryKind.REACT, target=1, emoji="👍"),
        count=1,
    )
    framed = frame_text(encode_message_push(reaction, 0))
    net.router.push(Push([ann, ben], "entry", framed))
    entry = (await next_frame(new, "entry"))["payload"]
    assert (entry["kind"], entry["emoji"], "content" in entry) == ("react", "👍", False)
    message = (await next_frame(old, "message"))["payload"]
    assert (message["kind"], message["content"], message["sequence"]) == ("react", "", 2)
    assert "emoji" not in message


async def test_device_has_one_connection_in_the_whole_cluster(
    servers: tuple[Server, Server],
) -> None:
    a, b = servers
    ann = UserId("user_ann")
    older = await a.connect(ann)
    newer = await b.connect(ann)
    await until(lambda: older.closed is not None)
    assert older.closed == (4500, "duplicate_connection")
    assert newer.closed is None


async def test_user_has_so_many_connections_in_the_whole_cluster(
    servers: tuple[Server, Server],
) -> None:
    a, b = servers
    ann = UserId("user_ann")
    await a.connect(ann)
    await a.connect(ann, OTHER_DEVICE)
    third = await b.connect(ann, "33333333-0000-4000-8000-000000000000")
    assert third.closed is not None
    assert third.closed[1] == "rate_limited"


async def test_revocation_closes_connections_everywhere(
    net: Net, servers: tuple[Server, Server]
) -> None:
    a, b = servers
    ann = UserId("user_ann")
    here, there = (
        await a.connect(ann, session_id="sess_1"),
        await b.connect(ann, OTHER_DEVICE, session_id="sess_2"),
    )
    net.router.revoke([SessionId("sess_1"), SessionId("sess_2")])
    await until(lambda: here.closed is not None and there.closed is not None)
    assert here.closed == there.closed == (1008, "session_revoked")


async def test_after_a_loss_everybody_resyncs_and_sessions_are_checked_again(
    net: Net, servers: tuple[Server, Server]
) -> None:
    a, b = servers
    ann = UserId("user_ann")
    peer, other = await a.connect(ann), await b.connect(ann, OTHER_DEVICE)
    await net.forget(net.keys.gateway("gw_a"))
    frame = await next_frame(peer, "resync")
    assert frame["payload"]["reason"] == "pushes_lost"
    # The store knows no such session: it may have been revoked, and word of that lost.
    await until(lambda: peer.closed is not None)
    assert peer.closed == (1008, "session_revoked")
    assert other.new_frames() == []
    assert other.closed is None
