"""Replies, edits, deletions, reactions and mentions in the terminal, key by key against a real
server. Slow: a server starts, and a screen is painted.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.terminals import SteadySite, Terminal, held, login, register, terminal
from tidewire.client import Chat, Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


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


async def choose(at: Terminal, text: str) -> None:
    """Go to the messages, and up to one."""
    if not at.view.has_focus:
        await at.press("shift+tab")
        await at.until(lambda: at.view.has_focus and "▸" in at.shown)
    for _ in range(30):
        if "▸" in at.line(text):
            return
        # Not any change: ticks and the list are painted when they like.
        before = at.line("▸")
        await at.press("up")
        await at.until(lambda before=before: at.line("▸") not in ("", before))  # type: ignore[misc]
    raise AssertionError(at.shown)


async def stored(chat: Chat, text: str) -> None:
    await (await chat.send(text)).stored()


async def test_arrow_up_edits_the_last_own_message(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("Hello Bbo")
        await at.until(lambda: at.mark("you Hello Bbo") == "✓✓")
        await at.press("up")
        await at.sees("✎ editing your message")
        assert at.screen.composer.text == "Hello Bbo"
        await at.press("backspace", "backspace", "o", "b", "enter")
        await at.sees("you Hello Bob (edited)")
        await at.until(lambda: at.screen.composer.text == "" and "editing" not in at.shown)
        await at.until(lambda: at.mark("you Hello Bob") == "✓✓")
        chat = await bob.direct("alice")
        await held(bob, chat, 2)
        (message,) = await chat.messages()
        assert (message.text, message.is_edited) == ("Hello Bob", True)
        # In a line with a text the key is what it always was; Esc leaves the message as it is.
        await at.type("x")
        await at.press("up")
        assert at.screen.composer.text == "x"
        await at.press("end", "backspace", "up")
        await at.sees("✎ editing")
        await at.type("!!!")
        await at.press("escape")
        await at.until(lambda: at.screen.composer.text == "")
        assert "Hello Bob!!!" not in at.shown


async def test_reply_shows_whom_and_what_it_answers(alice: Client, bob: Client) -> None:
    chat = await bob.direct("alice")
    await stored(chat, "Lunch at nine?")
    await stored(chat, "Or at noon?")
    async with terminal(alice, "alice") as at:
        await at.sees("Or at noon?")
        await choose(at, "Lunch at nine?")
        await at.press("enter")
        await at.sees("↪ Bob: Lunch at nine?")
        await at.write("That is breakfast")
        await at.until(lambda: at.shown.count("↪ Bob: Lunch at nine?") == 1)
        await at.until(lambda: at.mark("That is breakfast") in ("✓", "✓✓"))
        await held(bob, chat, 3)
        *_, reply = await chat.messages()
        assert reply.reply_to == 1
        # The quote is what that message is now, and a deletion leaves nothing of it.
        await (await chat.edit(1, "Lunch at ten?")).stored()
        await at.sees("↪ Bob: Lunch at ten?", "Lunch at ten? (edited)")
        await (await chat.delete(1)).stored()
        await at.sees("↪ Bob: [deleted]")
        await at.until(lambda: "Lunch at" not in at.shown)
        # A reply to it can be given up.
        await choose(at, "Or at noon?")
        await at.press("enter")
        await at.sees("↪ Bob: Or at noon?")
        await at.press("escape")
        await at.until(lambda: "↪ Bob: Or at noon?" not in at.shown)


async def test_deletion_asks_first_and_leaves_a_tombstone(alice: Client, bob: Client) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("A secret")
        await at.until(lambda: at.mark("you A secret") == "✓✓")
        await choose(at, "A secret")
        await at.press("d")
        await at.sees("Delete this message for all?", "you: A secret")
        await at.press("escape")
        await at.until(lambda: "Delete this" not in at.shown)
        await at.press("d")
        await at.sees("Delete this message for all?")
        await at.press("enter")
        await at.sees("you [deleted]")
        assert "A secret" not in at.shown
        chat = await bob.direct("alice")
        while not (await chat.messages())[0].is_deleted:
            await at.pilot.pause(0.01)
        # Nothing more can be done to it.
        await at.press("e", "r", "d")
        await at.pilot.pause()
        assert at.app.screen is at.screen


async def test_reaction_is_put_and_taken_back(alice: Client, bob: Client) -> None:
    chat = await bob.direct("alice")
    await stored(chat, "Lunch?")
    async with terminal(alice, "alice") as at:
        await at.sees("Lunch?")
        await choose(at, "Lunch?")
        await at.press("r")
        await at.sees("React, or")
        await at.press("enter")
        await at.sees("[👍 1]")
        await (await chat.react(1, "👍")).stored()
        await at.sees("[👍 2]")
        await at.press("r")
        await at.sees("React, or")
        await at.press("enter")
        await at.until(lambda: "👍 1" in at.shown and "[" not in at.line("👍"))
        await at.press("r")
        await at.sees("React, or")
        await at.press("tab", "o", "k", "enter")
        await at.sees("[ok 1]")
        # Only an author edits.
        await at.press("e")
        await at.sees("only its author can edit")


async def test_edit_without_a_server_is_shown_and_goes_out_later(
    site: SteadySite, alice: Client, bob: Client
) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("before")
        await at.until(lambda: at.mark("you before") == "✓✓")
        site.kill()
        await at.until(lambda: "offline" in at.head)
        await at.write("waiting")
        await at.press("up")
        await at.until(lambda: at.screen.composer.text == "waiting")
        await at.type("!")
        await at.press("enter")
        await at.sees("waiting!")
        assert "(edited)" not in at.shown, "it never left as it was"
        await choose(at, "before")
        await at.press("e")
        await at.until(lambda: at.screen.composer.text == "before")
        await at.type(" noon")
        await at.press("enter")
        await at.sees("before noon (edited)")
        assert at.mark("before noon") == "○"
        await at.until(lambda: "2 to send" in at.head)
        site.start()
        await at.until(lambda: "connected" in at.head)
        await at.until(lambda: at.mark("before noon") == at.mark("waiting!") == "✓✓")
    chat = await bob.direct("alice")
    await held(bob, chat, 3)
    assert [one.text for one in await chat.messages()] == ["before noon", "waiting!"]


async def test_message_that_is_deleted_while_it_is_edited_leaves_the_line(
    site: SteadySite, alice: Client, bob: Client, tmp_path: Path
) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        await at.write("A secret")
        await at.until(lambda: at.mark("you A secret") == "✓✓")
        await at.press("up")
        await at.until(lambda: at.screen.composer.text == "A secret")
        async with await login(site, tmp_path / "second.db", "alice") as second:
            await second.ready()
            (chat,) = await second.chats()
            await (await chat.delete(1)).stored()
            await at.sees("the message was deleted meanwhile", "[deleted]")
        await at.until(lambda: at.screen.composer.text == "" and "A secret" not in at.shown)


async def test_message_that_was_on_its_way_when_it_was_chosen_leaves_the_line_too(
    site: SteadySite, alice: Client, bob: Client, tmp_path: Path
) -> None:
    async with terminal(alice, "alice") as at:
        await at.write_to("bob")
        chat = at.screen.state.chat
        assert chat is not None
        # As arrow up does before the answer of the server is there.
        sent = await chat.send("A secret")
        at.screen._edit(sent)
        await at.until(lambda: at.screen.composer.text == "A secret")
        await at.until(lambda: at.mark("you A secret") == "✓✓")
        async with await login(site, tmp_path / "second.db", "alice") as second:
            await second.ready()
            await (await second.chat(chat.chat_id).delete(1)).stored()
            await at.sees("the message was deleted meanwhile", "[deleted]")
        assert at.screen.composer.text == ""
        assert "A secret" not in at.shown


async def test_mention_is_marked_in_the_list_and_in_the_text(
    site: SteadySite, alice: Client, bob: Client
) -> None:
    group = await bob.group("Team", "alice")
    await stored(group, "Hello")
    direct = await bob.direct("alice")
    await stored(direct, "Newer")
    # The newest chat is opened, so it has to be here.
    await held(alice, group, 1)
    await held(alice, direct, 1)
    async with terminal(alice, "alice") as at:
        await at.sees("alice · Bob", "● #Team")
        await (await group.send("@Alice, please", mentions=["alice"])).stored()
        await at.until(lambda: at.line("#Team").split("▕")[0].split() == ["@", "#Team", "2"])
        await at.press("ctrl+up")
        await at.sees("alice · Team", "@Alice, please")
        assert at.line("@Alice, please").rstrip(" ▁▂▃▄▅▆▇█").endswith("@")
        await at.until(lambda: "@ #Team" not in at.shown)
        # And the other way: who is in the group can be meant by name.
        await at.until(lambda: "Bob" in at.screen.state._members.get(group.chat_id, {}))
        await at.write("Yes @bob")
        await at.until(lambda: at.mark("Yes @bob") in ("✓", "✓✓", "✔✔"))
        await held(bob, group, 3)
        assert (await group.messages())[-1].mentions == (bob.user_id,)


async def test_everything_is_shown_plainly_at_forty_columns(alice: Client, bob: Client) -> None:
    chat = await bob.direct("alice")
    await stored(chat, "Shall we meet at the old harbour at eight?")
    await (await chat.edit(1, "Shall we meet at the new harbour at eight?")).stored()
    await stored(chat, "A mistake")
    await (await chat.delete(3)).stored()
    for emoji in ("👍", "🎉", "😂"):
        await (await chat.react(1, emoji)).stored()
    mine = await alice.direct("bob")
    await held(alice, mine, 7)
    message = await mine.message(1)
    assert message is not None
    await (await mine.reply(message, "Yes")).stored()
    async with terminal(alice, "alice", (40, 20)) as at:
        await at.sees("(edited)", "[deleted]", "👍 1", "↪ Bob: Sh")
        assert all(len(line) <= 40 for line in at.shown.splitlines())
        await choose(at, "[deleted]")
        await choose(at, "Shall")
        await at.press("enter")
        await at.sees("↪ Bob: Shall")
