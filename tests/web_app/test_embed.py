"""The widget in a page of somebody else: examples/embed, with its own users. Slow: browsers."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.ports import free_port
from tests.tidy.repository import ROOT
from tests.web_app.people import AXE, IDENTITY, LOOKS, Street, Watch, street

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def shop_url() -> str:
    """Where the shop will be: the chat has to know before."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def place(browser: Browser, node: str, tmp_path: Path, shop_url: str) -> Iterator[Street]:
    allowed = {"gateway__origins_allowed": shop_url, "rest__cors_origins": shop_url}
    with street(browser, tmp_path, **IDENTITY, **allowed) as opened:
        yield opened


@pytest.fixture
def shop(place: Street, shop_url: str) -> Iterator[str]:
    program = ROOT / "examples" / "embed" / "shop.py"
    port = str(urlsplit(shop_url).port)
    process = subprocess.Popen(
        [sys.executable, str(program), "--port", port, "--chat", place.site.url],
        env={**os.environ, "SHOP_SECRET": IDENTITY["identity__secret"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"The shop is open: {shop_url}\n"
    yield shop_url
    process.kill()
    process.wait()
    process.stdout.close()


class Visitor:
    """Somebody in the shop."""

    def __init__(self, browser: Browser, shop: str, chat: str, **looks: Any) -> None:
        self.context = browser.new_context(**(LOOKS | looks))
        self.watch = Watch((urlsplit(shop).netloc, urlsplit(chat).netloc))
        self.watch.look_at(self.context)
        self.page: Page = self.context.new_page()
        self.shop = shop

    def log_in(self, name: str) -> None:
        self.page.goto(self.shop)
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(f"{name} likes tea")
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("heading", name="Order 1042", level=1).wait_for()

    @property
    def chat(self) -> Locator:
        return self.page.locator("tidewire-chat")

    def message(self, text: str) -> Locator:
        return self.chat.get_by_role("article").filter(has_text=text).last

    def say(self, text: str) -> None:
        box = self.chat.get_by_label("Write a message")
        box.fill(text)
        box.press("Enter")
        expect(self.message(text)).to_be_visible()

    def leave(self) -> None:
        self.context.close()
        self.watch.check()


def test_customers_chat_inside_the_shop(browser: Browser, place: Street, shop: str) -> None:
    ann, sara = (Visitor(browser, shop, place.site.url) for _ in range(2))
    ann.log_in("ann")
    expect(ann.chat.get_by_role("heading", name="Order 1042: one teapot")).to_be_visible()
    ann.say("Is it the blue one?")
    sara.log_in("sara")
    sara.message("Is it the blue one?").wait_for()
    sara.say("As blue as the sea")
    ann.message("As blue as the sea").wait_for()
    for visitor in (ann, sara):
        expect(visitor.chat.get_by_role("article")).to_have_count(2)
    # One of three members is the shop's backend, which reads nothing.
    expect(ann.message("blue one?").get_by_role("img", name="The server has it")).to_be_visible()
    sara.message("Is it the blue one?").hover()
    sara.message("Is it the blue one?").get_by_role("button", name="Actions").click()
    sara.page.get_by_role("dialog").get_by_role("button", name="👍").click()
    expect(ann.message("Is it the blue one?").get_by_role("button", name="👍")).to_be_visible()
    # Loaded again: the messages are there before the server is asked.
    ann.page.reload()
    ann.message("As blue as the sea").wait_for()
    ann.leave()
    sara.leave()


def test_styles_neither_leak_in_nor_out(browser: Browser, place: Street, shop: str) -> None:
    # On a device that is set to dark, in a page that is not.
    ann = Visitor(browser, shop, place.site.url, color_scheme="dark")
    ann.log_in("ann")
    ann.say("How does it look?")
    expect(ann.message("How does it").get_by_role("img", name="The server has it")).to_be_visible()
    text = ann.message("How does it look?").locator(".text")
    style = "node => { const s = getComputedStyle(node); return [s.fontStyle, s.fontSize] }"
    assert text.evaluate(style) == ["normal", "16px"]
    assert ann.page.get_by_role("heading", level=1).evaluate(style)[0] == "italic"
    # The page's rule for buttons stays outside, the page's colours are taken.
    ann.chat.get_by_label("Write a message").fill("x")
    send = ann.chat.get_by_role("button", name="Send")
    assert send.evaluate("node => getComputedStyle(node).textTransform") == "none"
    assert send.evaluate("node => getComputedStyle(node).backgroundColor") == "rgb(154, 79, 28)"
    logout = ann.page.get_by_role("button", name="Log out")
    assert logout.evaluate("node => getComputedStyle(node).borderRadius") == "0px"
    ann.page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    found = ann.page.evaluate(
        "axe.run('tidewire-chat').then(({violations}) => violations.map(({id, nodes}) =>"
        " id + ': ' + nodes.map(({html}) => html).join(' ')))"
    )
    assert not found, "\n".join(found)
    ann.leave()


def test_widget_says_when_it_gets_no_token(browser: Browser, place: Street, shop: str) -> None:
    ann = Visitor(browser, shop, place.site.url)
    ann.watch.expected += ["tidewire-chat:", "status of 401"]
    ann.log_in("ann")
    ann.chat.get_by_label("Write a message").wait_for()
    ann.context.clear_cookies()
    ann.page.evaluate(
        "() => { document.querySelector('tidewire-chat').getToken = async () => {"
        " const answer = await fetch('/chat-token');"
        " if (!answer.ok) throw new Error('log in first'); return answer.text(); } }"
    )
    expect(ann.chat.get_by_role("alert")).to_be_visible()
    ann.leave()


def test_page_that_is_not_allowed_cannot_connect(
    browser: Browser, node: str, tmp_path: Path
) -> None:
    with street(browser, tmp_path, **IDENTITY) as place:
        url = f"http://127.0.0.1:{free_port()}"
        preflight = {"Origin": url, "Access-Control-Request-Method": "GET"}
        context = browser.new_context()
        answer = context.request.fetch(
            f"{place.site.url}/api/v1/chats", method="OPTIONS", headers=preflight
        )
        assert "access-control-allow-origin" not in answer.headers
        script = context.request.get(f"{place.site.url}/widget.js")
        assert script.headers["access-control-allow-origin"] == "*"
        assert re.fullmatch("no-cache", script.headers["cache-control"])
        context.close()
