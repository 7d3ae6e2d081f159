"""The web chat without its server: it opens, it shows, what is written waits. Slow: browsers."""

import pytest
from playwright.sync_api import expect

from tests.web_app.people import NO_SERVER, Street

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_page_opens_and_takes_messages_while_the_server_is_away(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    for person in (ann, ben):
        person.watch.expected.append(NO_SERVER)
    ann.write_to("ben")
    ann.say("Before the storm")
    ann.tick("Before the storm", "Delivered to all")
    # From the second visit on the page has its own copy of itself.
    ann.page.wait_for_function("() => navigator.serviceWorker.controller !== null")
    street.site.kill()
    expect(ann.page.get_by_text("Offline. What you write waits here")).to_be_visible()
    ann.check_accessible("offline")
    ann.page.reload()
    expect(ann.message("Before the storm")).to_be_visible()
    ann.say("During the storm")
    ann.tick("During the storm", "Waiting to be sent")
    ann.check_accessible("a message that waits")
    ann.say("Still during it")
    ann.page.reload()
    expect(ann.message("Still during it")).to_be_visible()
    expect(ann.chat("Ben Okafor")).to_contain_text("Still during it")
    expect(ann.page.get_by_role("button", name="Try now")).to_be_visible()
    street.site.start()
    # Each would come back by itself, but the longer it lasted the later: the next try may be half a
    # minute away.
    for person in (ann, ben):
        person.page.evaluate("window.dispatchEvent(new Event('online')) && null")
    ann.tick("Still during it", "Delivered to all")
    ben.open("Ann Lee")
    ben.message("Still during it").wait_for()
    texts = ben.log.get_by_role("article").locator(".text").all_inner_texts()
    assert texts == ["Before the storm", "During the storm", "Still during it"]
    ann.tick("Still during it", "Read by all")
