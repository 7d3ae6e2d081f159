"""A person whose client runs in Node, driven by lines. Holds no test."""

import asyncio
import uuid
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from tests.e2e.chatting import PASSWORD

ANSWER_S_MAX: Final = 60.0
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024


class NodePerson:
    """`do` calls a function of web/client/conformance/person.ts."""

    def __init__(self, program: Path, url: str, folder: Path) -> None:
        self.username = f"bob-{uuid.uuid4().hex[:8]}"
        self._program = program
        self._url = url
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._number = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(self._program),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
        )
        await self.log_in()
        return self

    async def log_in(self) -> None:
        """At the beginning, and when the server has forgotten it."""
        await self.do(
            "open",
            self._url,
            {
                "username": self.username,
                "password": PASSWORD,
                "store": str(self._folder / f"{self.username}.tidewire"),
            },
        )
        await self.do("ready")

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def do(self, name: str, *arguments: object) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._number += 1
        request = {"id": self._number, "do": name, "args": arguments}
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = msgspec.json.decode(await process.stdout.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["result"]
