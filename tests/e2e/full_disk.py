"""A server that is started on a full disk, told in a few lines.

`python -m tests.e2e.full_disk DIR stopped|killed` mounts a small disk there, seen by this process
and its children only, so that nothing else runs out of room. Holds no test.
"""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

from tests.e2e.chatting import Account, Phone, Site, new_key
from tests.engines.sqlite.child import CANNOT_MOUNT, mount_small_disk, say

MESSAGES: Final = 5
HEALED_S_MAX: Final = 30

EXPECTED: Final = [
    "it comes up",
    "readiness says 503: the disk is full: nothing new can be stored until there is room",
    "history and sync have all messages",
    "a send over the socket gets SERVICE_UNAVAILABLE",
    "a send over REST gets 503",
    "it lives on",
    "with room, readiness says 200",
    "with room, the same send is stored behind the others",
]


async def story(data_dir: Path, *, is_killed: bool) -> list[str]:
    """Talk, end, fill the disk, start, look around, make room, go on."""
    site = Site(data_dir / "data")
    ballasts = data_dir / "ballast", data_dir / "more"
    with site:
        alice, bob = await site.people("alice", "bob")
        chat = await site.direct(alice, bob)
        async with site.phone(alice) as phone:
            for number in range(MESSAGES):
                await phone.say(chat, f"message {number}")
        if not is_killed:
            site.server.process.terminate()
            await asyncio.to_thread(site.server.process.wait)
    fill(ballasts[0])
    with site:
        lines = ["it comes up"]
        # The log of a killed server was folded into the database, which has made some room.
        fill(ballasts[1])
        answer = await site.call("GET", "/readyz")
        lines.append(f"readiness says {answer.status_code}: {answer.json()['error']['message']}")
        async with site.phone(bob) as phone:
            lines += await look_around(site, phone, bob, chat)
            for ballast in ballasts:
                ballast.unlink()
            key = new_key()
            lines += await look_again(site, phone, chat, key)
    return lines


async def look_around(site: Site, phone: Phone, bob: Account, chat: str) -> list[str]:
    lines = []
    synced = await phone.sync(chat)
    page = await site.done("GET", f"/chats/{chat}/messages", by=bob)
    if len(synced) == len(page) == MESSAGES:
        lines.append("history and sync have all messages")
    body = {"content": "x" * 4_000, "client_message_id": new_key()}
    answer = await phone.ask("send_message", {**body, "chat_id": chat})
    lines.append(f"a send over the socket gets {answer['payload'].get('code')}")
    refused = await site.call("POST", f"/api/v1/chats/{chat}/messages", body, by=bob)
    lines.append(f"a send over REST gets {refused.status_code}")
    await phone.caught_up()
    if site.server.process.poll() is None:
        lines.append("it lives on")
    return lines


async def look_again(site: Site, phone: Phone, chat: str, key: str) -> list[str]:
    status = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEALED_S_MAX):
            while status != 200:
                status = (await site.call("GET", "/readyz")).status_code
                await asyncio.sleep(0.1)
    lines = [f"with room, readiness says {status}"]
    # The refusal has closed the line of this chat; this send is the first of a new one.
    payload = {"chat_id": chat, "content": "room!", "client_message_id": key, "is_first": True}
    answer = await phone.ask("send_message", payload)
    if answer["payload"].get("sequence") == MESSAGES + 1:
        lines.append("with room, the same send is stored behind the others")
    return lines


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1024)):
            pass


def main() -> None:
    directory = Path(sys.argv[1])
    try:
        mount_small_disk(directory)
    except OSError:
        say(CANNOT_MOUNT)
        return
    for line in asyncio.run(story(directory, is_killed=sys.argv[2] == "killed")):
        say(line)


if __name__ == "__main__":
    main()
