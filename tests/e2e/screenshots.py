"""Takes the screenshots of docs/images: `python -m tests.e2e.screenshots`. Holds no test.

A real server, real clients, fixed texts; only the clock shows when it was.
"""

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Final

from tests.e2e.chatting import Site
from tests.e2e.terminals import SteadySite, Terminal, register, terminal
from tests.tidy.repository import ROOT
from tidewire.client import Client

IMAGES: Final = ROOT / "docs/images"
_FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_FONT_FAMILY: Final = re.compile(r"font-family: *[^;]+;")
FONTS: Final = "font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace;"


def keep(at: Terminal, name: str, title: str) -> None:
    """As an SVG that fetches nothing from anywhere."""
    svg = at.app.export_screenshot(title=title)
    svg = _FONT_FACE.sub("", svg)
    svg = _FONT_FAMILY.sub(FONTS, svg)
    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    (IMAGES / f"{name}.svg").write_text(svg, encoding="utf-8")


async def take(site: Site, home: Path) -> None:
    async with (
        await register(site, home / "alice.db", "alice", "Alice") as alice,
        await register(site, home / "bob.db", "bob", "Bob") as bob,
        await register(site, home / "carol.db", "carol", "Carol") as carol,
    ):
        await _talk(alice, bob)
        async with terminal(alice, "alice") as at:
            await at.write_to("bob")
            await at.sees("harbour")
            await _answer(carol)
            await at.sees("● #Harbour crew")
            await at.write("See you there, then.")
            await at.until(lambda: at.mark("See you there") == "✓✓")
            await (await bob.direct("alice")).read()
            await at.until(lambda: at.mark("See you there") == "✔✔")
            await at.write("I bring the charts and the long rope.")
            await at.until(lambda: at.mark("I bring the charts") == "✓✓")
            chat = await bob.direct("alice")
            chat.typing()
            await at.sees("Bob is typing…")
            keep(at, "chat", "tidewire chat --user alice")
            await at.press("ctrl+f")
            await at.sees("Find in messages")
            await at.type("tide")
            await at.sees("high tide")
            keep(at, "search", "tidewire chat --user alice")
            await at.press("escape")
            await _change(at, alice, bob, carol)
            assert isinstance(site, SteadySite)
            site.kill()
            await at.until(lambda: "offline" in at.head)
            await at.write("Is anybody out there?")
            await at.write("It goes out by itself later.")
            await at.until(lambda: "2 to send" in at.head)
            keep(at, "offline", "tidewire chat --user alice")


async def _talk(alice: Client, bob: Client) -> None:
    group = await alice.group("Harbour crew", "bob", "carol")
    await (await group.send("Crew list for Saturday, please.")).stored()
    chat = await bob.direct("alice")
    for text in (
        "Morning! Are we still on for Saturday?",
        "The high tide is at 09:40, so we should meet at the harbour by eight.",
    ):
        await (await chat.send(text)).stored()
    mine = await alice.direct("bob")
    await alice.ready()
    await mine.read()
    await (await mine.send("Yes, I am. Eight it is.")).delivered()
    await bob.ready()
    await chat.read()
    await (await chat.send("Great, I have the keys.")).stored()


async def _answer(carol: Client) -> None:
    await carol.ready()
    (crew,) = await carol.chats()
    for text in ("Me!", "And my brother, if there is room."):
        await (await crew.send(text)).stored()


async def _change(at: Terminal, alice: Client, bob: Client, carol: Client) -> None:
    """The group, with a reply, an edit, a deletion, reactions and a mention."""
    crew = next(one for one in await bob.chats() if one.name == "Harbour crew")
    theirs = carol.chat(crew.chat_id)
    first, second, third = await theirs.messages()
    await at.press("ctrl+down")
    await at.sees("alice · Harbour crew", "if there is room")
    await (await third.edit("And my brother Dan, if there is room.")).stored()
    await (
        await crew.reply(
            third, "There is. @Alice, can you bring a vest for him?", mentions=["alice"]
        )
    ).stored()
    gone = await crew.send("Who has the tickets?")
    await gone.stored()
    await (await gone.delete()).stored()
    await (await crew.react(second, "👍")).stored()
    await at.sees("(edited)", "[deleted]", "↪ Carol: And my brother Dan")
    await at.press("shift+tab", "up", "r")
    await at.sees("React, or")
    await at.press("down", "down", "down", "enter")
    await at.sees("[🎉 1]")
    await at.press("enter")
    await at.sees("↪ Bob: There is.")
    keep(at, "changes", "tidewire chat --user alice")
    await at.press("escape", "escape", "ctrl+up")
    await at.sees("alice · Bob")
    assert first is not None
    assert alice.user_id is not None


async def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, SteadySite(Path(home) / "data") as site:
        await take(site, Path(home))


if __name__ == "__main__":
    asyncio.run(main())
