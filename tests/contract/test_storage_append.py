"""MessageStore.append: once, in order, with exact chains and verdicts."""

import asyncio

import pytest

from tests.support.outcomes import chained, describe
from tests.support.world import World, taken
from tidewire.domain.errors import CounterMissing, KeyReused, NotAMember
from tidewire.domain.events import MessageAppended, PositionsAdvanced
from tidewire.domain.ids import ConnectionId, placed
from tidewire.domain.limits import APPEND_SENDS_MAX
from tidewire.domain.messages import AppendOutcome, Message

# Order and chain.


async def test_append_stores_the_message_as_it_was_given(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    draft = world.draft(chat, anna, "naïve 👍 text")
    now_ms = world.now()
    [outcome] = await world.storage.append([draft], now_ms=now_ms)
    answer = taken(outcome)
    assert (answer.sequence, answer.prev_sequence, answer.deduplicated) == (1, 0, False)
    message_id = placed(draft.message_id, 1)
    assert (answer.message_id, answer.created_at_ms) == (message_id, now_ms)
    expected = Message(
        chat_id=chat,
        sequence=1,
        prev_sequence=0,
        message_id=message_id,
        sender_id=anna,
        client_message_id=draft.client_message_id,
        content="naïve 👍 text",
        content_type="text/plain",
        created_at_ms=now_ms,
    )
    assert await world.messages(ben, chat) == [expected]
    assert await world.engine.messages(chat) == [expected]


async def test_append_numbers_each_chat_by_itself(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    one, other = await world.direct(anna, ben), await world.direct(anna, cleo)
    sequences = [(await world.send(chat, anna)).sequence for chat in (one, other, one, one, other)]
    assert sequences == [1, 1, 2, 3, 2]


async def test_append_links_every_message_to_the_one_before(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    answers = [await world.send(chat, sender) for sender in (anna, ben, ben, anna)]
    assert [(a.prev_sequence, a.sequence) for a in answers] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert chained(await world.engine.messages(chat))


async def test_append_links_over_a_hole_in_the_numbers(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.engine.set_counter(chat, 40)
    answer = await world.send(chat, ben)
    assert (answer.prev_sequence, answer.sequence) == (1, 41)
    assert chained(await world.engine.messages(chat))


async def test_append_never_gives_out_a_sequence_again_when_the_counter_fell_behind(
    world: World,
) -> None:
    """P-02: whatever the answer, what is stored stays as it is and the chain stays whole."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    before = await world.engine.messages(chat)
    await world.engine.set_counter(chat, 2)
    for _ in range(4):
        await world.try_send(chat, ben)
    after = await world.engine.messages(chat)
    assert after[:5] == before
    assert chained(after)


async def test_append_keeps_the_order_given_within_a_chat(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    drafts = [world.draft(chat, (anna, ben)[index % 2], f"{index}") for index in range(50)]
    answers = [taken(outcome) for outcome in await world.append(*drafts)]
    assert [answer.sequence for answer in answers] == list(range(1, 51))
    assert [m.content for m in await world.messages(anna, chat)] == [d.content for d in drafts]


async def test_append_takes_the_largest_batch(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    drafts = [world.draft(chat, anna) for _ in range(APPEND_SENDS_MAX)]
    outcomes = await world.append(*drafts)
    assert [taken(outcome).sequence for outcome in outcomes] == list(range(1, APPEND_SENDS_MAX + 1))
    assert chained(await world.engine.messages(chat))


async def test_append_of_nothing_is_nothing(world: World) -> None:
    assert await world.append() == []
    assert world.new_commits() == []


async def test_append_sorts_by_commit_not_by_clock_when_the_clock_jumps_back(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    [outcome] = await world.storage.append([world.draft(chat, ben)], now_ms=1)
    assert (taken(outcome).sequence, taken(outcome).created_at_ms) == (2, 1)


# Batches.


async def test_append_answers_a_mixed_batch_in_its_order(world: World) -> None:
    """Two chats, four senders, every outcome; survivors are chained without the refused."""
    anna, ben, cleo = await world.people(3)
    one, other = await world.direct(anna, ben), await world.group(anna, cleo)
    key, own = world.key(), world.key()
    first = await world.send(one, anna, "first", key=key)
    await world.send(one, ben, "own", key=own)
    world.new_commits()
    outcomes = await world.append(
        world.draft(one, ben, "new"),
        world.draft(one, cleo, "outsider"),
        world.draft(one, anna, "first", key=key),
        world.draft(other, cleo, "other chat"),
        world.draft(one, ben, "changed", key=own),
        world.draft(other, anna, "same key, other chat", key=key),
        world.draft(world.no_chat(), anna, "nowhere"),
        world.draft(one, anna, "last"),
    )
    assert describe(outcomes) == [
        "stored 3 after 2",
        "NotAMember",
        "again 1 after 0",
        "stored 1 after 0",
        "KeyReused",
        "stored 2 after 1",
        "NotAMember",
        "stored 4 after 3",
    ]
    assert taken(outcomes[2]).message_id == first.message_id
    stored = [e.message.content for e in world.new_events() if isinstance(e, MessageAppended)]
    if world.storage.appends_per_chat:
        # Every chat is a commit of its own, and told as such.
        assert stored == ["new", "last", "other chat", "same key, other chat"]
    else:
        assert stored == ["new", "other chat", "same key, other chat", "last"]
    assert [m.content for m in await world.messages(anna, one)] == ["first", "own", "new", "last"]
    assert chained(await world.engine.messages(one))
    assert chained(await world.engine.messages(other))


async def test_append_refuses_one_key_of_two_senders_in_a_batch_of_another_chat_only(
    world: World,
) -> None:
    """A key belongs to its chat: the same one elsewhere is free."""
    anna, ben, cleo = await world.people(3)
    one, other = await world.direct(anna, ben), await world.direct(ben, cleo)
    key = world.key()
    outcomes = await world.append(
        world.draft(one, anna, key=key), world.draft(other, cleo, "x", key=key)
    )
    assert describe(outcomes) == ["stored 1 after 0", "stored 1 after 0"]


# Idempotency and the order of the verdicts.


async def test_append_returns_the_first_answer_to_every_retry(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, ben)
    key = world.key()
    first = await world.send(chat, anna, "once", key=key)
    await world.send(chat, ben)
    world.new_commits()
    counter = await world.engine.counter(chat)
    for _ in range(3):
        again = await world.send(chat, anna, "once", key=key)
        assert again.deduplicated
        assert (again.message_id, again.sequence) == (first.message_id, first.sequence)
        assert (again.prev_sequence, again.created_at_ms) == (
            first.prev_sequence,
            first.created_at_ms,
        )
    assert world.new_commits() == []
    assert len(await world.engine.messages(chat)) == 3
    assert await world.engine.counter(chat) == counter


@pytest.mark.parametrize("other", ["second", "First", "first ", "ﬁrst"])
async def test_append_refuses_the_own_key_with_other_content(world: World, other: str) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    key = world.key()
    first = await world.send(chat, anna, "first", key=key)
    outcome = await world.try_send(chat, anna, other, key=key)
    assert isinstance(outcome, KeyReused)
    assert outcome.original is not None
    assert (outcome.original.sequence, outcome.original.message_id) == (1, first.message_id)
    assert outcome.original.created_at_ms == first.created_at_ms
    assert [m.content for m in await world.messages(ben, chat)] == ["first"]
    assert await world.engine.counter(chat) == 1


@pytest.mark.parametrize("content", ["first", "second"])
async def test_append_refuses_the_key_of_another_member_without_details(
    world: World, content: str
) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    key = world.key()
    await world.send(chat, anna, "first", key=key)
    outcome = await world.try_send(chat, ben, content, key=key)
    assert isinstance(outcome, KeyReused)
    assert outcome.original is None
    assert outcome.details == {}
    assert await world.engine.counter(chat) == 1


async def test_append_tells_an_outsider_nothing_about_a_key(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.direct(anna, ben)
    key = world.key()
    await world.send(chat, anna, "first", key=key)
    assert isinstance(await world.try_send(chat, cleo, "first", key=key), NotAMember)
    assert isinstance(await world.try_send(chat, cleo, "first"), NotAMember)


async def test_append_answers_a_retry_after_the_sender_was_removed(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    key = world.key()
    first = await world.send(chat, ben, "mine", key=key)
    await world.remove(anna, chat, ben)
    again = await world.send(chat, ben, "mine", key=key)
    assert (again.sequence, again.message_id, again.deduplicated) == (1, first.message_id, True)
    reused = await world.try_send(chat, ben, "other", key=key)
    assert isinstance(reused, KeyReused)
    assert reused.original is not None
    assert isinstance(await world.try_send(chat, ben, "new"), NotAMember)


async def test_append_refuses_the_key_of_somebody_who_has_left(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    key = world.key()
    await world.send(chat, ben, key=key)
    await world.leave(ben, chat)
    outcome = await world.try_send(chat, anna, key=key)
    assert isinstance(outcome, KeyReused)
    assert outcome.original is None


async def test_append_refuses_who_is_not_a_member_and_writes_nothing(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    world.new_commits()
    assert isinstance(await world.try_send(chat, cleo), NotAMember)
    assert isinstance(await world.try_send(chat, world.stranger()), NotAMember)
    assert isinstance(await world.try_send(world.no_chat(), anna), NotAMember)
    assert await world.engine.messages(chat) == []
    assert await world.engine.counter(chat) == 0
    assert world.new_commits() == []


@pytest.mark.parametrize("way", ["removed", "left"])
async def test_append_refuses_a_former_member_from_the_instant_of_going(
    world: World, way: str
) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, ben)
    await (world.leave(ben, chat) if way == "left" else world.remove(anna, chat, ben))
    assert isinstance(await world.try_send(chat, ben), NotAMember)
    await world.add(anna, chat, ben)
    assert (await world.send(chat, ben)).sequence == 2


async def test_append_judges_in_the_order_of_the_contract(world: World) -> None:
    """Own key, membership, counter, somebody else's key: each hides what comes after it."""
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    annas, bens = world.key(), world.key()
    await world.send(chat, anna, "a", key=annas)
    await world.send(chat, ben, "b", key=bens)
    await world.remove(anna, chat, ben)
    await world.engine.drop_counter(chat)
    outcomes = await world.append(world.draft(chat, anna, "a", key=annas))
    outcomes += await world.append(world.draft(chat, anna, "other", key=annas))
    # Ben is out and the counter is gone, but it is his own key.
    outcomes += await world.append(world.draft(chat, ben, "b", key=bens))
    outcomes += await world.append(world.draft(chat, ben, "other", key=bens))
    # He is out, the counter is gone, and the key is Anna's.
    outcomes += await world.append(world.draft(chat, ben, "a", key=annas))
    # Cleo is in, the counter is gone, and the key is Anna's.
    outcomes += await world.append(world.draft(chat, cleo, "a", key=annas))
    assert describe(outcomes) == [
        "again 1 after 0",
        "KeyReused",
        "again 2 after 1",
        "KeyReused",
        "NotAMember",
        "CounterMissing",
    ]


async def test_append_writes_nothing_to_a_chat_without_a_counter(world: World) -> None:
    anna, ben = await world.people(2)
    blocked, open_chat = await world.direct(anna, ben), await world.group(anna, ben)
    await world.send(blocked, anna, "before")
    await world.engine.drop_counter(blocked)
    world.new_commits()
    outcomes = await world.append(
        world.draft(blocked, anna), world.draft(open_chat, anna), world.draft(blocked, ben)
    )
    assert describe(outcomes) == ["CounterMissing", "stored 1 after 0", "CounterMissing"]
    assert isinstance(outcomes[0], CounterMissing)
    assert outcomes[0].chat_id == blocked
    assert [m.content for m in await world.messages(ben, blocked)] == ["before"]
    assert await world.engine.counter(blocked) is None
    stored = [e.message.chat_id for e in world.new_events() if isinstance(e, MessageAppended)]
    assert stored == [open_chat]


# Concurrency.


async def test_append_makes_one_message_of_the_same_key_sent_at_once(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    key = world.key()
    drafts = [world.draft(chat, anna, "once", key=key) for _ in range(8)]
    answers = [
        taken(outcome)
        for [outcome] in await asyncio.gather(*(world.append(draft) for draft in drafts))
    ]
    assert len({(a.sequence, a.message_id, a.prev_sequence, a.created_at_ms) for a in answers}) == 1
    assert [answer.deduplicated for answer in answers].count(False) == 1
    assert len(await world.engine.messages(chat)) == 1


async def test_append_keeps_chains_exact_under_many_writers(world: World) -> None:
    people = await world.people(6)
    chats = [await world.group(*people) for _ in range(3)]
    await asyncio.gather(
        *(
            world.append(*(world.draft(chat, person) for chat in chats))
            for _ in range(5)
            for person in people
        )
    )
    for chat in chats:
        stored = await world.engine.messages(chat)
        assert len(stored) == 30
        assert chained(stored)
        if not world.engine.leaves_gaps:
            assert [message.sequence for message in stored] == list(range(1, 31))


async def test_append_races_with_removal_and_one_of_them_is_first(world: World) -> None:
    """M-05: a message that was stored was stored before the removal, by the events' order too."""
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    world.new_commits()

    async def remove() -> list[AppendOutcome]:
        await world.remove(anna, chat, ben)
        return []

    sends = [world.append(world.draft(chat, ben)) for _ in range(10)]
    answers = await asyncio.gather(*sends[:5], remove(), *sends[5:])
    outcomes = [outcome for answer in answers for outcome in answer]
    stored = [outcome for outcome in outcomes if not isinstance(outcome, NotAMember)]
    assert len(outcomes) == 10
    kinds = [type(event).__name__ for event in world.new_events()]
    assert kinds.index("MembershipChanged") == len(stored) == kinds.count("MessageAppended")


# The author's positions: decision 0006, in the same act.


async def test_append_keeps_an_author_who_is_up_to_date_up_to_date(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.send(chat, anna)
    entry = await world.entry(anna, chat)
    assert (entry.delivered, entry.read, entry.unread) == (2, 2, 0)
    assert (await world.entry(ben, chat)).unread == 2


async def test_append_leaves_an_author_behind_who_had_not_received_all(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, ben)
    await world.send(chat, ben)
    await world.ack(anna, chat, 1)
    await world.send(chat, anna)
    positions = await world.positions(anna, chat)
    # The reply reads what had reached her, and not what had not.
    assert (positions.delivered, positions.read) == (1, 1)


async def test_append_marks_read_what_had_reached_the_author(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, ben, 3)
    await world.ack(anna, chat, 3)
    world.new_commits()
    answer = await world.send(chat, anna)
    positions = await world.positions(anna, chat)
    assert (positions.delivered, positions.read) == (answer.sequence, answer.sequence)
    assert [event for event in world.new_events() if isinstance(event, PositionsAdvanced)] == [
        PositionsAdvanced(chat, anna, positions)
    ]


@pytest.mark.parametrize(("seen", "read"), [(0, 0), (2, 2), (3, 4), (900, 4), (None, 4)])
async def test_append_marks_read_no_more_than_was_seen(
    world: World, seen: int | None, read: int
) -> None:
    """Three messages have reached her; who has seen the last one is up to date with the fourth."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, ben, 3)
    await world.ack(anna, chat, 3)
    await world.send(chat, anna, seen=seen)
    assert (await world.positions(anna, chat)).read == read


async def test_append_never_lowers_a_position_by_what_was_seen(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, ben, 5)
    await world.read(anna, chat, 4)
    await world.send(chat, anna, seen=1)
    positions = await world.positions(anna, chat)
    assert (positions.delivered, positions.read) == (4, 4)


async def test_append_counts_a_joiner_as_up_to_date(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna)
    await world.send_many(chat, anna, 3)
    await world.add(anna, chat, ben)
    await world.send(chat, ben)
    positions = await world.positions(ben, chat)
    assert (positions.delivered, positions.read) == (4, 4)


async def test_append_moves_every_author_of_a_batch_in_its_order(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.append(*(world.draft(chat, who) for who in (anna, anna, ben, anna)))
    annas, bens = await world.positions(anna, chat), await world.positions(ben, chat)
    # Ben had not received Anna's two; Anna had not received Ben's.
    assert (annas.delivered, annas.read) == (2, 2)
    assert (bens.delivered, bens.read) == (0, 0)


async def test_append_does_not_move_positions_by_a_retry(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    key = world.key()
    await world.send(chat, anna, key=key)
    await world.send(chat, ben)
    await world.ack(anna, chat, 2)
    world.new_commits()
    await world.send(chat, anna, key=key)
    positions = await world.positions(anna, chat)
    assert (positions.delivered, positions.read) == (2, 1)
    assert world.new_commits() == []


# Events.


async def test_append_tells_each_message_with_its_roster_version_and_origin(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.add(anna, chat, cleo)
    version = (await world.chat(anna, chat)).membership_version
    world.new_commits()
    origin = ConnectionId("conn_1")
    await world.append(world.draft(chat, cleo, connection=origin), world.draft(chat, cleo, "two"))
    [commit] = world.new_commits()
    appended = [event for event in commit if isinstance(event, MessageAppended)]
    assert [event.message for event in appended] == await world.messages(anna, chat)
    assert [event.membership_version for event in appended] == [version, version]
    assert [event.origin_connection_id for event in appended] == [origin, None]


async def test_append_tells_of_no_read_when_the_author_was_up_to_date(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    world.new_commits()
    await world.send(chat, anna)
    await world.send(chat, anna)
    assert [type(event) for event in world.new_events()] == [MessageAppended, MessageAppended]
