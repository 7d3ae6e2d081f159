"""The chat in the terminal, driven key by key against a real server. Slow: a server starts, and a
screen is painted.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chatting import PATIENCE_S
from tests.e2e.commands import tidewire
from tests.e2e.terminals import SteadySite, held, login, register, terminal
from tidewire.client import Chat, Client, LoginNeeded, Message, Sent, StoreUnusable
from tidewire.client.store import Store
from tidewire.terminal.addresses import STORES_MAX, store_name
from tidewire.terminal.session import Wish, open_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FEW = 150
"""A bound that is reached with fewer keys."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SteadySite]:
    with SteadySite(tmp_path / "data") as site:
        yield site
        assert site.complaints() == []


@pytest.fixture
async def alice(site: SteadySite, tmp_path: Path) -> AsyncIterator[Client]:
    async with await register(site, tmp_path / "alice.db", "alice", "Alice") as alice:
        yield alice


@pytest.fixture
async def bob(site: SteadySite, tmp_path: Path) -> AsyncIterator[Client]:
    async with await register(site, tmp_path / "bob.db", "bob", "Bob") as bob:
        yield bob


@pytest.fixture
async def carol(site: SteadySite, tmp_path: Path) -> AsyncIterator[Client]:
    async with await register(site, tmp_path / "carol.db", "carol", "Carol") as carol:
        yield carol


async def fill(sender: Client, to: str, count: int) -> Sent:
    """Many messages, stored; the last of them."""
    chat = await sender.direct(to)
    sent = [await chat.send(f"number {number}.") for number in range(1, count + 1)]
    await sent[-1].stored()
    return sent[-1]


# Writing, and what becomes of it.


async def test_message_gets_its_ticks_one_after_the_other(
    site: SteadySite, alice: Client, tmp_path: Path
) -> None:
    bob = await register(site, tmp_path / "bob.db", "bob", "Bob")
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("Hello Bob")
        await at.until(lambda: at.mark("you Hello Bob") == "✓")
        async with bob:
            await at.until(lambda: at.mark("you Hello Bob") == "✓✓")
            chat = await bob.direct("alice")
            await bob.ready()
            await chat.read()
            await at.until(lambda: at.mark("you Hello Bob") == "✔✔")


async def test_first_chat_opens_when_it_is_heard_of_after_the_screen_is_there(
    alice: Client, bob: Client
) -> None:
    async with terminal(bob, "bob") as at_bob:
        await at_bob.sees("No chat yet")
        await (await alice.direct("bob")).send("Hello Bob")
        await at_bob.sees("Alice", "Hello Bob")
        await at_bob.write("Hi Alice")


async def test_messages_of_two_terminals_meet(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at_alice:
        await at_alice.write_to("bob")
        await at_alice.write("Hello Bob")
        # One application a process has the screen; Bob's is opened while Alice's is still there.
        async with terminal(bob, "bob") as at_bob:
            await at_bob.sees("Alice", "Hello Bob")
            await at_bob.write("Hi Alice")
            await at_bob.until(lambda: at_bob.mark("Hi Alice") in ("✓✓", "✔✔"))
        await at_alice.sees("Bob Hi Alice")
        await at_alice.until(lambda: at_alice.mark("you Hello Bob") == "✔✔")


async def test_messages_written_offline_go_out_on_reconnect(
    site: SteadySite, alice: Client, bob: Client
) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("before")
        await at.until(lambda: at.mark("you before") == "✓✓")
        site.kill()
        await at.until(lambda: "offline" in at.head)
        await at.write("first")
        await at.write("second")
        await at.until(lambda: "2 to send" in at.head)
        assert (at.mark("first"), at.mark("second")) == ("○", "○")
        site.start()
        await at.until(lambda: "connected" in at.head)
        await at.until(lambda: (at.mark("first"), at.mark("second")) == ("✓✓", "✓✓"))
    chat = await bob.direct("alice")
    assert [one.text for one in await chat.messages()] == ["before", "first", "second"]


async def test_message_over_several_lines_is_one_message(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("one\ntwo")
        await at.until(lambda: at.mark("you one") == "✓✓")
    (message,) = await (await bob.direct("alice")).messages()
    assert message.text == "one\ntwo"


async def test_message_that_is_too_long_stays_in_the_line(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        at.screen.composer.load_text("x" * 5_000)
        await at.press("enter")
        await at.sees("4096")
        assert len(at.screen.composer.text) == 5_000


async def test_refused_message_is_dropped_or_sent_again(alice: Client, bob: Client) -> None:
    user = await bob.find("alice")
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await bob.rest.call(type(None), "PUT", f"/users/{user.user_id}/block")
        await at.write("one")
        await at.write("two")
        await at.until(lambda: (at.mark("you one"), at.mark("  two")) == ("✗", "✗"))
        await at.sees("not sent:", "✗ Bob")
        await at.press("ctrl+r")
        await at.sees("Not sent", "Bob: one", "Bob: two")
        await at.press("d")
        await at.until(lambda: "Bob: one" not in at.shown)
        await bob.rest.call(type(None), "DELETE", f"/users/{user.user_id}/block")
        await at.press("enter")
        await at.sees("nothing has failed")
        await at.press("escape")
        await at.until(lambda: at.mark("you two") in ("✓", "✓✓"))
        assert "one" not in at.shown.replace("none", "")


async def test_typing_is_shown_and_told(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("hello")
        await at.until(lambda: at.mark("you hello") == "✓✓")
        chat = await bob.direct("alice")
        chat.typing()
        await at.sees("Bob is typing…")
        chat.typing(False)
        await at.until(lambda: "typing" not in at.shown)
        async with terminal(bob, "bob") as at_bob:
            await at_bob.sees("hello")
            at.screen.state.typed("x")
            await at_bob.sees("Alice is typing…")
            at.screen.state.typed("")
            await at_bob.until(lambda: "typing" not in at_bob.shown)


async def test_draft_stays_with_its_chat(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.press("ctrl+g")
        await at.sees("Name of the group")
        await at.type("Team")
        await at.press("enter", *"bob", "enter")
        await at.sees("alice · Team")
        await at.type("not yet")
        await at.press("ctrl+down")
        await at.sees("alice · Bob")
        assert at.screen.composer.text == ""
        await at.press("ctrl+up")
        await at.sees("alice · Team")
        assert at.screen.composer.text == "not yet"


@pytest.mark.usefixtures("bob", "carol")
async def test_keys_that_come_at_once_are_dealt_with_in_their_order(alice: Client) -> None:
    """What was written to one person is not sent to the next."""
    async with terminal(alice, "alice") as at:
        await at.write_to("carol")
        await at.write("Hello Carol")
        await at.write_to("bob")
        await at.write("Hello Bob")
        for text, person in (("for Bob alone", "Carol"), ("for Carol alone", "Bob")):
            await at.type(text)
            at.press_at_once("enter", "ctrl+down")
            await at.sees(f"alice · {person}")
            await at.until(lambda: not alice.outbox())
            assert at.screen.composer.text == ""
        # An edit that is sent is none that is given up.
        await at.press("up")
        await at.type("!")
        at.press_at_once("enter", "escape")
        await at.sees("for Bob alone! (edited)")
        await at.until(lambda: not alice.outbox())
        texts = {
            chat.name: [one.text for one in await chat.messages()] for chat in alice.known_chats()
        }
        assert texts == {
            "Carol": ["Hello Carol", "for Carol alone"],
            "Bob": ["Hello Bob", "for Bob alone!"],
        }


# Chats and people.


async def test_new_chat_with_nobody_says_so_and_asks_again(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.sees("No chat yet")
        await at.press("ctrl+n", *"nobody", "enter")
        await at.sees("there is no user named 'nobody'")
        await at.press(*["backspace"] * 6, *"@bob", "enter")
        await at.sees("alice · Bob", "This is the beginning")


async def test_beginning_is_seen_when_chat_is_opened_again_while_a_page_is_loaded(
    alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new chat is opened by its dialog, and perhaps at the same time as the first of all."""
    asked, let_go = asyncio.Event(), asyncio.Event()
    history = Chat.history

    async def held_up(self: Chat, **named: Any) -> list[Message]:
        asked.set()
        await let_go.wait()
        return await history(self, **named)

    monkeypatch.setattr(Chat, "history", held_up)
    async with terminal(alice, "alice") as at:
        await at.press("ctrl+n", *"@bob", "enter")
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
        await at.screen._open(alice.known_chats()[0])
        await at.sees("alice · Bob", "older messages")
        let_go.set()
        await at.sees("This is the beginning")


async def test_new_group_has_its_members_and_takes_more(
    alice: Client, bob: Client, carol: Client
) -> None:
    async with terminal(alice, "alice") as at:
        await at.press("ctrl+g")
        await at.sees("Name of the group")
        await at.type("The Team")
        await at.press("enter", *"bob", "enter")
        await at.sees("alice · The Team", "#The Team")
        await at.press("ctrl+l")
        await at.sees("Alice (you)  owner", "Bob")
        await at.press("tab", *"carol", "enter")
        await at.sees("Carol")
        await at.press("escape")
        await at.write("Welcome")
        await at.until(lambda: at.mark("you Welcome") == "✓✓")
        (chat,) = [chat for chat in await carol.chats() if chat.name == "The Team"]
        await chat.send("Thanks")
        await at.sees("Carol Thanks")


async def test_group_dialog_keeps_the_name_when_a_person_is_unknown(
    alice: Client, bob: Client
) -> None:
    async with terminal(alice, "alice") as at:
        await at.press("ctrl+g")
        await at.sees("Name of the group")
        await at.type("The Team")
        await at.press("enter", *"nobody", "enter")
        await at.sees("there is no user named 'nobody'", "The Team")
        await at.press(*["backspace"] * 6, *"bob", "enter")
        await at.sees("alice · The Team")


async def test_group_is_renamed_loses_a_member_and_is_left(alice: Client, bob: Client) -> None:
    group = await alice.group("The Team", "bob")
    async with terminal(alice, "alice") as at, terminal(bob, "bob") as other:
        await other.sees("#The Team")
        await at.sees("alice · The Team")
        await at.press("ctrl+l")
        await at.sees("Bob", "f2 Rename")
        await at.press("f2")
        await at.sees("New name")
        await at.type("Us two")
        await at.press("enter", "escape")
        await at.sees("alice · Us two")
        await other.sees("#Us two")
        await other.press("ctrl+l")
        await other.sees("Bob (you)")
        await other.press("f3")
        await other.sees("Leave this group?")
        await other.press("enter")
        await other.sees("No chat yet")
        await at.until(lambda: len(at.screen.state.client.known_chats()) == 1)
        await group.add("bob")
        await other.sees("#Us two")
        await at.press("ctrl+l")
        await at.sees("Bob")
        await at.press("down", "delete")
        await at.sees("Remove Bob from this group?")
        await at.press("enter")
        await at.until(lambda: "Bob" not in at.shown)
        assert [member.display_name for member in await group.members()] == ["Alice"]


async def test_group_that_is_left_is_not_open_until_the_server_tells_of_it(
    alice: Client, bob: Client
) -> None:
    await alice.group("The Team", "bob")
    async with terminal(bob, "bob") as at:
        await at.sees("bob · The Team")
        await at.press("ctrl+l")
        await at.sees("Bob (you)")
        await at.press("f3")
        await at.sees("Leave this group?")
        # The answer comes over a line of its own, and may be the first to come.
        socket = bob.driver._socket
        assert socket is not None
        socket.pause()
        await at.press("enter")
        await at.until(lambda: at.screen.state.chat is None)
        assert bob.known_chats() != []
        socket.resume()
        await at.sees("No chat yet")


async def test_message_that_is_not_seen_rings_the_bell_once(
    alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with terminal(alice, "alice") as at:
        rings: list[str] = []
        monkeypatch.setattr(at.app, "bell", lambda: rings.append("ring"))
        # However long the five take to come.
        monkeypatch.setattr("tidewire.terminal.state.BELL_MS_MIN", 3_600_000)
        to_alice = await bob.direct("alice")
        group = await bob.group("The Team", "alice")
        await at.sees("The Team")
        await at.write_to("bob")
        await to_alice.send("On the screen")
        await at.sees("Bob On the screen")
        assert rings == []
        for number in range(5):
            await group.send(f"elsewhere {number}")
        await at.until(lambda: at.screen.state.client.chat(group.chat_id).unread == 5)
        # The screen hears of one message after the other, and of this one last.
        await to_alice.send("And on the screen again")
        await at.sees("And on the screen again")
        assert rings == ["ring"]


async def test_unread_chat_is_marked_until_it_is_seen(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.press("ctrl+g")
        await at.sees("Name of the group")
        await at.type("Team")
        await at.press("enter", *"bob", "enter")
        await at.sees("alice · Team")
        chat = await bob.direct("alice")
        sent = [await chat.send(text) for text in ("one", "two", "three")]
        await at.until(lambda: at.line("● Bob").split("▕")[0].split() == ["●", "Bob", "3"])
        assert sent[-1].tick != "read"
        await at.press("ctrl+up")
        await at.sees("alice · Bob", "─ new ─", "three")
        await sent[-1].read()
        await at.until(lambda: "●" not in at.shown)


async def test_chat_that_somebody_else_begins_appears_by_itself(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.sees("No chat yet")
        sent = await (await bob.direct("alice")).send("Hello Alice")
        # The first chat is opened by itself, so what came is seen, and no mark stays.
        await at.sees("alice · Bob", "Hello Alice")
        await sent.read()
        await at.until(lambda: "●" not in at.shown)


# The past.


async def test_arriving_message_does_not_move_what_is_read(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await fill(bob, "alice", 60)
        await at.sees("number 60.")
        await at.press("pageup")
        await at.until(lambda: "number 60." not in at.shown)
        before = at.shown.splitlines()[1:20]
        await (await bob.direct("alice")).send("late")
        await at.until(lambda: at.view.lines[-1].text.count("late") == 1)
        await at.pilot.pause()
        assert [line[24:78] for line in at.shown.splitlines()[1:20]] == [
            line[24:78] for line in before
        ]
        assert "more below (Esc)" in at.shown
        await at.press("escape")
        await at.sees("late")


async def test_past_is_fetched_from_the_server_page_by_page(
    site: SteadySite, alice: Client, bob: Client, tmp_path: Path
) -> None:
    count = FEW + 60
    last = await fill(bob, "alice", count)
    chat = await alice.direct("bob")
    await held(alice, chat, count)
    await chat.read()
    # A new device begins where its user had got to: everything before comes on demand.
    await last.read()
    async with (
        await login(site, tmp_path / "second.db", "alice") as second,
        terminal(second, "alice", window_max=FEW) as at,
    ):
        await at.write_to("bob")
        await at.sees(f"number {count}.")
        assert await second.search("number") == []
        while "This is the beginning" not in at.shown:
            await at.press("pageup")
            await at.pilot.pause(0.01)
        await at.sees("number 1.")
        assert len(at.screen.state.window) == FEW
        assert at.screen.state.window.has_newer
        await at.sees("↓ newer messages (Esc)")
        # And down again, page by page.
        while f"number {count}." not in at.shown:
            await at.press("pagedown")
            await at.pilot.pause(0.01)
        assert not at.screen.state.window.has_newer


async def test_newest_is_one_key_away_from_the_far_past(alice: Client, bob: Client) -> None:
    count = FEW + 60
    await fill(bob, "alice", count)
    async with terminal(alice, "alice", window_max=FEW) as at:
        await at.write_to("bob")
        while not at.screen.state.window.has_newer:
            await at.press("pageup")
            await at.pilot.pause(0.01)
        await at.press("escape")
        await at.sees(f"number {count}.")


async def test_search_leads_to_the_message_in_its_chat(alice: Client, bob: Client) -> None:
    await fill(bob, "alice", 200)
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.press("escape")
        await at.sees("number 200.")
        await at.press("ctrl+f")
        await at.sees("Find in messages")
        await at.type("nothing like it")
        await at.sees("nothing found")
        await at.press(*["backspace"] * 15)
        await at.type("NUMBER 42.")
        await at.sees("Bob: number 42.")
        await at.press("enter")
        await at.until(lambda: at.app.screen is at.screen)
        await at.sees("number 42.", "number 43.", "↓")
        assert at.screen.state.found is not None
        await at.press("escape")
        await at.sees("number 200.")


async def test_search_works_without_a_server(site: SteadySite, alice: Client, bob: Client) -> None:
    await fill(bob, "alice", 3)
    async with terminal(alice, "alice") as at:
        await at.sees("number 3.")
        site.kill()
        await at.until(lambda: "offline" in at.head)
        await at.press("ctrl+f")
        await at.type("number 2.")
        await at.sees("Bob: number 2.")
        await at.press("enter")
        await at.sees("alice · Bob", "Bob number 1.", "number 3.")


# How it looks.


async def test_text_of_others_is_neither_markup_nor_obeyed(
    site: SteadySite, alice: Client, tmp_path: Path
) -> None:
    name = "[b]Bob[/b]"
    async with (
        await register(site, tmp_path / "bob.db", "bob", name) as bob,
        terminal(alice, "alice") as at,
    ):
        await at.write_to("bob")
        await (await bob.direct("alice")).send("[red]x[/red] \x1b[2J \x07 [/nonsense]")
        await at.sees("[red]x[/red] ^[[2J ^G", "[/nonsense]", "[b]Bob[/b]")
        await at.press("ctrl+l")
        await at.sees("Alice (you)", name)
        await at.press("escape", "ctrl+f", *"nonsense")
        await at.sees("^[[2J ^G [/nonsense]")


async def test_everything_fits_eighty_columns(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await fill(bob, "alice", 3)
        await at.sees("number 3.")
        lines = at.shown.splitlines()
        assert len(lines) == 24
        assert {len(line) for line in lines} == {80}
        keys = "^n Write to ^g Group ^f Find ^l People ^r Failed esc Newest f1 Help ^q Quit"
        assert keys in lines[-1]
        await at.press("f1")
        await at.sees("Keys and marks", "✔✔ (blue) read by all", "send again, or drop")


async def test_small_and_changing_terminal_shows_the_newest(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice", (50, 10)) as at:
        await at.write_to("bob")
        await fill(bob, "alice", 30)
        await at.sees("number 30.")
        await at.pilot.resize_terminal(100, 30)
        await at.sees("number 30.", "number 5.")
        await at.pilot.resize_terminal(40, 8)
        await at.sees("number 30.")


async def test_without_colour_the_marks_still_differ(
    alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with terminal(alice, "alice") as at:
        assert at.app.no_color
        await at.write_to("bob")
        await at.write("one")
        chat = await bob.direct("alice")
        await at.until(lambda: at.mark("you one") == "✓✓")
        await chat.read()
        await at.until(lambda: at.mark("you one") == "✔✔")
        await at.write("two")
        await at.until(lambda: (at.mark("you one"), at.mark("  two")) == ("✔✔", "✓✓"))


async def test_revoked_login_is_said_in_words(site: SteadySite, alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.until(lambda: "connected" in at.head)
        await asyncio.to_thread(tidewire, "users", "disable", "alice", "--data-dir", site.data_dir)
        await at.until(lambda: "ended: this device was logged out" in at.head)


# Bounds.


async def test_one_person_has_so_many_stores_at_once_and_no_more(tmp_path: Path) -> None:
    wish = Wish(url="http://127.0.0.1:9", username="alice", directory=tmp_path)
    asked: list[str] = []

    def ask(username: str) -> str:
        asked.append(username)
        raise LoginNeeded("nobody answers")

    stores: list[Store] = []
    try:
        for number in range(1, STORES_MAX + 1):
            with pytest.raises(LoginNeeded):
                await open_session(wish, ask, asked.append)
            stores.append(Store(str(tmp_path / store_name(wish.url, "alice", number))))
        assert len([line for line in asked if "one more device" in line]) == STORES_MAX - 1
        with pytest.raises(StoreUnusable, match="in use by another process"):
            await open_session(wish, ask, asked.append)
    finally:
        for store in stores:
            await store.close()
