"""Two versions of the web chat side by side: the server was upgraded under an open tab.

Goal: the old tab goes on, whole, beside one of the new version, until it is loaded again. Method: a
server is killed and comes back with a page whose files have other names. Slow: browsers.
"""

import sys

import pytest
from playwright.sync_api import Page, expect

from tests.web_app.people import NO_SERVER, Person, Street

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

UPGRADED = """async () => {
    for (;;) {
        const { active, waiting, installing } = await navigator.serviceWorker.ready;
        const isNew = (await caches.keys()).includes("tidewire-01234567");
        if (isNew && active.state === "activated" && !waiting && !installing) return;
        await new Promise((again) => setTimeout(again, 50));
    }
}"""
NEXT = (sys.executable, "-m", "tests.support.next_page")


def version_of(page: Page) -> str:
    source: str = page.evaluate("document.querySelector('script[src]').src")
    return "new" if source.endswith("_.js") else "old"


def forget_files(page: Page) -> None:
    """As a browser does that has better use for its disk: what its page had loaded is away."""
    session = page.context.new_cdp_session(page)
    session.send("Network.clearBrowserCache")
    session.detach()


def test_old_page_goes_on_beside_a_new_one(street: Street) -> None:
    ben = street.account("ben", "Ben Okafor")
    ann = street.account("ann", "Ann Lee")
    for person in (ann, ben):
        person.watch.expected.append(NO_SERVER)
    ann.write_to("ben")
    ann.say("Before the upgrade")
    ann.page.wait_for_function("() => navigator.serviceWorker.controller !== null")
    # Loaded again, so that what comes on demand has not come yet.
    ann.page.reload()
    # Another tab of hers, which does not hold the connection.
    second = Person(ann.page.context.new_page(), ann.url, ann.watch)
    second.visit("/")
    second.open("Ben Okafor")

    street.site.kill()
    street.site.program = NEXT
    street.site.start()
    third = Person(ann.page.context.new_page(), ann.url, ann.watch)
    third.visit("/")
    third.chats.wait_for()
    assert [version_of(one.page) for one in (ann, second, third)] == ["old", "old", "new"]
    third.page.evaluate(UPGRADED)
    forget_files(ann.page)

    third.open("Ben Okafor")
    third.say("From the new page")
    second.say("From an old page")
    for person in (ann, second, third):
        expect(person.message("From an old page")).to_be_visible()
        expect(person.message("From the new page")).to_be_visible()
    # What an old page loads only now is still there.
    second.page.get_by_role("button", name="Settings").click()
    expect(second.dialog().get_by_label("Language")).to_be_visible()
    second.page.keyboard.press("Escape")
    # It can hold the connection, too, for which it needs what it has not loaded yet.
    third.page.close()
    ann.page.close()
    second.say("The last one standing")
    second.tick("The last one standing", "Delivered to all")
    ben.open("Ann Lee")
    expect(ben.message("The last one standing")).to_be_visible()
    texts = ben.log.get_by_role("article").locator(".text").all_inner_texts()
    assert texts == [
        "Before the upgrade",
        "From the new page",
        "From an old page",
        "The last one standing",
    ]
    # Loaded again it is the new one, also without the server.
    second.page.reload()
    second.chats.wait_for()
    assert version_of(second.page) == "new"
    street.site.kill()
    second.page.reload()
    expect(second.message("The last one standing")).to_be_visible()
    assert version_of(second.page) == "new"
