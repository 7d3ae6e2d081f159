"""Takes the pictures of the web chat for README and docs: python -m tests.web_app.pictures

A real server, three people who talk by the Python client, and Chromium. Holds no test.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

from tests.client.people import QUICK
from tests.e2e.chatting import PASSWORD, Site
from tests.support.web import ensure_chromium
from tests.web_app.people import FLAGS, PHONE, Street
from tidewire.client import Chat, Client

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LOOKS_OF: dict[str, dict[str, Any]] = {
    "web": {"device_scale_factor": 1},
    "web-dark": {"color_scheme": "dark"},
    "web-phone": {"viewport": PHONE},
}
SETTLED_MS = 1_000
NAMES = {"alice": "Alice Winter", "ben": "Ben Okafor", "cleo": "Cléo Martin"}


async def said(chat: Chat, text: str, **given: object) -> int:
    sent = await chat.send(text, **given)  # type: ignore[arg-type]
    return await sent.stored()


async def talk(url: str) -> None:
    """What the pictures show."""
    clients = [
        await Client.register(url, name, PASSWORD, display_name=shown, options=QUICK)
        for name, shown in NAMES.items()
    ]
    alice, ben, cleo = clients
    for client in clients:
        await client.__aenter__()
        await client.ready()
    group = await alice.group("Harbour walk on Saturday", "ben", "cleo")
    direct = await ben.direct("alice")
    await said(direct, "Great. I saw the graphs, it looks calm.")
    chat_id = group.chat_id
    for client in clients:
        await client.ready()
    await said(group, "Then we meet at eight at the lighthouse?")
    (question,) = await group.messages()
    await (await question.edit("Then we meet at nine at the lighthouse?")).stored()
    answer = "Nine is fine. Can you tell the people at the boathouse that we want the key?"
    await said(ben.chat(chat_id), answer, reply_to=question.sequence, mentions=["alice"])
    done = "Done, they leave it under the third stone."
    await said(group, done)
    typo = "Wrong chat, sorry"
    await said(cleo.chat(chat_id), typo)
    await said(cleo.chat(chat_id), "See you there 🌊")
    async with asyncio.timeout(20):
        while len(await cleo.chat(chat_id).messages()) < 5:  # noqa: ASYNC110 - the store is asked
            await asyncio.sleep(0.05)
    by_text = {one.text: one for one in await cleo.chat(chat_id).messages()}
    await (await by_text[done].react("🎉")).stored()
    await (await by_text[typo].delete()).stored()
    for client in clients[1:]:
        await client.chat(chat_id).read()
    await asyncio.sleep(0.5)
    for client in clients:
        await client.close()


def take(street: Street, folder: Path) -> list[Path]:
    """Take them all, of what was said."""
    taken = []
    for name, looks in LOOKS_OF.items():
        alice = street.somebody(**looks)
        alice.log_in("alice")
        alice.open("Harbour walk on Saturday")
        expect(alice.message("See you there")).to_be_visible()
        expect(alice.message("under the third stone")).to_contain_text("🎉")
        alice.tick("Done, they leave", "Read by all")
        alice.page.wait_for_timeout(SETTLED_MS)
        alice.shot(folder / f"{name}.png")
        taken.append(folder / f"{name}.png")
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder) / "data") as site:
        asyncio.run(talk(site.url))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=ensure_chromium(), args=list(FLAGS)
            )
            take(Street(browser, site, Path(folder)), IMAGES)
            browser.close()


if __name__ == "__main__":
    main()
