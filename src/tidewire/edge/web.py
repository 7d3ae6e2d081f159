"""Serves the web app: the files that `make web` has built, from the installed package."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from tidewire.edge.web_files import WebFiles


def built_files() -> WebFiles:
    """Read all files of the package now, so that no request waits for a disk."""
    return WebFiles(_read(files("tidewire").joinpath("web", "static"), ""))


def _read(folder: Traversable, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            found |= _read(entry, f"{name}/")
        else:
            found[name] = entry.read_bytes()
    return found


class Web:
    """An ASGI application in front of another one, which gets all requests for other things."""

    def __init__(self, web_files: WebFiles, app: Any) -> None:
        self._files = web_files
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        answer = self._files.answer(scope["method"], scope["path"], scope["headers"])
        if answer is None:
            await self._app(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})
