"""Groups and people in the web chat: members, roles, blocks, quiet, accounts. Slow: browsers."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.chatting import PASSWORD
from tests.web_app.people import Person, Street

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def member(panel: Locator, name: str) -> Locator:
    return panel.get_by_role("listitem").filter(has_text=name)


def manage(person: Person, name: str, action: str) -> None:
    """Something from the menu of a member."""
    person.about().get_by_role("button", name=f"Actions for {name}").click()
    person.dialog().get_by_role("button", name=action, exact=True).click()


def test_group_from_its_beginning_to_its_end(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    street.register("cleo", "Cleo Martin")
    ann.make_group("Crew", "ben")
    ann.say("Welcome")
    ben.open("Crew")
    panel = ann.about()
    expect(panel.get_by_role("listitem")).to_have_count(2)
    ann.check_accessible("about a group")
    # Add, with a name that does not exist first.
    ann.watch.expected.append("status of 404")
    panel.get_by_label("Add a person by user name").fill("nemo")
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(panel.get_by_role("alert").filter(has_text="There is no nemo here.")).to_be_visible()
    panel.get_by_label("Add a person by user name").fill("cleo")
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(member(panel, "Cleo Martin")).to_be_visible()
    # Roles: an admin may rename; a member may not.
    theirs = ben.about()
    expect(theirs.get_by_label("Name of the group")).to_have_count(0)
    manage(ann, "Ben Okafor", "Make admin")
    expect(member(panel, "Ben Okafor")).to_contain_text("Admin")
    theirs.get_by_label("Name of the group").fill("The whole crew")
    theirs.get_by_role("button", name="Rename").click()
    expect(ann.page.get_by_role("heading", name="The whole crew", level=1)).to_be_visible()
    # Remove, hand over, leave for good, close.
    manage(ann, "Cleo Martin", "Remove")
    ann.check_accessible("question before a removal")
    ann.dialog().get_by_role("button", name="Remove").click()
    expect(member(panel, "Cleo Martin")).to_have_count(0)
    manage(ann, "Ben Okafor", "Hand the group over")
    ann.dialog().get_by_role("button", name="Hand the group over").click()
    expect(member(panel, "Ben Okafor")).to_contain_text("Owner")
    panel.get_by_role("button", name="Leave the group").click()
    ann.dialog().get_by_label("Do not let others add me again").check()
    ann.dialog().get_by_role("button", name="Leave the group").click()
    expect(ann.chat("The whole crew")).to_have_count(0)
    expect(theirs.get_by_role("listitem")).to_have_count(1)
    ben.watch.expected.append("status of 403")
    theirs.get_by_label("Add a person by user name").fill("ann")
    theirs.get_by_role("button", name="Add", exact=True).click()
    expect(theirs.get_by_role("alert").filter(has_text="allowed")).to_be_visible()
    theirs.get_by_role("button", name="Close the group for good").click()
    ben.dialog().get_by_role("button", name="Close the group for good").click()
    expect(ben.page.get_by_text("Pick a chat")).to_be_visible()


def test_removed_member_sees_it_and_can_write_no_more(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.make_group("Crew", "ben")
    ann.say("Welcome")
    ben.open("Crew")
    expect(ben.box).to_be_visible()
    manage(ann, "Ben Okafor", "Remove")
    ann.dialog().get_by_role("button", name="Remove").click()
    expect(ben.page.get_by_text("You are no longer in this chat.")).to_be_visible()
    expect(ben.box).to_have_count(0)


def test_people_are_found_blocked_muted_and_hidden(street: Street) -> None:
    ann, ben = street.account("ann", "Ann Lee"), street.account("ben", "Ben Okafor")
    ann.watch.expected.append("status of 404")
    ann.page.get_by_role("button", name="New chat").first.click()
    ann.check_accessible("new chat")
    for name, answer in (("nemo", "There is no nemo here."), ("ann", "That is you.")):
        ann.dialog().get_by_label("User name").fill(name)
        ann.dialog().get_by_role("button", name="Start chat").click()
        expect(ann.dialog().get_by_role("alert")).to_have_text(answer)
    ann.dialog().get_by_role("button", name="Group", exact=True).click()
    ann.check_accessible("new group")
    ann.dialog().get_by_role("button", name="Close").click()
    ann.write_to("ben")
    ann.say("Hello Ben")
    ben.open("Ann Lee")
    ann.tick("Hello Ben", "Read by all")
    panel = ben.about()
    ben.check_accessible("about a person")
    # Quiet.
    panel.get_by_role("button", name="Mute").click()
    ben.dialog().get_by_role("button", name="For a day").click()
    expect(ben.chat("Ann Lee")).to_contain_text("Muted")
    ben.page.reload()
    expect(ben.chat("Ann Lee")).to_contain_text("Muted")
    ben.visit("/")
    ann.say("You will not hear this")
    expect(ben.chat("Ann Lee")).to_contain_text("1 unread message")
    expect(ben.page).to_have_title("Tidewire")
    ben.open("Ann Lee")
    panel = ben.about()
    panel.get_by_role("button", name="Unmute").click()
    expect(ben.chat("Ann Lee")).not_to_contain_text("Muted")
    # Out of the list, until there is something new.
    panel.get_by_role("button", name="Hide from the list").click()
    expect(ben.page.get_by_text("Hidden chats")).to_be_visible()
    ann.say("Back again")
    expect(ben.page.get_by_text("Hidden chats")).to_have_count(0)
    # Blocked.
    panel.get_by_role("button", name="Block this person").click()
    ben.dialog().get_by_role("button", name="Block this person").click()
    expect(panel.get_by_text("You have blocked this person.")).to_be_visible()
    ann.box.fill("Can you read this?")
    ann.box.press("Enter")
    expect(ann.message("Can you read this?")).to_contain_text("Discard")
    ann.message("Can you read this?").get_by_role("button", name="Discard").click()
    expect(ann.page.get_by_text("Can you read this?")).to_have_count(0)
    panel.get_by_role("button", name="Unblock").click()
    expect(panel.get_by_role("button", name="Block this person")).to_be_visible()
    ann.say("And now?")
    expect(ben.message("And now?")).to_be_visible()


def test_account_its_logins_and_its_end(street: Street) -> None:
    ann = street.account("ann", "Ann Lee")
    phone, laptop = street.somebody(), street.somebody()
    for other in (phone, laptop):
        other.log_in("ann")
    ann.page.get_by_role("button", name="Settings").click()
    settings = ann.dialog()
    expect(settings.get_by_role("button", name="End", exact=True)).to_have_count(3)
    ann.check_accessible("settings")
    # What others see.
    settings.get_by_label("Name that others see").fill("Ann of the sea")
    settings.get_by_role("button", name="Save").click()
    expect(settings.get_by_text("Ann of the sea")).to_be_visible()
    # One login, then all others, by a new password.
    settings.get_by_role("button", name="End", exact=True).last.click()
    expect(settings.get_by_role("button", name="End", exact=True)).to_have_count(2)
    ann.watch.expected.append("status of 401")
    settings.get_by_label("Current password").fill("not the password")
    settings.get_by_label("New password").fill("another good one")
    settings.get_by_role("button", name="Change password").click()
    expect(settings.get_by_role("alert").filter(has_text="wrong")).to_be_visible()
    settings.get_by_label("Current password").fill(PASSWORD)
    settings.get_by_role("button", name="Change password").click()
    expect(settings.get_by_role("status").filter(has_text="Changed.")).to_be_visible()
    for other in (phone, laptop):
        expect(other.page.get_by_text("This login was ended elsewhere.")).to_be_visible()
        other.check_accessible("login that was ended")
    # Logging out leaves nothing behind.
    settings.get_by_role("button", name="Log out").click()
    ann.page.get_by_role("dialog", name="Log out?").get_by_role("button", name="Log out").click()
    expect(ann.page.get_by_label("User name")).to_be_visible()
    expect(ann.page.get_by_role("status")).to_have_count(0)
    assert ann.page.evaluate("indexedDB.databases()") == []
    ann.page.get_by_label("User name").fill("ann")
    ann.page.get_by_label("Password").fill("another good one")
    ann.page.locator("form").get_by_role("button", name="Log in").click()
    # For ever.
    ann.page.get_by_role("button", name="Settings").click()
    ann.dialog().get_by_role("button", name="Delete account").click()
    last = ann.page.get_by_role("dialog", name="Delete your account for good?")
    last.get_by_label("Password").fill("another good one")
    last.get_by_role("button", name="Delete account").click()
    expect(ann.page.get_by_role("status")).to_have_text("Your account is deleted.")
    ann.page.get_by_label("User name").fill("ann")
    ann.page.get_by_label("Password").fill("another good one")
    ann.page.locator("form").get_by_role("button", name="Log in").click()
    expect(ann.page.get_by_role("alert")).to_contain_text("wrong")


def test_account_leaves_its_messages_or_takes_them_along(street: Street) -> None:
    ben = street.account("ben", "Ben Okafor")
    for username, name, is_erasing in (("ann", "Ann Lee", False), ("cleo", "Cleo Martin", True)):
        person = street.account(username, name)
        person.write_to("ben")
        person.say(f"Written by {username}")
        ben.open(name)
        ben.message(f"Written by {username}").wait_for()
        person.watch.expected.append("status of 401")
        person.page.get_by_role("button", name="Settings").click()
        person.dialog().get_by_role("button", name="Delete account").click()
        last = person.page.get_by_role("dialog", name="Delete your account for good?")
        erase = last.get_by_role("checkbox", name="Also erase the text of my messages")
        expect(erase).not_to_be_checked()
        expect(erase).to_have_accessible_description(re.compile("In all chats, for everyone"))
        if is_erasing:
            erase.check()
        person.check_accessible("question before the end of an account")
        # A refusal leaves all as it was.
        last.get_by_label("Password").fill("not the password")
        last.get_by_role("button", name="Delete account").click()
        expect(last.get_by_role("alert")).to_contain_text("wrong")
        expect(erase).to_be_checked(checked=is_erasing)
        last.get_by_label("Password").fill(PASSWORD)
        last.get_by_role("button", name="Delete account").click()
        said = "Your account is deleted." + (" The server now erases" if is_erasing else "")
        expect(person.page.get_by_role("status")).to_contain_text(said)
        person.check_accessible("account that is gone")
        if is_erasing:
            expect(ben.message("This message was deleted")).to_be_visible()
            expect(ben.page.get_by_text(f"Written by {username}")).to_have_count(0)
    # The one who asked for nothing is still quoted, under another name.
    ben.page.reload()
    ben.chats.get_by_role("link").filter(has_text="Written by ann").click()
    expect(ben.message("Written by ann")).to_be_visible()
