"""Entries that change messages: edits, deletions, reactions, replies and mentions, in every engine.

The rules themselves are tested once, in tests/unit/domain/test_amendments.py; here it is shown that
an engine fetches what they ask for, and writes what they decide, in one act.
"""

from tests.support.outcomes import chained, describe
from tests.support.world import World, taken
from tidewire.domain.chats import Role
from tidewire.domain.errors import (
    EditConflict,
    Forbidden,
    InvalidMention,
    KeyReused,
    MessageDeleted,
    NotAMember,
    TargetNotFound,
    TooManyEdits,
    TooManyReactions,
)
from tidewire.domain.events import MessageAppended, PositionsAdvanced
from tidewire.domain.fold import AS_WRITTEN, fold
from tidewire.domain.ids import SYSTEM
from tidewire.domain.limits import EDITS_MAX, REACTION_KINDS_MAX
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind

# Edits.


async def test_edit_is_an_entry_of_its_own(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    first = await world.send(chat, anna, "frist")
    answer = await world.store(world.edit(chat, anna, first.sequence, "first"))
    assert (answer.sequence, answer.prev_sequence) == (2, 1)
    message, edit = await world.messages(ben, chat)
    assert (message.content, message.amends) == ("frist", None)
    assert (edit.content, edit.sender_id, edit.kind) == ("first", anna, EntryKind.EDIT)
    assert edit.amends == Amendment(kind=EntryKind.EDIT, target=first.sequence)
    assert await world.engine.messages(chat) == [message, edit]
    now = await world.now_of(ben, chat, first.sequence)
    assert (now.content, now.edited_sequence, now.is_deleted) == ("first", 2, False)


async def test_last_edit_wins_whatever_device_it_came_from(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    first = await world.send(chat, anna, "one")
    outcomes = await world.append(
        world.edit(chat, anna, first.sequence, "two", base=0),
        world.edit(chat, anna, first.sequence, "three", base=0),
        world.edit(chat, anna, first.sequence, "four"),
    )
    assert isinstance(outcomes[1], EditConflict)
    assert (outcomes[1].content, outcomes[1].edited_by) == ("two", 2)
    assert taken(outcomes[2]).sequence == 3
    assert (await world.now_of(ben, chat, 1)).content == "four"
    conflict = await world.refusal(world.edit(chat, anna, 1, "five", base=2))
    assert isinstance(conflict, EditConflict)
    assert conflict.content == "four"
    await world.store(world.edit(chat, anna, 1, "five", base=3))
    assert chained(await world.engine.messages(chat))


async def test_edit_is_refused_for_what_it_is_about(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat, other = await world.group(anna, ben), await world.direct(anna, cleo)
    await world.send(chat, ben, "of ben")
    await world.store(world.reaction(chat, anna, 1))
    await world.send(other, anna, "elsewhere")
    assert isinstance(await world.refusal(world.edit(chat, anna, 1)), Forbidden)
    assert isinstance(await world.refusal(world.edit(chat, ben, 2)), TargetNotFound)
    assert isinstance(await world.refusal(world.edit(chat, ben, 7)), TargetNotFound)
    assert isinstance(await world.refusal(world.edit(other, cleo, 2)), TargetNotFound)
    assert isinstance(await world.refusal(world.edit(chat, cleo, 1)), NotAMember)
    assert len(await world.engine.messages(chat)) == 2


async def test_edits_of_a_message_are_bounded(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    for index in range(EDITS_MAX):
        await world.store(world.edit(chat, anna, 1, f"edit {index}"))
    assert isinstance(await world.refusal(world.edit(chat, anna, 1)), TooManyEdits)
    await world.store(world.deletion(chat, anna, 1))
    entries = await world.engine.messages(chat)
    assert [one.content for one in entries] == [""] * (EDITS_MAX + 2)
    assert chained(entries)


async def test_retry_of_an_amendment_gets_its_first_answer(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    keys = [world.key() for _ in range(3)]
    drafts = [
        world.edit(chat, anna, 1, "new", key=keys[0]),
        world.reaction(chat, anna, 1, key=keys[1]),
        world.deletion(chat, anna, 1, key=keys[2]),
    ]
    first = [await world.store(draft) for draft in drafts]
    await world.remove(anna, chat, ben)
    again = await world.append(
        # After the deletion there is nothing left to compare an edit with.
        world.edit(chat, anna, 1, "new", key=keys[0]),
        world.reaction(chat, anna, 1, key=keys[1]),
        world.deletion(chat, anna, 1, key=keys[2]),
    )
    assert [taken(one).deduplicated for one in again] == [True] * 3
    assert [taken(one).sequence for one in again] == [one.sequence for one in first]
    other = await world.refusal(world.reaction(chat, anna, 1, "🎉", key=keys[1]))
    assert isinstance(other, KeyReused)
    assert other.original is not None
    assert isinstance(await world.refusal(world.draft(chat, anna, "new", key=keys[1])), KeyReused)


# Deletions.


async def test_deletion_erases_the_message_and_its_edits(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    key = world.key()
    first = await world.send(chat, anna, "secret", key=key)
    await world.store(world.edit(chat, anna, 1, "still secret"))
    await world.store(world.reaction(chat, ben, 1))
    world.new_commits()
    answer = await world.store(world.deletion(chat, anna, 1, reason="a mistake"))
    assert answer.sequence == 4
    entries = await world.messages(ben, chat)
    assert entries == await world.engine.messages(chat)
    assert chained(entries)
    assert [(one.content, one.deleted_by) for one in entries] == [
        ("", 4),
        ("", 4),
        ("", None),
        ("", None),
    ]
    assert entries[3].amends == Amendment(kind=EntryKind.DELETE, target=1, reason="a mistake")
    [event] = [one for one in world.new_events() if isinstance(one, MessageAppended)]
    assert event.message == entries[3]
    now = await world.now_of(ben, chat, 1)
    assert (now.content, now.deleted_sequence, now.reactions) == (None, 4, ())
    page = await world.storage.messages_before(anna, chat, None, count_max=10, bytes_max=10_000)
    assert all(one.content == "" for one in page.messages)
    found = await world.storage.message(anna, chat, first.message_id)
    assert (found.content, found.is_deleted) == ("", True)
    # The key goes on answering, whatever comes under it.
    again = await world.send(chat, anna, "secret", key=key)
    assert (again.sequence, again.deduplicated) == (1, True)
    again = await world.send(chat, anna, "something else", key=key)
    assert (again.sequence, again.deduplicated) == (1, True)


async def test_deletion_is_final(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, ben)
    await world.store(world.deletion(chat, ben, 1))
    for draft in (
        world.edit(chat, ben, 1),
        world.deletion(chat, ben, 1),
        world.deletion(chat, anna, 1),
        world.reaction(chat, anna, 1),
        world.reaction(chat, anna, 1, is_on=False),
    ):
        refusal = await world.refusal(draft)
        assert isinstance(refusal, MessageDeleted)
        assert refusal.details == {"deleted_sequence": 2}


async def test_deletion_and_what_it_meets_in_one_batch(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, ben, "secret")
    outcomes = await world.append(
        world.edit(chat, ben, 1, "still secret"),
        world.reaction(chat, anna, 1),
        world.deletion(chat, anna, 1),
        world.edit(chat, ben, 1, "again secret"),
        world.reaction(chat, ben, 1),
        world.draft(chat, ben, "a reply", reply_to=1),
    )
    assert describe(outcomes) == [
        "stored 2 after 1",
        "stored 3 after 2",
        "stored 4 after 3",
        "MessageDeleted",
        "MessageDeleted",
        "stored 5 after 4",
    ]
    entries = await world.engine.messages(chat)
    assert [one.content for one in entries] == ["", "", "", "", "a reply"]
    assert chained(entries)


async def test_admins_delete_what_others_wrote_and_members_do_not(world: World) -> None:
    anna, ben, cleo, dora = await world.people(4)
    chat = await world.group(anna, ben, cleo, dora)
    await world.change_role(anna, chat, ben, Role.ADMIN)
    await world.send(chat, dora)
    await world.send(chat, anna)
    assert isinstance(await world.refusal(world.deletion(chat, cleo, 1)), Forbidden)
    first = world.deletion(chat, ben, 1)
    assert (await world.store(first)).moderated == dora, "for the audit trail"
    assert (await world.store(first)).moderated is None, "it is noted once"
    assert (await world.store(world.deletion(chat, ben, 2))).moderated == anna
    await world.send(chat, ben)
    assert (await world.store(world.deletion(chat, ben, 5))).moderated is None
    direct = await world.direct(anna, ben)
    await world.send(direct, ben)
    assert isinstance(await world.refusal(world.deletion(direct, anna, 1)), Forbidden)


async def test_system_deletes_past_membership(world: World) -> None:
    anna, ben = await world.people(2)
    chat, direct = await world.group(anna, ben), await world.direct(anna, ben)
    await world.send(chat, ben, "secret")
    await world.send(chat, anna)
    await world.send(direct, ben, "secret")
    await world.remove(anna, chat, ben)
    assert await world.storage.chats_of_author(ben, after=None, count_max=10) == sorted(
        [chat, direct]
    )
    assert await world.storage.chats_of_author(ben, after=min(chat, direct), count_max=1) == [
        max(chat, direct)
    ]
    assert await world.storage.messages_by(ben, chat, after=0, count_max=10) == [1]
    before = await world.positions(anna, chat)
    await world.store(world.deletion(chat, SYSTEM, 1))
    assert await world.positions(anna, chat) == before
    assert await world.storage.messages_by(ben, chat, after=0, count_max=10) == []
    assert await world.storage.messages_by(ben, direct, after=1, count_max=10) == []
    entries = await world.messages(anna, chat)
    assert (entries[0].content, entries[0].is_deleted, entries[2].sender_id) == ("", True, SYSTEM)


# Reactions.


async def test_reactions_are_a_set_and_counts_are_counted(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.send(chat, anna)
    counts = []
    for user_id, emoji, is_on in (
        (anna, "👍", True),
        (ben, "👍", True),
        (ben, "👍", True),
        (ben, "🎉", True),
        (cleo, "👍", False),
        (anna, "👍", False),
        (ben, "🎉", False),
        (anna, "👍", True),
    ):
        answer = await world.store(world.reaction(chat, user_id, 1, emoji, is_on=is_on))
        entry = (await world.messages(anna, chat, answer.prev_sequence))[0]
        counts.append(entry.count)
    assert counts == [1, 2, 2, 1, 2, 1, 0, 2]
    now = await world.now_of(ben, chat, 1)
    thumb, party = sorted(now.reactions, key=lambda one: one.emoji == "🎉")
    assert (thumb.count, thumb.sequence, thumb.is_own, thumb.own_sequence) == (2, 9, True, 4)
    assert set(thumb.users) == {anna, ben}
    assert (party.count, party.is_own, party.own_sequence) == (0, False, 8)
    assert now.shown_reactions == (thumb,)
    mine = {one.emoji: one for one in (await world.now_of(anna, chat, 1)).reactions}
    assert (mine["👍"].is_own, mine["👍"].own_sequence) == (True, 9)
    assert mine["🎉"].own_sequence == 0


async def test_kinds_of_reactions_are_bounded(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    for index in range(REACTION_KINDS_MAX):
        await world.store(world.reaction(chat, ben, 1, f":{index}:"))
    refusal = await world.refusal(world.reaction(chat, anna, 1, ":more:"))
    assert isinstance(refusal, TooManyReactions)
    await world.store(world.reaction(chat, anna, 1, ":3:"))
    await world.store(world.reaction(chat, ben, 1, ":4:", is_on=False))
    await world.store(world.reaction(chat, anna, 1, ":more:"))
    now = await world.now_of(anna, chat, 1)
    assert len(now.shown_reactions) == REACTION_KINDS_MAX


async def test_what_messages_are_now_is_the_fold_of_the_entries(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    for text in ("one", "two", "three", "four"):
        await world.send(chat, anna, text)
    await world.append(
        world.edit(chat, anna, 1, "uno"),
        world.reaction(chat, ben, 2, "👍"),
        world.reaction(chat, anna, 2, "👍"),
        world.reaction(chat, ben, 2, "👍", is_on=False),
        world.edit(chat, anna, 3, "tre"),
        world.reaction(chat, ben, 3, "🎉"),
        world.deletion(chat, ben, 3),
        world.deletion(chat, anna, 3),
        world.edit(chat, anna, 1, "eins"),
    )
    for reader in (anna, ben):
        folded = dict.fromkeys(range(1, 5), AS_WRITTEN)
        for entry in await world.messages(reader, chat):
            if entry.amends is not None:
                folded[entry.amends.target] = fold(folded[entry.amends.target], entry, reader)
        changed = {sequence: now for sequence, now in folded.items() if now != AS_WRITTEN}
        found = await world.storage.messages_now(reader, chat, range(1, 14))
        assert found == changed
        assert set(found) == {1, 2, 3}


# Replies and mentions.


async def test_reply_names_a_message_of_its_chat(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat, other = await world.direct(anna, ben), await world.direct(anna, cleo)
    await world.send(chat, anna)
    await world.send_many(other, anna, 5)
    await world.store(world.draft(chat, ben, "yes", reply_to=1))
    await world.store(world.edit(chat, ben, 2, "no"))
    assert isinstance(await world.refusal(world.draft(chat, ben, reply_to=3)), TargetNotFound)
    assert isinstance(await world.refusal(world.draft(chat, ben, reply_to=4)), TargetNotFound)
    await world.store(world.deletion(chat, anna, 1))
    await world.store(world.draft(chat, ben, "what was it?", reply_to=1))
    entries = await world.messages(anna, chat)
    assert [one.reply_to for one in entries] == [None, 1, None, None, 1]
    assert entries == await world.engine.messages(chat)


async def test_mentions_are_members_at_that_instant(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.store(world.draft(chat, anna, mentions=(cleo, ben)))
    await world.leave(cleo, chat)
    refusal = await world.refusal(world.draft(chat, anna, mentions=(ben, cleo)))
    assert isinstance(refusal, InvalidMention)
    assert refusal.details == {"user_ids": [cleo]}
    assert isinstance(
        await world.refusal(world.draft(chat, anna, mentions=(world.stranger(),))), InvalidMention
    )
    assert isinstance(
        await world.refusal(world.draft(chat, ben, mentions=(MENTION_ALL,))), Forbidden
    )
    await world.store(world.draft(chat, anna, mentions=(MENTION_ALL,)))
    entries = await world.messages(ben, chat)
    assert [one.mentions for one in entries] == [(cleo, ben), (MENTION_ALL,)]
    assert entries == await world.engine.messages(chat)


async def test_unread_and_mentions_count_messages_of_others_that_are_there(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.send(chat, anna)
    await world.store(world.draft(chat, anna, mentions=(ben,)))
    await world.store(world.draft(chat, anna, mentions=(MENTION_ALL,)))
    await world.store(world.draft(chat, anna, mentions=(cleo,)))
    await world.store(world.edit(chat, anna, 1))
    await world.store(world.reaction(chat, cleo, 1))
    entry = await world.entry(ben, chat)
    assert (entry.head, entry.unread, entry.mentions_unread) == (6, 4, 2)
    await world.store(world.deletion(chat, anna, 2))
    entry = await world.entry(ben, chat)
    assert (entry.head, entry.unread, entry.mentions_unread) == (7, 3, 1)
    await world.read(ben, chat, 1)
    assert (await world.entry(ben, chat)).unread == 2
    await world.read(ben, chat, 3)
    entry = await world.entry(ben, chat)
    assert (entry.unread, entry.mentions_unread) == (1, 0)
    entry = await world.entry(anna, chat)
    assert (entry.unread, entry.mentions_unread) == (0, 0)
    standing = await world.storage.standing(cleo, chat)
    assert standing is not None
    assert (standing.unread, standing.mentions_unread) == (3, 2)


async def test_many_reactions_hide_no_unread_message(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    for _ in range(3):
        await world.append(
            *(world.reaction(chat, anna, 1, is_on=bool(index % 2)) for index in range(400))
        )
    await world.send(chat, anna)
    assert (await world.entry(ben, chat)).unread == 2


# Positions, previews.


async def test_amendment_moves_nothing_but_its_authors_own_position(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.send(chat, ben)
    await world.ack(ben, chat, 1)
    await world.send_many(chat, anna, 3)
    await world.ack(ben, chat, 5)
    world.new_commits()
    before = await world.positions(ben, chat)
    await world.store(world.edit(chat, ben, 2))
    after = await world.positions(ben, chat)
    # Delivered was at the head; what was not read before stays unread.
    assert (after.delivered, after.read) == (6, before.read)
    assert not [one for one in world.new_events() if isinstance(one, PositionsAdvanced)]
    await world.read(ben, chat, 6)
    await world.store(world.reaction(chat, ben, 1))
    after = await world.positions(ben, chat)
    assert (after.delivered, after.read) == (7, 7)


async def test_chat_list_shows_the_last_message_as_it_is_now(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    one, other = await world.direct(anna, ben), await world.direct(anna, cleo)
    await world.send(one, ben, "first")
    await world.send(other, cleo, "later")
    await world.store(world.reaction(one, anna, 1))
    await world.store(world.edit(one, ben, 1, "edited"))
    page = await world.storage.chat_list(anna, cursor=None, count_max=10)
    assert [item.chat.chat_id for item in page.items] == [other, one]
    shown = page.items[1].last_message
    assert shown is not None
    assert (shown.sequence, shown.preview, shown.is_deleted) == (1, "edited", False)
    assert (page.items[1].chat.head, page.items[1].unread) == (3, 1)
    await world.store(world.deletion(one, ben, 1))
    page = await world.storage.chat_list(anna, cursor=None, count_max=10)
    shown = page.items[1].last_message
    assert shown is not None
    assert (shown.sequence, shown.preview, shown.is_deleted) == (1, "", True)
    assert page.items[1].unread == 0
