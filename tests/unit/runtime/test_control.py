"""The control socket: one request, one answer, and sentences for whatever goes wrong."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tidewire.domain.errors import InvalidOperation
from tidewire.runtime import control
from tidewire.runtime.control import ControlServer, OperationFailed, Progress, Result
from tidewire.runtime.supervise import TaskSupervisor

if TYPE_CHECKING:
    from tidewire.runtime.operations import Operations


class FakeOperations:
    """Echoes, fails, or tells of progress."""

    async def run(self, name: str, arguments: Mapping[str, object], progress: Progress) -> Result:
        if name == "refuse":
            raise InvalidOperation("this cannot be done")
        if name == "fail":
            raise TypeError("a bug of the act, not of the request")
        if name == "work":
            progress(1, 2)
            progress(2, 2)
        return dict(arguments)


@pytest.fixture(params=["short", "long" * 40], ids=["short path", "long path"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    path.mkdir()
    return path


@pytest.fixture
async def server(data_dir: Path) -> AsyncIterator[ControlServer]:
    tasks = TaskSupervisor()
    server = ControlServer(data_dir, cast("Operations", FakeOperations()), tasks)
    await server.start()
    yield server
    await server.stop()
    await tasks.close()


async def ask(data_dir: Path, command: str, **arguments: object) -> Result | None:
    return await asyncio.to_thread(control.ask, data_dir, command, arguments)


async def test_answer_is_what_the_operation_gave(server: ControlServer, data_dir: Path) -> None:
    assert await ask(data_dir, "echo", name="ann", days=3, label=None) == {
        "name": "ann",
        "days": 3,
        "label": None,
    }


async def test_refusal_is_the_servers_sentence(server: ControlServer, data_dir: Path) -> None:
    with pytest.raises(OperationFailed, match="this cannot be done"):
        await ask(data_dir, "refuse")


async def test_bug_of_an_act_is_told_as_one(server: ControlServer, data_dir: Path) -> None:
    """F11: not as a request that the server does not understand."""
    with pytest.raises(OperationFailed, match="INTERNAL_ERROR: something went wrong"):
        await ask(data_dir, "fail")


async def test_request_that_is_too_long_is_answered(server: ControlServer, data_dir: Path) -> None:
    """F11: it was passed over in silence."""
    with pytest.raises(OperationFailed, match="longer than 262144 bytes"):
        await ask(data_dir, "echo", text="a" * 3 * control.LINE_BYTES_MAX)


async def test_progress_comes_before_the_answer(server: ControlServer, data_dir: Path) -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    assert await asyncio.to_thread(control.ask, data_dir, "work", {}, tell) == {}
    assert told == [(1, 2), (2, 2)]


async def test_socket_is_private_and_gone_afterwards(server: ControlServer, data_dir: Path) -> None:
    socket = data_dir / "control.sock"
    assert socket.stat().st_mode & 0o777 == 0o600
    await server.stop()
    assert not socket.exists()
    assert await ask(data_dir, "echo") is None


async def test_without_a_server_nobody_answers(data_dir: Path, tmp_path: Path) -> None:
    assert await ask(data_dir, "echo") is None
    assert await ask(tmp_path / "nowhere", "echo") is None


async def test_socket_left_behind_is_replaced(data_dir: Path) -> None:
    (data_dir / "control.sock").write_text("left behind")
    tasks = TaskSupervisor()
    server = ControlServer(data_dir, cast("Operations", FakeOperations()), tasks)
    await server.start()
    assert await ask(data_dir, "echo") == {}
    await server.stop()
    await tasks.close()


@pytest.mark.parametrize(
    "request_line",
    [
        b"nonsense\n",
        b'{"arguments": {}}\n',
        b'{"command": "\xff"}\n',
        b'{"command": "echo", "arguments": ' + b"[" * 100_000 + b"\n",
    ],
    ids=["no JSON", "no command", "no text", "too deep"],
)
async def test_nonsense_is_answered(
    server: ControlServer, data_dir: Path, request_line: bytes
) -> None:
    with control._short(data_dir) as path:
        reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request_line)
    assert b"another version" in await reader.readline()
    writer.close()
    await writer.wait_closed()
