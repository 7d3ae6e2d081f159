"""Real server processes on copies of a data directory with one flipped bit. Holds no test.

Two people with older logins connect, sync, read and write. Their requests may fail, but the process
must not end; or it must refuse to start, with a sentence.
"""

import contextlib
import shutil
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
from websockets.exceptions import WebSocketException

from tests.crash.flips import Tally, flip
from tests.e2e.chatting import Account, HungUp, Site, new_key

MESSAGES: Final = 30
CHANGES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    *(("edit_message", {"target": n, "content": f"edit of {n}, ebb & flow"}) for n in (2, 3, 3)),
    *(("react", {"target": n, "emoji": emoji}) for n in (2, 3, 4) for emoji in "👍🎉"),
    ("delete_message", {"target": 3}),
    ("send_message", {"content": "an answer", "reply_to": 4}),
)
"""The changes made in each chat before the server is killed."""


async def make_site(data_dir: Path) -> tuple[list[Account], list[str]]:
    """A server with two people and three chats, killed."""
    with Site(data_dir) as site:
        people = await site.people("alice", "bob")
        chats = [await site.direct(*people), await site.group(*people), await site.group(*people)]
        async with site.phone(people[0]) as phone:
            for number in range(MESSAGES):
                await phone.say(chats[number % 3], f"number {number}, ebb & flow 🌊")
            for chat in chats:
                for kind, fields in CHANGES:
                    body = {"chat_id": chat, "client_message_id": new_key(), **fields}
                    answer = await phone.ask(kind, body)
                    assert answer["type"] == "send_message_ack", answer
    return people, chats


async def try_servers(directory: Path, seed: str, servers: int, tally: Tally) -> None:
    """Try so many servers, each on a copy of its own."""
    people, chats = await make_site(directory / "site")
    for number in range(servers):
        copy = directory / f"server-{number}"
        shutil.copytree(
            directory / "site", copy, ignore=shutil.ignore_patterns("*.sock"), symlinks=True
        )
        name = f"{copy.name} ({flip(copy, Random(f'{seed}-server-{number}'))})"
        fault = await serve(copy, people, chats, tally)
        if fault is None:
            shutil.rmtree(copy)
        else:
            tally.faults.append(f"{name}: {fault}")


async def serve(
    data_dir: Path, people: list[Account], chats: list[str], tally: Tally
) -> str | None:
    """Serve a copy; return what is wrong."""
    site = Site(data_dir)
    try:
        site.start()
    except AssertionError as refusal:
        tally.outcomes["servers that refuse to start"] += 1
        return None if "Traceback" not in str(refusal) else str(refusal)
    with contextlib.ExitStack() as stack:
        stack.callback(site.kill)
        for account in people:
            # Any error here came over the wire and concerns only this conversation.
            with contextlib.suppress(
                AssertionError, HungUp, TimeoutError, OSError, WebSocketException, httpx.HTTPError
            ):
                await visit(site, account, chats)
        code = site.server.process.poll()
    tally.outcomes["servers that serve"] += 1
    return None if code is None else f"the server ended with {code}: {''.join(site.log)[-2000:]}"


async def visit(site: Site, account: Account, chats: list[str]) -> None:
    await site.call("GET", "/api/v1/chats", by=account)
    for chat in chats:
        await site.call("GET", f"/api/v1/chats/{chat}/messages", by=account)
        await site.call("GET", f"/api/v1/chats/{chat}", by=account)
    async with site.phone(account) as phone:
        for chat in chats:
            cursor = {"chat_id": chat, "last_acked_sequence": 0, "limit": 500}
            await phone.ask("sync_request", cursor)
            body = {"chat_id": chat, "content": "after all", "client_message_id": new_key()}
            await phone.ask("send_message", body)
            for kind, fields in CHANGES[-3:]:
                body = {"chat_id": chat, "client_message_id": new_key(), **fields}
                await phone.ask(kind, body | {"target": 4} if "target" in fields else body)
            await phone.ack(chat, 1)
        await phone.caught_up()
