"""Drives a client of any language: a program that speaks JSON, a line at a time.

A request is a line on the program's stdin, its answer a line on its stdout, one after another:

    {"id": 1, "do": "start", "url": "http://127.0.0.1:4711", "store": "/tmp/…", "account": {…}}
    {"id": 1, "result": null}

`do` is `start`, `restart`, `stop`, `send`, `messages`, `ticks`, `read`, `state` or `round_trip_ms`,
and means what `adapter.Adapter` says. An answer has a `result`; or `refused`, a sentence, if a text
was not taken in; or `error`, a sentence. `store` is a directory of the client's own. After `stop`
the program ends by itself when its stdin ends; `kill` is SIGKILL. `restart` goes to a new
process, with the same store; the account is repeated, for clients that do not keep their login.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from tidewire_conformance.adapter import Account, Adapter, SendRefused, Shown, Ticked

ANSWER_S_MAX: Final = 30.0
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024


class _Answer(msgspec.Struct):
    id: int
    result: Any = None
    refused: str | None = None
    error: str | None = None


class ProgramFailed(Exception):
    """The program reported an error, gave a wrong answer, or gave no answer."""


class AskingAdapter(ABC):
    """An adapter that asks its client: requests are a word with arguments, answers plain values."""

    _begin: dict[str, Any]
    """The arguments of `start`; a restart needs them again."""

    async def send(self, chat_id: str, text: str) -> None:
        await self._ask("send", chat_id=chat_id, text=text)

    async def messages(self, chat_id: str) -> Sequence[Shown]:
        return msgspec.convert(await self._ask("messages", chat_id=chat_id), list[Shown])

    async def ticks(self, chat_id: str) -> Sequence[Ticked]:
        return msgspec.convert(await self._ask("ticks", chat_id=chat_id), list[Ticked])

    async def read(self, chat_id: str) -> None:
        await self._ask("read", chat_id=chat_id)

    async def state(self) -> str:
        return str(await self._ask("state"))

    async def round_trip_ms(self) -> float | None:
        return msgspec.convert(await self._ask("round_trip_ms"), float | None)

    async def restart(self) -> None:
        await self._run("restart")

    @abstractmethod
    async def _run(self, do: str) -> None:
        """Make sure that the client is there, and send it this request with `_begin`."""

    @abstractmethod
    async def _ask(self, do: str, **more: object) -> Any:
        """Send a request; returns the answer. Raises SendRefused if the client refused a text."""


class LinesAdapter(AskingAdapter):
    def __init__(self, command: Sequence[str], *, time_scale: float = 1.0) -> None:
        self.time_scale = time_scale
        self._command = command
        self._directory = Path(tempfile.mkdtemp(prefix="tidewire-conformance-"))
        self._process: asyncio.subprocess.Process | None = None
        self._number = 0

    async def start(self, url: str, account: Account) -> None:
        self._begin = {"url": url, "store": str(self._directory), "account": asdict(account)}
        await self._run("start")

    async def stop(self) -> None:
        await self._ask("stop")
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(ANSWER_S_MAX):
            await process.wait()
        self._process = None

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def dispose(self) -> None:
        await self.kill()
        shutil.rmtree(self._directory)

    async def _run(self, do: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
        )
        await self._ask(do, **self._begin)

    async def _ask(self, do: str, **more: object) -> Any:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ProgramFailed(f"there is no program to {do}")
        self._number += 1
        process.stdin.write(msgspec.json.encode({"id": self._number, "do": do, **more}) + b"\n")
        async with asyncio.timeout(ANSWER_S_MAX):
            line = await process.stdout.readline()
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except ValueError as error:
            raise ProgramFailed(f"the answer to {do} is no answer: {line[:200]!r}") from error
        if answer.refused is not None:
            raise SendRefused(answer.refused)
        if answer.error is not None or answer.id != self._number:
            raise ProgramFailed(f"{do}: {answer.error or 'the answer is to something else'}")
        return answer.result


async def serve_lines(make: Callable[[Path, str], Adapter]) -> None:
    """The program's side, for a client in Python: carries out the requests from stdin. `make` is
    called with a store's directory and a server's URL when the first line has come."""
    adapter: Adapter | None = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = msgspec.json.decode(line)
        if adapter is None:
            adapter = make(Path(request["store"]), request["url"])
        answer: dict[str, object] = {"id": request["id"]}
        try:
            answer["result"] = await _do(adapter, request)
        except SendRefused as refusal:
            answer["refused"] = str(refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the kit is told
            answer["error"] = f"{type(error).__name__}: {error}"
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()


async def _do(adapter: Adapter, request: dict[str, Any]) -> Any:
    match request["do"]:
        case "start":
            account = msgspec.convert(request["account"], Account)
            return await adapter.start(request["url"], account)
        case "send":
            return await adapter.send(request["chat_id"], request["text"])
        case "messages" | "ticks" | "read" as what:
            return await getattr(adapter, what)(request["chat_id"])
        case "restart" | "stop" | "state" | "round_trip_ms" as what:
            return await getattr(adapter, what)()
        case other:
            raise ProgramFailed(f"{other!r} is nothing that can be done here")
