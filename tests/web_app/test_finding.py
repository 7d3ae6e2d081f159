"""Finding things in the web chat: search, dates, languages, colours, small screens, keys.

Slow: browsers.
"""

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.filling import fill
from tests.web_app.people import IDENTITY, NO_SERVER, PHONE, Json, Person, Street, street, token_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MANY = 100_000


FITS = "document.documentElement.scrollWidth <= innerWidth"
COUNTING_MOTION = """() => {
    window.motions = [];
    const note = ({ type, target, animationName, propertyName }) =>
        window.motions.push(`${type} ${target.className} ${animationName ?? propertyName}`);
    for (const type of ["animationstart", "transitionstart"]) addEventListener(type, note, true);
}"""


def apart(work: Coroutine[Any, Any, None]) -> None:
    """Run to its end in a thread: Playwright's own loop is in ours."""
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    thread.join()


def friends(street: Street) -> tuple[Json, Json, str]:
    """Ann, Ben and the chat that they have."""
    ann, ben = street.register("ann", "Ann Lee"), street.register("ben", "Ben Okafor")
    body = {"type": "direct", "member_ids": [ben["user"]["user_id"]]}
    chat = street.rest("POST", "/chats", body, ann["tokens"]["access_token"])
    return ann, ben, chat["chat_id"]


def filled(street: Street, count: int) -> Person:
    """Ann, in front of a chat with that many messages."""
    ann, ben, chat_id = friends(street)
    street.site.kill()
    texts = [f"Message {number} of the tide" for number in range(1, count + 1)]
    senders = [ann["user"]["user_id"], ben["user"]["user_id"]]
    apart(fill(street.site.data_dir, chat_id, senders, texts))
    street.site.start()
    person = street.somebody()
    person.log_in("ann")
    person.chat("Ben Okafor").wait_for()
    return person


def test_messages_are_found_by_words_and_by_date(street: Street) -> None:
    ann = filled(street, 2_000)
    expect(ann.chat("Ben Okafor")).to_contain_text("Message 2000")
    search = ann.page.get_by_label("Search chats and messages")
    search.fill("okaf")
    expect(ann.chat("Ben Okafor")).to_be_visible()
    search.fill("message 777 of")
    found = ann.chats.get_by_role("button").filter(has_text="Message 777 of the tide")
    expect(found).to_be_visible()
    ann.check_accessible("search")
    found.click()
    expect(ann.message("Message 777 of")).to_be_in_viewport()
    search.fill("no such thing anywhere")
    expect(ann.page.get_by_text("Nothing found on this device")).to_be_visible()
    search.press("Escape")
    # In the chat itself.
    ann.page.get_by_role("button", name="Search in this chat").click()
    panel = ann.page.get_by_role("complementary", name="Search")
    panel.get_by_role("searchbox").fill("message 1234 of")
    panel.get_by_role("button").filter(has_text="Message 1234 of").click()
    expect(ann.message("Message 1234 of")).to_be_in_viewport()
    # By date: the first message of that day, if there is one.
    day = datetime.now(UTC).astimezone() - timedelta(days=20)
    later = day + timedelta(days=40)
    ann.page.get_by_role("button", name="Search in this chat").click()
    panel.get_by_label("Go to a date").fill(later.strftime("%Y-%m-%d"))
    panel.get_by_role("button", name="Go to a date").click()
    expect(panel.get_by_role("alert").filter(has_text="No message was written")).to_be_visible()
    panel.get_by_label("Go to a date").fill(day.strftime("%Y-%m-%d"))
    ann.check_accessible("search in a chat")
    panel.get_by_role("button", name="Go to a date").click()
    expect(ann.log.get_by_text(f"{day.day} {day.strftime('%B')}").first).to_be_in_viewport()
    ann.page.get_by_role("button", name="To the newest message").click()
    expect(ann.message("Message 2000 of")).to_be_in_viewport()


SCROLLING = """() => {
    const log = document.querySelector('[role=log]');
    window.holes = [];
    window.rowsMost = 0;
    window.longest = 0;
    new PerformanceObserver((list) => {
        for (const {duration} of list.getEntries()) {
            window.longest = Math.max(window.longest, duration);
        }
    }).observe({type: 'longtask'});
    window.sequences = () => [...log.querySelectorAll('article')]
        .map((row) => Number(row.dataset.sequence));
    window.seen = () => {
        const box = log.getBoundingClientRect();
        const row = [...log.querySelectorAll('article')]
            .find((one) => one.getBoundingClientRect().top > box.top + 200);
        return row && [row.dataset.sequence, row.getBoundingClientRect().top];
    };
    const frame = () =>
        new Promise((done) => requestAnimationFrame(() => setTimeout(done, 4)));
    window.blank = 0;
    window.step = async (px) => {
        // A hand that is faster than the disk waits for it.
        while (!window.seen()) {
            window.blank++;
            await frame();
        }
        const [key, top] = window.seen();
        log.scrollBy(0, px);
        await frame();
        const row = log.querySelector(`article[data-sequence="${key}"]`);
        // It has moved by what was scrolled, and by nothing else.
        const moved = row ? row.getBoundingClientRect().top - top + px : 0;
        if (Math.abs(moved) > 2) window.holes.push(`moved by ${moved} at ${key}`);
        const shown = window.sequences();
        window.rowsMost = Math.max(window.rowsMost, shown.length);
        shown.forEach((sequence, at) => {
            const isNext = !at || sequence === shown[at - 1] + 1;
            if (!isNext) window.holes.push(`hole at ${sequence}`);
        });
        return shown[0];
    };
}"""
"""Scrolls as a hand does, and notes what a person would see: holes, jumps, blank space."""


def test_hundred_thousand_messages_scroll(street: Street) -> None:
    """However far it is scrolled, few rows are on the page, none is missing between them, and what
    is looked at stays where it is when older ones come."""
    ann = filled(street, MANY)
    ann.page.set_default_timeout(120_000)
    ann.open("Ben Okafor")
    # What is new begins with the first message of all, and the end follows while it is fetched.
    expect(ann.log.get_by_text("New", exact=True)).to_be_in_viewport()
    ann.page.get_by_role("button", name="To the newest message").click()
    expect(ann.message(f"Message {MANY} of")).to_be_in_viewport(timeout=120_000)
    ann.page.evaluate(SCROLLING)
    first = MANY
    for _ in range(10):
        first = ann.page.evaluate(
            "async () => { let at; for (let n = 0; n < 60; n++) at = await step(-250); return at }"
        )
    assert first < MANY - 2_500, first
    for _ in range(3):
        ann.page.evaluate("async () => { for (let n = 0; n < 60; n++) await step(300) }")
    assert ann.page.evaluate("window.holes") == []
    assert ann.page.evaluate("window.rowsMost") < 150
    assert ann.page.evaluate("window.blank") < 60
    # From one end to the other.
    ann.page.get_by_role("button", name="To the newest message").click()
    expect(ann.message(f"Message {MANY} of")).to_be_in_viewport()
    ann.page.get_by_label("Search chats and messages").fill("message 7 of the tide")
    ann.chats.get_by_role("button").filter(has_text="Message 7 of").click()
    expect(ann.message("Message 7 of")).to_be_in_viewport()
    ann.log.evaluate("log => { log.scrollTop = 0 }")
    expect(ann.page.get_by_text("This is the beginning of the chat")).to_be_visible()
    assert ann.page.evaluate("window.sequences()[0]") == 1


def test_end_of_a_chat_is_followed_whatever_comes_at_once(street: Street) -> None:
    """Hundreds of messages that were missed come together, many of them with more lines than is
    guessed before they were ever painted."""
    ann, ben, chat_id = friends(street)
    senders = [ann["user"]["user_id"], ben["user"]["user_id"]]
    person = street.somebody()
    person.watch.expected.append(NO_SERVER)
    person.log_in("ann")
    person.open("Ben Okafor")
    for round_ in range(3):
        street.site.kill()
        words = [f"Round {round_}, number {number}" for number in range(700)]
        texts = [word + " WWWWWWWWW" * (number % 7) for number, word in enumerate(words)]
        apart(fill(street.site.data_dir, chat_id, senders, [*texts, f"The last of {round_}"]))
        street.site.start()
        expect(person.message(f"The last of {round_}")).to_be_in_viewport(timeout=60_000)
        expect(person.page.get_by_role("button", name="To the newest message")).not_to_be_visible()


def test_language_and_colours_are_kept(street: Street) -> None:
    ann = street.account("ann", "Ann Lee")
    ann.page.get_by_role("button", name="Settings").click()
    ann.dialog().get_by_role("button", name="Dark").click()
    ann.check_accessible("settings in the dark")
    ann.dialog().get_by_label("Language").select_option("de")
    expect(ann.page.get_by_role("heading", name="Einstellungen")).to_be_visible()
    ann.page.reload()
    expect(ann.page.get_by_role("navigation", name="Chats")).to_be_visible()
    assert ann.page.evaluate("document.documentElement.lang") == "de"
    assert ann.page.evaluate("document.documentElement.dataset.theme") == "dark"
    expect(ann.page.get_by_label("Chats und Nachrichten suchen")).to_be_visible()
    ben = street.somebody(locale="de-AT")
    ben.visit()
    expect(ben.page.get_by_label("Benutzername")).to_be_visible()
    ben.check_accessible("login in German")


def test_small_screens_show_one_thing_at_a_time(street: Street) -> None:
    street.register("ben", "Ben Okafor")
    ann = street.account("ann", "Ann Lee", viewport=PHONE, has_touch=True, is_mobile=True)
    ann.write_to("ben")
    ann.say("From my phone")
    expect(ann.chats).not_to_be_visible()
    ann.check_accessible("conversation on a phone")
    # A long press is what the buttons beside a message are for a mouse.
    box = ann.message("From my phone").bounding_box()
    assert box is not None
    session = ann.page.context.new_cdp_session(ann.page)
    point = {"x": box["x"] + box["width"] - 60, "y": box["y"] + box["height"] / 2}
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    expect(ann.dialog().get_by_role("button", name="Reply")).to_be_visible()
    # The finger lifts off from whatever the menu has put there, and that is not chosen by it.
    ann.page.evaluate(
        "() => addEventListener('touchend', (event) => { window.isOver = event.defaultPrevented })"
    )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    ann.page.wait_for_function("() => window.isOver !== undefined")
    assert ann.page.evaluate("window.isOver")
    expect(ann.dialog()).to_be_visible()
    ann.check_accessible("menu on a phone")
    ann.page.keyboard.press("Escape")
    ann.page.get_by_role("button", name="Back to the chats").click()
    expect(ann.chats).to_be_visible()
    expect(ann.box).to_have_count(0)
    # The browser's own way back.
    ann.chat("Ben Okafor").click()
    ann.box.wait_for()
    ann.about()
    ann.check_accessible("about a person on a phone")
    ann.page.go_back()
    expect(ann.box).to_be_visible()
    ann.page.go_back()
    expect(ann.chats).to_be_visible()


def test_everything_is_reached_with_keys(street: Street) -> None:
    """Zoomed to 200 %, without motion, without a mouse; the focus is never lost."""
    street.register("ben", "Ben Okafor")
    zoomed = {"width": 640, "height": 400}
    ann = street.account(
        "ann", "Ann Lee", viewport=zoomed, device_scale_factor=2, reduced_motion="reduce"
    )
    ann.page.evaluate(COUNTING_MOTION)
    keys = ann.page.keyboard
    for _ in range(3):
        keys.press("Tab")
    ann.page.get_by_role("button", name="New chat").first.focus()
    keys.press("Enter")
    expect(ann.dialog().get_by_label("User name")).to_be_focused()
    keys.press("Escape")
    expect(ann.page.get_by_role("button", name="New chat").first).to_be_focused()
    keys.press("Enter")
    expect(ann.dialog().get_by_label("User name")).to_be_focused()
    keys.type("ben")
    keys.press("Enter")
    ann.box.focus()
    for number in range(1, 31):
        keys.type(f"Line {number:02}")
        keys.press("Enter")
        expect(ann.message(f"Line {number:02}")).to_be_visible()
    expect(ann.box).to_be_focused()
    # From message to message, out of what is rendered and on.
    ann.log.focus()
    for number in range(30, 0, -1):
        keys.press("ArrowUp")
        expect(ann.message(f"Line {number:02}")).to_be_focused()
    keys.press("Enter")
    expect(ann.dialog().get_by_role("button", name="Reply")).to_be_visible()
    keys.press("Escape")
    expect(ann.log.get_by_role("article").first).to_be_focused()
    keys.press("r")
    expect(ann.box).to_be_focused()
    expect(ann.page.get_by_text("Reply to You")).to_be_visible()
    keys.type("An answer")
    keys.press("Enter")
    expect(ann.message("An answer")).to_be_visible()
    keys.press("Control+k")
    expect(ann.page.locator("#search")).to_have_count(1)
    ann.check_accessible("zoomed")
    assert ann.page.evaluate(FITS)
    # What a quote leads to is marked, and moves only where motion is wanted.
    for motion in ("reduce", "no-preference"):
        ann.page.emulate_media(reduced_motion=motion)
        ann.message("An answer").get_by_role("button", name="You Line 01").click()
        marked = ann.log.get_by_role("article").filter(has_text="Line 01").first
        expect(marked).to_be_focused()
        if motion == "reduce":
            assert ann.page.evaluate("window.motions") == []
            ann.page.get_by_role("button", name="To the newest message").click()
    ann.page.wait_for_function("() => window.motions.length > 0")
    for place in (ann.page.url.split("#")[1] + "/about", "/settings"):
        ann.visit(f"/#{place}")
        ann.page.get_by_role("button", name="Close").last.wait_for()
        ann.check_accessible(f"{place}, zoomed")
        assert ann.page.evaluate(FITS), place


def test_token_of_ones_own_identity_provider(browser: Browser, node: str, tmp_path: Path) -> None:
    """It is a login in this tab, also when the page is loaded again, and kept nowhere else."""
    with street(browser, tmp_path, **IDENTITY) as place:
        ann = place.somebody()
        ann.visit()
        ann.page.get_by_role("button", name="Use a token").click()
        ann.check_accessible("token")
        token = token_of("ann", "Ann of the shop")
        ann.page.get_by_label("Access token").fill(token)
        ann.page.get_by_role("button", name="Connect").click()
        ann.chats.wait_for()
        ann.page.reload()
        ann.chats.wait_for()
        ann.page.get_by_role("button", name="Settings").click()
        expect(ann.dialog().get_by_text("Ann of the shop")).to_be_visible()
        assert token not in ann.page.evaluate("JSON.stringify(localStorage) + document.cookie")
        assert token not in ann.page.url
