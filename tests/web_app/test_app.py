"""The web chat as people use it: a real server, two people in two profiles of a real Chromium.

Every test ends with a look at what the pages did besides: no error on the console, no request to
another host, no violation of the policy (`tests.web_app.people.Watch`). Slow: browsers.
"""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chatting import PASSWORD
from tests.web_app.people import Street

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_first_start_offers_the_first_account_and_the_next_person_signs_up(street: Street) -> None:
    ann = street.settled("ann")
    ann.visit()
    expect(ann.page.get_by_role("heading", name="Make the first account")).to_be_visible()
    ann.check_accessible("first start")
    ann.page.get_by_label("User name").fill("ann")
    ann.page.get_by_label("Password").fill("short")
    ann.page.get_by_role("button", name="Make the account").click()
    ann.page.get_by_label("Password").fill(PASSWORD)
    ann.page.get_by_label("Name that others see").fill("Ann Lee")
    ann.page.get_by_role("button", name="Make the account").click()
    expect(ann.page.get_by_text("No chats yet")).to_be_visible()
    ann.check_accessible("no chats")

    ben = street.settled("ben")
    ben.visit()
    expect(ben.page.get_by_role("heading", name="Make the first account")).to_have_count(0)
    ben.watch.expected += ["status of 4(00|09|22)"]
    ben.page.get_by_role("button", name="Sign up").click()
    ben.page.get_by_label("User name").fill("an n")
    ben.page.get_by_label("Password").fill(PASSWORD)
    ben.page.get_by_role("button", name="Make the account").click()
    expect(ben.page.get_by_role("alert")).to_have_text(
        "A user name has 1 to 64 letters, digits and . _ : -"
    )
    ben.page.get_by_label("User name").fill("ann")
    ben.page.get_by_role("button", name="Make the account").click()
    expect(ben.page.get_by_role("alert")).to_have_text("This user name is taken.")
    ben.check_accessible("sign up refused")
    ben.page.get_by_label("User name").fill("ben")
    ben.page.get_by_role("button", name="Make the account").click()
    ben.chats.wait_for()
    # The page is opened again: the login is kept.
    ben.visit()
    ben.chats.wait_for()


def test_page_of_the_api_is_readable_and_requests_can_be_tried(street: Street) -> None:
    ann = street.somebody()
    ann.visit("/api/v1/docs")
    page = ann.page
    expect(page.get_by_role("heading", name="auth", exact=True)).to_be_visible()
    ann.check_accessible("API")
    for operation in page.locator("details").all():
        operation.evaluate("each => { each.open = true; }")
    assert "`" not in page.locator("body").inner_text()
    expect(page.locator("details p code").first).to_be_visible()
    health = page.locator("details", has=page.get_by_text("/api/v1/health", exact=True))
    health.get_by_role("button", name="Send").click()
    expect(health.locator("pre").first).to_contain_text("200 OK")
    ann.check_accessible("API, everything open")


def test_two_people_talk_and_see_ticks(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.write_to("ben")
    ann.say("Lunch at noon?")
    ann.tick("Lunch at noon?", "Delivered to all")
    expect(ben.chat("Ann Lee")).to_contain_text("1 unread message")
    expect(ben.page).to_have_title("(1) Tidewire")
    ben.open("Ann Lee")
    expect(ben.message("Lunch at noon?")).to_be_visible()
    ann.tick("Lunch at noon?", "Read by all")
    expect(ben.page).to_have_title("Tidewire")
    expect(ben.chat("Ann Lee")).not_to_contain_text("unread")
    ben.box.press_sequentially("With")
    expect(ann.page.get_by_role("banner").or_(ann.page.locator("main"))).to_contain_text("typing…")
    ben.say("With pleasure")
    expect(ann.message("With pleasure")).to_be_visible()
    expect(ann.page.get_by_text("typing…")).to_have_count(0)
    ann.check_accessible("conversation")
    # A new line is one, and markup is text.
    ann.box.fill("<b>bold?</b>")
    ann.box.press("Shift+Enter")
    ann.box.press_sequentially("second line, see https://example.org/a_(b).")
    ann.box.press("Enter")
    message = ben.message("second line")
    expect(message).to_contain_text("<b>bold?</b>\nsecond line", use_inner_text=True)
    ben.page.reload()
    expect(ben.log.get_by_text("This is the beginning of the chat")).to_be_visible()
    expect(ben.log.get_by_role("article")).to_have_count(3)
    link = message.get_by_role("link")
    expect(link).to_have_attribute("href", "https://example.org/a_(b)")
    expect(link).to_have_attribute("rel", re.compile("noopener"))


def test_replies_quote_and_lead_to_what_they_answer(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.write_to("ben")
    ann.say("The first question")
    for number in range(40):
        ann.say(f"Something in between, number {number}")
    ben.open("Ann Lee")
    ben.box.wait_for()
    ben.log.evaluate("log => { log.scrollTop = 0 }")
    first = ben.message("The first question")
    first.hover()
    first.get_by_role("button", name="Reply").click()
    expect(ben.page.get_by_text("Reply to Ann Lee")).to_be_visible()
    ben.say("The answer to the first")
    answer = ann.message("The answer to the first")
    expect(answer.get_by_role("button", name="You The first question")).to_be_visible()
    answer.get_by_role("button", name="You The first question").click()
    first = ann.log.get_by_role("article").filter(has_text="The first question").first
    expect(first).to_be_in_viewport()
    expect(first).to_be_focused()
    expect(answer).not_to_be_in_viewport()
    ann.page.get_by_role("button", name="To the newest message").click()
    expect(answer).to_be_in_viewport()


def test_messages_change_for_both(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.write_to("ben")
    ann.say("Lunch at noon?")
    ben.open("Ann Lee")
    ben.message("Lunch at noon?").wait_for()
    # Reactions: by the menu, and by what is there.
    ben.message("Lunch at noon?").hover()
    ben.message("Lunch at noon?").get_by_role("button", name="Actions").click()
    ben.check_accessible("menu of a message")
    ben.dialog().get_by_role("button", name="👍").click()
    thumb = ann.message("Lunch at noon?").get_by_role("button", name="👍")
    expect(thumb).to_have_accessible_name("👍, 1 person")
    thumb.click()
    expect(thumb).to_have_accessible_name("👍, 2 people, you too")
    expect(ben.message("Lunch at noon?").get_by_role("button", name="👍")).to_contain_text("2")
    thumb.click()
    expect(thumb).to_have_accessible_name("👍, 1 person")
    # Edits: the last own message with a key; another text, or none after all.
    ann.box.press("ArrowUp")
    expect(ann.box).to_have_value("Lunch at noon?")
    ann.box.press("Escape")
    expect(ann.box).to_have_value("")
    ann.act("Lunch at noon?", "Edit")
    expect(ann.box).to_be_focused()
    ann.box.fill("Lunch at one?")
    ann.box.press("Enter")
    expect(ben.message("Lunch at one?")).to_contain_text("edited")
    expect(ben.page.get_by_text("Lunch at noon?")).to_have_count(0)
    # A deletion is for all, and asked about.
    ben.say("Never mind")
    expect(ann.message("Never mind")).to_be_visible()
    ben.act("Never mind", "Delete")
    ben.check_accessible("question before a deletion")
    ben.dialog().get_by_role("button", name="Delete").click()
    for person in (ann, ben):
        expect(person.message("This message was deleted")).to_be_visible()
        expect(person.page.get_by_text("Never mind")).to_have_count(0)
    # Ann may not delete what Ben has said.
    ben.say("This stays")
    ann.message("This stays").hover()
    ann.message("This stays").get_by_role("button", name="Actions").click()
    expect(ann.dialog().get_by_role("button", name="Reply")).to_be_visible()
    expect(ann.dialog().get_by_role("button", name="Delete")).to_have_count(0)
    ann.page.keyboard.press("Escape")
    expect(ann.dialog()).to_have_count(0)


def test_edit_on_two_devices_overwrites_nothing_unseen(street: Street) -> None:
    """What the other device has made of it meanwhile stays, and its author says what is to be."""
    street.register("ben", "Ben Okafor")
    desk = street.account("ann", "Ann Lee")
    phone = street.somebody()
    phone.log_in("ann")
    desk.write_to("ben")
    desk.say("Lunch at noon?")
    phone.open("Ben Okafor")
    for mine, is_kept in (("on the phone", False), ("on the phone, at last", True)):
        before = phone.log.get_by_role("article").locator(".text").inner_text()
        phone.act(before, "Edit")
        expect(phone.box).to_have_value(before)
        theirs = f"at the desk, before {mine}"
        desk.act(before, "Edit")
        desk.box.fill(theirs)
        desk.box.press("Enter")
        # It is on the phone's screen, too, while the phone edits what was there before.
        phone.message(theirs).wait_for()
        expect(phone.box).to_have_value(before)
        phone.box.fill(mine)
        phone.box.press("Enter")
        note = phone.message(theirs).get_by_role("alert")
        expect(note).to_contain_text("Your edit was not saved")
        expect(note).to_contain_text("changed on another device")
        expect(note).to_contain_text(mine)
        phone.check_accessible("an edit that was refused")
        expect(desk.message(theirs)).to_be_visible()
        note.get_by_role("button", name="Save mine" if is_kept else "Discard").click()
        expect(phone.log.get_by_role("alert")).to_have_count(0)
        for device in (desk, phone):
            expect(device.log.get_by_role("article").locator(".text")).to_have_text(
                mine if is_kept else theirs
            )


def test_message_that_is_deleted_leaves_the_box_and_what_was_found(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.make_group("Crew", "ben")
    ben.open("Crew")
    ben.say("A secret")
    ann.message("A secret").wait_for()
    # What is still on its way is not offered.
    ben.tick("A secret", "Delivered to all")
    ben.box.press("ArrowUp")
    expect(ben.box).to_have_value("A secret")
    ben.page.get_by_label("Search chats and messages").fill("secret")
    found = ben.chats.get_by_role("button").filter(has_text="A secret")
    found.wait_for()
    ann.act("A secret", "Delete")
    ann.dialog().get_by_role("button", name="Delete").click()
    expect(ben.message("This message was deleted")).to_be_visible()
    expect(ben.box).to_have_value("")
    expect(found).to_have_count(0)
    expect(ben.page.get_by_text("A secret")).to_have_count(0)


def test_what_is_new_is_marked_where_one_left_off(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.make_group("Crew", "ben")
    ann.say("Before the break")
    ben.open("Crew")
    ben.message("Before the break").wait_for()
    ann.tick("Before the break", "Read by all")
    ben.visit("/")
    for number in range(1, 31):
        ann.say(f"While Ben was away, {number}")
    ann.box.press_sequentially("@Be")
    expect(ann.page.get_by_role("option", name="Ben Okafor")).to_be_visible()
    ann.check_accessible("names to mention")
    ann.box.press("Enter")
    expect(ann.box).to_have_value("@Ben Okafor ")
    ann.box.press_sequentially("look at this")
    ann.box.press("Enter")
    expect(ben.chat("Crew")).to_contain_text("31 unread messages")
    expect(ben.chat("Crew")).to_contain_text("You are mentioned")
    expect(ben.page).to_have_title("(31) Tidewire")
    ben.open("Crew")
    expect(ben.log.get_by_text("New", exact=True)).to_be_in_viewport()
    expect(ben.message("While Ben was away, 1")).to_be_visible()
    # Only what was on the screen counts as read.
    expect(ben.chat("Crew")).to_contain_text("unread")
    ben.page.get_by_role("button", name="To the newest message").click()
    expect(ben.message("look at this")).to_be_in_viewport()
    expect(ben.chat("Crew")).not_to_contain_text("unread")
    expect(ben.log.get_by_text("Today")).to_have_count(1)


def test_page_notifies_who_looks_elsewhere(street: Street) -> None:
    ann = street.account("ann", "Ann Lee")
    ben = street.account("ben", "Ben Okafor", permissions=["notifications"])
    ben.page.evaluate(
        """() => {
            window.shown = [];
            window.badges = [];
            window.Notification = class {
                static permission = "granted";
                static requestPermission = async () => "granted";
                constructor(title, options) { window.shown.push([title, options.body]); }
                close() {}
            };
            navigator.setAppBadge = async (count) => { window.badges.push(count); };
        }"""
    )
    ben.page.get_by_role("button", name="Settings").click()
    ben.dialog().get_by_label("Show notifications").check()
    ben.page.keyboard.press("Escape")
    ann.write_to("ben")
    ann.say("Are you there?")
    ben.page.wait_for_function("() => window.shown.length === 1")
    assert ben.page.evaluate("window.shown") == [["Ann Lee", "Are you there?"]]
    # The list of chats, and with it the count, may move after the message is told of.
    ben.page.wait_for_function("() => window.badges.at(-1) === 1")
    # One who looks at the chat needs no telling.
    ben.open("Ann Lee")
    ben.page.bring_to_front()
    ann.say("I see you")
    ben.message("I see you").wait_for()
    ann.tick("I see you", "Read by all")
    assert len(ben.page.evaluate("window.shown")) == 1
