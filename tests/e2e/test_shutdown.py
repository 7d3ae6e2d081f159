"""What clients see of a server that ends. Slow: starts the program, with real sockets."""

import asyncio
import json
import signal
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.commands import TIMEOUT_S, tidewire
from tests.e2e.crowds import crowd
from tests.e2e.serving import ServerProcess, parts_of, serving

pytestmark = pytest.mark.slow


def prepare(data_dir: Path) -> tuple[str, str]:
    """Ann, who has said something to Bob; her token and their chat."""
    place = ("--data-dir", data_dir)
    for name in ("ann", "bob"):
        assert tidewire("users", "add", name, "--no-password", *place).exit_code == 0
    said = tidewire("say", "ann", "bob", "Hello", *place)
    token = tidewire("tokens", "issue", "ann", *place)
    return token.out.strip(), said.out.rpartition(" ")[2].strip().rstrip(".")


def connected(server: ServerProcess, token: str) -> connect:
    headers = {"Authorization": f"Bearer {token}", "X-Device-ID": str(uuid.uuid4())}
    return connect(server.url.replace("http", "ws") + "/v1/ws", additional_headers=headers)


async def receive(connection: ClientConnection, frame_type: str) -> dict[str, Any]:
    """The next frame of this type."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            frame: dict[str, Any] = json.loads(await connection.recv())
            if frame["type"] == frame_type:
                return frame


async def say(connection: ClientConnection, chat_id: str, content: str) -> None:
    payload = {"chat_id": chat_id, "client_message_id": str(uuid.uuid4()), "content": content}
    frame = {"type": "send_message", "request_id": str(uuid.uuid4()), "payload": payload}
    await connection.send(json.dumps(frame))


async def test_clients_are_told_and_their_sends_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        token, chat_id = await asyncio.to_thread(prepare, tmp_path)
        async with connected(server, token) as connection:
            await receive(connection, "connection_established")
            await say(connection, chat_id, "just before the end")
            ack = await receive(connection, "send_message_ack")
            server.process.send_signal(signal.SIGTERM)
            closing = await receive(connection, "connection_closing")
            assert closing["payload"]["reason"] == "server_shutdown"
            with pytest.raises(ConnectionClosed):
                await receive(connection, "nothing more")
        exit_code, err = await asyncio.to_thread(server.wait)
    assert exit_code == 0
    assert ack["payload"]["sequence"] == 2
    assert token not in err
    assert "just before the end" not in err
    ended = [line for line in ServerProcess.lines(err) if line["event"] == "connection ended"]
    assert len(ended) == 1


async def test_second_signal_ends_it_at_once_and_loses_nothing_acked(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        token, chat_id = await asyncio.to_thread(prepare, tmp_path)
        async with connected(server, token) as connection:
            await receive(connection, "connection_established")
            await say(connection, chat_id, "kept")
            ack = await receive(connection, "send_message_ack")
            # A peer that does not read its close frame would be waited for.
            connection.transport.pause_reading()
            # Two signals that come before the process has a turn are one: until it has two.
            while (exit_code := server.process.poll()) is None:
                server.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.2)
            connection.transport.abort()
    assert exit_code == 128 + signal.SIGTERM
    listed = await asyncio.to_thread(tidewire, "verify", tmp_path, "--json")
    assert listed.json["counts"]["messages"] == ack["payload"]["sequence"] == 2


async def test_crowd_under_load_is_told_spread_out_and_loses_nothing(tmp_path: Path) -> None:
    async with crowd(tmp_path / "data", pairs=30, seed=4) as people:
        await people.arrive()
        tasks = await people.talk(1_000)
        gateways = max(1, len(parts_of(people.server.process.pid)) - 1)
        assert people.under_way > 0
        # In time: what takes over 9.5 s ends with another code.
        assert await people.server.end() == 0
        await people.gone(tasks)
        closings = [[one.payload for one in client.closings] for client in people.clients]
        assert all([one.reason for one in told] == ["server_shutdown"] for told in closings)
        delays = Counter(told[0].reconnect_delay_ms for told in closings)
        # Each gateway spreads its own, at its share of the rate.
        assert max(delays.values()) <= gateways, "they would come back at once"
        await people.server.start()
        await people.arrive()
        assert await people.audit() == people.book.acked_count
        assert people.outcome.faults.first == []
