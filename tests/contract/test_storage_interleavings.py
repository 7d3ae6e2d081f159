"""Ten ways in which messages that change meet each other, by hand, in every engine.

Those that are about sockets and devices stand with the gateway's and the client's tests.
"""

import asyncio

from tests.support.outcomes import chained, describe
from tests.support.world import World
from tidewire.domain.errors import (
    EditConflict,
    InvalidMention,
    MessageDeleted,
    NotAMember,
    TargetNotFound,
)
from tidewire.domain.messages import EntryKind


async def test_edit_meets_delete(world: World) -> None:
    """At once, from two devices: one of them comes second, and no text is left."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna, "secret")
    edit, deletion = world.edit(chat, anna, 1, "still secret"), world.deletion(chat, anna, 1)
    (edited,), (deleted,) = await asyncio.gather(world.append(edit), world.append(deletion))
    assert describe([deleted])[0].startswith("stored")
    assert isinstance(edited, MessageDeleted) or describe([edited])[0].startswith("stored")
    entries = await world.messages(ben, chat)
    assert {one.content for one in entries} == {""}
    assert chained(entries)
    assert (await world.now_of(ben, chat, 1)).is_deleted


async def test_two_edits_from_two_devices(world: World) -> None:
    """Both saw the first text: one is stored, the other is told what is there now."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna, "first")
    texts = ["by phone", "by laptop"]
    answers = await asyncio.gather(
        *(world.append(world.edit(chat, anna, 1, text, base=0)) for text in texts)
    )
    [conflict] = [one for (one,) in answers if isinstance(one, EditConflict)]
    now = await world.now_of(ben, chat, 1)
    assert now.content in texts
    assert (conflict.content, conflict.edited_by) == (now.content, now.edited_sequence)


async def test_edit_of_a_message_that_is_not_stored_yet(world: World) -> None:
    """A client waits for the number: a guess finds nothing, not even beside the message."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    outcomes = await world.append(world.edit(chat, anna, 1), world.draft(chat, anna))
    assert describe(outcomes) == ["TargetNotFound", "stored 1 after 0"]
    await world.store(world.edit(chat, anna, 1, "now"))
    assert (await world.now_of(ben, chat, 1)).content == "now"


async def test_react_unreact_react(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    for is_on in (True, False, True):
        await world.store(world.reaction(chat, ben, 1, is_on=is_on))
    assert [one.count for one in await world.messages(anna, chat, 1)] == [1, 0, 1]
    [reaction] = (await world.now_of(ben, chat, 1)).reactions
    assert (reaction.count, reaction.sequence, reaction.is_own) == (1, 4, True)


async def test_delete_while_another_syncs(world: World) -> None:
    """A page from before has the text, the next one has the deletion; a page after has neither."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna, "secret")
    await world.send(chat, anna, "other")
    [first] = (
        await world.storage.messages_after(ben, chat, 0, count_max=1, bytes_max=1_000)
    ).messages
    assert first.content == "secret"
    await world.store(world.deletion(chat, anna, 1))
    rest = await world.messages(ben, chat, 1)
    assert [one.kind for one in rest] == [EntryKind.MESSAGE, EntryKind.DELETE]
    assert rest[0].prev_sequence == first.sequence
    assert (await world.messages(ben, chat))[0].content == ""


async def test_edit_by_a_member_who_was_removed_meanwhile(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    key = world.key()
    await world.send(chat, ben, "mine")
    await world.store(world.edit(chat, ben, 1, "edited", key=key))
    await world.remove(anna, chat, ben)
    assert isinstance(await world.refusal(world.edit(chat, ben, 1, "again")), NotAMember)
    again = await world.store(world.edit(chat, ben, 1, "edited", key=key))
    assert (again.sequence, again.deduplicated) == (2, True)
    assert (await world.now_of(anna, chat, 1)).content == "edited"


async def test_retry_of_an_edit_after_the_deletion(world: World) -> None:
    """It was stored, so it gets its first answer, and puts no text back."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    key = world.key()
    await world.send(chat, anna, "secret")
    first = await world.store(world.edit(chat, anna, 1, "still secret", key=key))
    await world.store(world.deletion(chat, anna, 1))
    again = await world.store(world.edit(chat, anna, 1, "still secret", key=key))
    assert (again.sequence, again.deduplicated) == (first.sequence, True)
    assert isinstance(await world.refusal(world.edit(chat, anna, 1, "new")), MessageDeleted)
    assert {one.content for one in await world.messages(ben, chat)} == {""}


async def test_mention_of_a_member_who_just_left(world: World) -> None:
    """Refused with the names; the same key is free for the same text without them."""
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    key = world.key()
    await world.leave(cleo, chat)
    refusal = await world.refusal(world.draft(chat, anna, "you", mentions=(ben, cleo), key=key))
    assert isinstance(refusal, InvalidMention)
    assert refusal.user_ids == (cleo,)
    await world.store(world.draft(chat, anna, "you", mentions=(ben,), key=key))
    assert (await world.entry(ben, chat)).mentions_unread == 1


async def test_reply_to_a_tombstone(world: World) -> None:
    """It was written before, or speaks about it; a deletion itself is nothing to reply to."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna, "secret")
    await world.store(world.deletion(chat, anna, 1))
    await world.store(world.draft(chat, ben, "what was it?", reply_to=1))
    assert isinstance(await world.refusal(world.draft(chat, ben, reply_to=2)), TargetNotFound)
    *_, reply = await world.messages(anna, chat)
    assert (reply.reply_to, reply.content) == (1, "what was it?")
