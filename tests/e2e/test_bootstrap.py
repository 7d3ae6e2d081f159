"""The whole server in this process, on a store in memory. Slow: it loads everything."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.memory import MemoryStorage
from tidewire.domain.accounts import Secret
from tidewire.ports.event_log import CommitListener
from tidewire.ports.storage import Storage
from tidewire.runtime import lifecycle
from tidewire.runtime.bootstrap import Server, build_server
from tidewire.runtime.config import Config, load
from tidewire.runtime.supervise import TaskSupervisor

pytestmark = pytest.mark.slow

KEY = Secret("k" * 48)


async def open_memory(config: Config, listener: CommitListener) -> Storage:
    return MemoryStorage(listener)


async def start(data_dir: Path, tasks: TaskSupervisor) -> Server:
    config = load(data_dir=data_dir, flags={"server.port": "0"}, environ={}).config
    server = await build_server(config, key=KEY, tasks=tasks, open_store=open_memory)
    await lifecycle.start(server)
    return server


def status_of(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


async def test_server_starts_serves_and_stops_on_a_store_in_memory(tmp_path: Path) -> None:
    deaths: list[str] = []
    tasks = TaskSupervisor(lambda name, error: deaths.append(name))
    server = await start(tmp_path, tasks)
    url = server.edge.url
    assert (await asyncio.to_thread(status_of, f"{url}/readyz"))[0] == 200

    server.readiness.is_ready = False
    status, body = await asyncio.to_thread(status_of, f"{url}/readyz")
    assert status == 503
    assert json.loads(body)
    server.readiness.is_ready = True

    ann = await server.operations.run(
        "users.add", {"username": "ann", "password": None, "display_name": None}
    )
    await server.operations.run(
        "users.add", {"username": "bob", "password": None, "display_name": None}
    )
    said = await server.operations.run(
        "say", {"sender": "ann", "recipient": "bob", "text": "a secret message"}
    )
    assert said["sequence"] == 1
    status, page = await asyncio.to_thread(status_of, f"{url}/metrics")
    assert status == 200
    assert b'durability_persist_total{status="stored"} 1.0' in page
    for private in (ann["user_id"], said["chat_id"], said["message_id"], "ann", "a secret message"):
        assert private.encode() not in page

    await lifecycle.stop(server)
    assert deaths == []
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(status_of, f"{url}/readyz")
