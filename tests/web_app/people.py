"""People in front of a real Chromium, each with a profile of their own. Holds no test.

Whatever a page does is watched: an error on its console, a request to another host or a violation
of its policy fails the test at its end.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import jwt
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
)

from tests.e2e.chatting import PASSWORD, Site
from tests.support.ports import free_port
from tests.support.web import WEB, ensure_chromium

WIDE: Final = {"width": 1280, "height": 800}
LOOKS: Final[dict[str, Any]] = {"viewport": WIDE, "locale": "en-GB"}
NO_SERVER: Final = (
    r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket connection"
)
"""What a page says of a server that is away."""
PHONE: Final = {"width": 390, "height": 844}
FLAGS: Final = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking")
PATIENCE_MS: Final = 30_000
AXE: Final = WEB / "node_modules" / "axe-core" / "axe.min.js"

IDENTITY: Final[dict[str, str]] = {
    "identity__issuer": "https://shop.example",
    "identity__audience": "tidewire",
    "identity__secret": "a secret that the shop and the server share",
}
"""Settings of a server that trusts a shop's tokens."""

Json = dict[str, Any]


def token_of(subject: str, name: str) -> str:
    """What the shop signs for one of its people."""
    claims = {
        "iss": IDENTITY["identity__issuer"],
        "aud": IDENTITY["identity__audience"],
        "sub": subject,
        "name": name,
        "preferred_username": subject,
        "exp": int(time.time()) + 3600,
    }
    return jwt.encode(claims, IDENTITY["identity__secret"], algorithm="HS256")


class Watch:
    """What a page must not do."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.hosts = hosts
        self.faults: list[str] = []
        self.expected: list[str] = []
        """Patterns of what a test does to a page on purpose."""

    def look_at(self, context: BrowserContext) -> None:
        context.on("console", self._console)
        context.on("weberror", lambda error: self.faults.append(f"threw: {error.error}"))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc not in self.hosts:
            self.faults.append(f"asked another host: {request.url}")

    def check(self) -> None:
        unexpected = [
            fault
            for fault in self.faults
            if not any(re.search(pattern, fault) for pattern in self.expected)
        ]
        assert not unexpected, "\n".join(unexpected)


class Person:
    """Somebody at a page of the web chat."""

    def __init__(self, page: Page, url: str, watch: Watch) -> None:
        self.page = page
        self.url = url
        self.watch = watch

    # Coming in.

    def visit(self, place: str = "/") -> None:
        self.page.goto(self.url + place)

    def sign_up(self, username: str, name: str) -> None:
        self.visit()
        self.page.get_by_role("button", name="Sign up").click()
        self.page.get_by_label("User name").fill(username)
        self.page.get_by_label("Name that others see").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Make the account").click()
        self.chats.wait_for()

    def log_in(self, username: str) -> None:
        self.visit()
        self.page.get_by_label("User name").fill(username)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.locator("form").get_by_role("button", name="Log in").click()
        self.chats.wait_for()

    # What is on the page.

    @property
    def chats(self) -> Locator:
        return self.page.get_by_role("navigation", name="Chats")

    @property
    def box(self) -> Locator:
        return self.page.get_by_label("Write a message")

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    def chat(self, name: str) -> Locator:
        return self.chats.get_by_role("link").filter(has_text=name)

    def message(self, text: str) -> Locator:
        return self.log.get_by_role("article").filter(has_text=text).last

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    # What people do.

    def write_to(self, username: str) -> None:
        self.page.get_by_role("button", name="New chat").first.click()
        self.dialog().get_by_label("User name").fill(username)
        self.dialog().get_by_role("button", name="Start chat").click()
        self.box.wait_for()

    def make_group(self, name: str, *usernames: str) -> None:
        self.page.get_by_role("button", name="New chat").first.click()
        dialog = self.dialog()
        dialog.get_by_role("button", name="Group", exact=True).click()
        dialog.get_by_label("Name of the group").fill(name)
        for number, username in enumerate(usernames, 1):
            dialog.get_by_label("Add a person by user name").fill(username)
            dialog.get_by_role("button", name="Add", exact=True).click()
            expect(dialog.get_by_role("listitem")).to_have_count(number)
        dialog.get_by_role("button", name="Make the group").click()
        self.box.wait_for()

    def open(self, name: str) -> None:
        self.chat(name).click()
        self.page.get_by_role("heading", name=name, level=1).wait_for()

    def say(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")
        expect(self.message(text)).to_be_visible()

    def tick(self, text: str, label: str) -> None:
        """Wait for what stands beside an own message."""
        expect(self.message(text).get_by_role("img", name=label, exact=True)).to_be_visible()

    def act(self, text: str, action: str) -> None:
        """Something from the menu of a message, with the mouse."""
        message = self.message(text)
        message.hover()
        message.get_by_role("button", name="Actions").click()
        self.dialog().get_by_role("button", name=action, exact=True).click()

    def about(self) -> Locator:
        """Open what is known of the chat."""
        panel = self.page.get_by_role("complementary", name="About this chat")
        if not panel.is_visible():
            self.page.get_by_role("button", name="About this chat").last.click()
        panel.wait_for()
        return panel

    # Whether it is good.

    def check_accessible(self, where: str) -> None:
        """axe-core finds nothing, in the whole page as it is now."""
        if not self.page.evaluate("'axe' in window"):
            # Past the page's policy, which lets no script in: this is the debugger's door.
            self.page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        found = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) =>"
            " violations.map(({id, nodes}) => id + ': ' +"
            " nodes.map(({html, failureSummary}) => html + ' ' + failureSummary).join(' / ')))"
        )
        assert not found, f"{where}: " + "\n".join(found)

    def shot(self, path: Path) -> None:
        self.page.mouse.move(0, 0)
        self.page.screenshot(path=path, animations="disabled", caret="hide")


class Street:
    """Lets people come to one server, each in a browser of their own."""

    def __init__(self, browser: Browser, site: Site, folder: Path) -> None:
        self._browser = browser
        self.site = site
        self._folder = folder
        self._watches: list[Watch] = []
        self._contexts: list[BrowserContext] = []

    def somebody(self, **options: Any) -> Person:
        """A new profile, gone with the test."""
        return self._person(self._browser.new_context(**(LOOKS | options)))

    def settled(self, profile: str, **options: Any) -> Person:
        """A browser of its own with a profile on the disk: closed and started again, it has kept
        it."""
        return self._person(
            self._browser.browser_type.launch_persistent_context(
                self._folder / profile,
                executable_path=ensure_chromium(),
                args=list(FLAGS),
                **(LOOKS | options),
            )
        )

    def _person(self, context: BrowserContext) -> Person:
        context.set_default_timeout(PATIENCE_MS)
        watch = Watch((urlsplit(self.site.url).netloc,))
        watch.look_at(context)
        self._watches.append(watch)
        self._contexts.append(context)
        page = context.pages[0] if context.pages else context.new_page()
        return Person(page, self.site.url, watch)

    def account(self, username: str, name: str, **options: Any) -> Person:
        """A new person, signed up over REST: only one test is about forms."""
        self.register(username, name)
        person = self.somebody(**options)
        person.log_in(username)
        return person

    def register(self, username: str, name: str) -> Json:
        body = {
            "username": username,
            "password": PASSWORD,
            "display_name": name,
            "device_id": "6f1c2b5e-0d8a-4c56-9a3f-0c2f6a0b7a11",
        }
        return self.rest("POST", "/auth/register", body)

    def rest(self, method: str, path: str, body: Json | None = None, token: str = "") -> Json:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = httpx.request(
            method, f"{self.site.url}/api/v1{path}", json=body, headers=headers, timeout=30
        )
        assert answer.is_success, answer.text
        read: Json = answer.json()["data"] if answer.content else {}
        return read

    def leave(self) -> None:
        for context in self._contexts:
            context.close()

    def check(self) -> None:
        for watch in self._watches:
            watch.check()


@contextmanager
def street(browser: Browser, folder: Path, **settings: int | str) -> Iterator[Street]:
    # A page belongs to its address: a server that starts again has to have the same.
    with Site(folder / "data", **{"server__port": free_port(), **settings}) as site:
        place = Street(browser, site, folder)
        try:
            yield place
        finally:
            place.leave()
        place.check()
