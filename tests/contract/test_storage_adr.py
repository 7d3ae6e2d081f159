"""The scenarios of ADR-004, appendix D, and the rows of ADR-001, appendix B, by their names.

Where ADR-004 shows a gap that an engine without gaps cannot leave, the answers are asserted and the
docstring says so.
"""

import asyncio

import pytest

from tests.support.outcomes import chained
from tests.support.world import World, taken
from tidewire.domain.errors import CounterMissing, KeyReused
from tidewire.domain.ids import ChatId, UserId


async def chat_a(world: World, *, counter: int = 0) -> tuple[ChatId, UserId, UserId]:
    """Chat "A" of two people, its counter standing where the scenario wants it."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    if counter:
        await world.engine.set_counter(chat, counter)
    return chat, anna, ben


# ADR-004, appendix D.


async def test_adr004_scenario_1_basic_sequence_allocation(world: World) -> None:
    chat, anna, _ = await chat_a(world, counter=10)
    key = world.key()
    answer = await world.send(chat, anna, key=key)
    assert answer.sequence == 11
    assert await world.engine.counter(chat) == 11
    [stored] = await world.engine.messages(chat)
    assert (stored.sequence, stored.client_message_id) == (11, key)
    # The idempotency key is there and agrees.
    again = await world.send(chat, anna, key=key)
    assert (again.sequence, again.message_id) == (11, stored.message_id)


async def test_adr004_scenario_2_idempotent_retry(world: World) -> None:
    chat, anna, _ = await chat_a(world, counter=10)
    key = world.key()
    first = await world.send(chat, anna, key=key)
    before = await world.engine.messages(chat)
    again = await world.send(chat, anna, key=key)
    assert (again.sequence, again.deduplicated) == (11, True)
    assert (again.message_id, again.created_at_ms) == (first.message_id, first.created_at_ms)
    assert await world.engine.counter(chat) == 11
    assert await world.engine.messages(chat) == before


async def test_adr004_scenario_3_concurrent_writers(world: World) -> None:
    """An engine that may leave gaps can use up more numbers, but never one twice."""
    chat, anna, ben = await chat_a(world, counter=10)
    outcomes = await asyncio.gather(
        *(world.append(world.draft(chat, sender)) for sender in (anna, ben, anna))
    )
    sequences = sorted(taken(outcome).sequence for [outcome] in outcomes)
    stored = await world.engine.messages(chat)
    assert [message.sequence for message in stored] == sequences
    assert chained(stored)
    assert len({message.message_id for message in stored}) == 3
    counter = await world.engine.counter(chat)
    assert counter is not None
    assert counter >= sequences[-1]
    if not world.engine.leaves_gaps:
        assert (sequences, counter) == ([11, 12, 13], 13)


async def test_adr004_scenario_4_race_condition_on_idempotency(world: World) -> None:
    """The ADR ends with a gap at 11 and the message at 12.

    An engine that decides dedup and sequence in one act cannot leave that gap: its message is 11.
    The answers are the same: both requests get the sequence of the one message.
    """
    chat, anna, _ = await chat_a(world, counter=10)
    key = world.key()
    outcomes = await asyncio.gather(
        *(world.append(world.draft(chat, anna, "once", key=key)) for _ in range(2))
    )
    one, other = (taken(outcome) for [outcome] in outcomes)
    [stored] = await world.engine.messages(chat)
    assert one.sequence == other.sequence == stored.sequence
    assert one.message_id == other.message_id == stored.message_id
    assert {one.deduplicated, other.deduplicated} == {True, False}
    counter = await world.engine.counter(chat)
    if world.engine.leaves_gaps:
        assert stored.sequence in (11, 12)
        assert counter in (11, 12)
    else:
        assert (stored.sequence, counter) == (11, 11)


async def test_adr004_scenario_5_failure_after_allocation(world: World) -> None:
    """The crash is set up by hand, as an allocation of 11 without a message.

    An engine that writes both in one act cannot leave it behind, but a restored or recovered
    counter can, and every engine must go on from there.
    """
    chat, anna, _ = await chat_a(world, counter=10)
    draft = world.draft(chat, anna)
    await world.engine.set_counter(chat, 11)
    await world.engine.reopen()
    assert await world.engine.messages(chat) == []
    [outcome] = await world.append(draft)
    answer = taken(outcome)
    assert (answer.sequence, answer.prev_sequence, answer.deduplicated) == (12, 0, False)
    assert await world.engine.counter(chat) == 12
    assert [message.sequence for message in await world.engine.messages(chat)] == [12]


async def test_adr004_scenario_6_new_chat_first_message(world: World) -> None:
    chat, anna, _ = await chat_a(world)
    assert await world.engine.counter(chat) == 0
    answer = await world.send(chat, anna)
    assert (answer.sequence, answer.prev_sequence) == (1, 0)
    assert await world.engine.counter(chat) == 1
    assert [message.sequence for message in await world.engine.messages(chat)] == [1]


async def test_adr004_scenario_7_counter_missing(world: World) -> None:
    """Write-blocked, never recreated in silence; everything else goes on."""
    chat, anna, ben = await chat_a(world)
    key = world.key()
    await world.send(chat, anna, key=key)
    await world.engine.drop_counter(chat)
    world.new_commits()
    outcome = await world.try_send(chat, ben)
    assert isinstance(outcome, CounterMissing)
    assert outcome.chat_id == chat
    assert await world.engine.counter(chat) is None
    assert len(await world.engine.messages(chat)) == 1
    assert world.new_commits() == []
    # What is there can still be read, acknowledged and answered again.
    assert len(await world.messages(ben, chat)) == 1
    assert (await world.ack(ben, chat, 1)).moved
    assert (await world.send(chat, anna, key=key)).deduplicated
    assert await world.engine.counter(chat) is None


# ADR-004, appendix C: what a caller can see of it is in the scenarios; this is the rest.


async def test_adr004_counter_must_exist(world: World) -> None:
    """Made with the chat, in the same act, for both kinds of chat."""
    anna, ben = await world.people(2)
    for chat in (await world.direct(anna, ben), await world.group(anna)):
        assert await world.engine.counter(chat) == 0


async def test_adr004_sequence_monotonicity_and_counter_lower_bound(world: World) -> None:
    chat, anna, ben = await chat_a(world)
    for index in range(6):
        await world.send(chat, (anna, ben)[index % 2])
        if index == 3:
            await world.engine.set_counter(chat, 20)
        stored = await world.engine.messages(chat)
        counter = await world.engine.counter(chat)
        assert counter is not None
        assert len(stored) <= counter
        assert stored[-1].sequence <= counter
        assert stored[0].sequence >= 1


# ADR-001, appendix B.


async def test_adr001_b_network_timeout_during_send(world: World) -> None:
    """The sender gives up while the send is on its way; the retry learns what became of it."""
    chat, anna, _ = await chat_a(world)
    key = world.key()
    attempt = asyncio.ensure_future(world.send(chat, anna, "once", key=key))
    await asyncio.sleep(0)  # Let it leave; whether it gets through is the engine's affair.
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    retry = await world.send(chat, anna, "once", key=key)
    [stored] = await world.engine.messages(chat)
    assert (stored.sequence, stored.message_id) == (retry.sequence, retry.message_id)
    assert (await world.send(chat, anna, "next")).prev_sequence == retry.sequence


async def test_adr001_b_client_crash_before_ack(world: World) -> None:
    """A restarted client sends the entry of its outbox again, with a new id by the server."""
    chat, anna, ben = await chat_a(world)
    key = world.key()
    first = await world.send(chat, anna, "once", key=key)
    await world.send(chat, ben, "meanwhile")
    again = await world.send(chat, anna, "once", key=key)
    assert (again.sequence, again.message_id, again.deduplicated) == (1, first.message_id, True)
    assert [m.content for m in await world.messages(ben, chat)] == ["once", "meanwhile"]


async def test_adr001_b_server_crash_after_persist_before_ack(world: World) -> None:
    """A new instance on the same data knows the answer. (kill -9 is in tests/crash.)"""
    chat, anna, ben = await chat_a(world)
    key = world.key()
    first = await world.send(chat, anna, "once", key=key)
    await world.engine.reopen()
    again = await world.send(chat, anna, "once", key=key)
    assert (again.sequence, again.prev_sequence) == (first.sequence, first.prev_sequence)
    assert (again.message_id, again.created_at_ms) == (first.message_id, first.created_at_ms)
    assert again.deduplicated
    assert len(await world.engine.messages(chat)) == 1
    assert (await world.send(chat, ben)).prev_sequence == first.sequence


async def test_adr001_b_client_offline_for_extended_period(world: World) -> None:
    chat, anna, ben = await chat_a(world)
    await world.send_many(chat, anna, 30)
    await world.ack(ben, chat, 30)
    for _ in range(3):
        await world.send_many(chat, anna, 100)
    await world.engine.reopen()
    cursor, contents, has_more = 30, [], True
    while has_more:
        page = await world.storage.messages_after(
            ben, chat, cursor, count_max=70, bytes_max=100_000
        )
        contents += [message.content for message in page.messages]
        cursor, has_more = page.synced_through, page.has_more
    assert contents == [f"message {index}" for index in range(100)] * 3
    assert cursor == (await world.chat(ben, chat)).head
    assert (await world.ack(ben, chat, cursor)).moved


@pytest.mark.parametrize("restarts", [False, True])
async def test_adr001_b_duplicate_client_message_id_different_content(
    world: World, restarts: bool
) -> None:
    """The original stays. We answer with an error that carries its numbers, not with a success
    that would show ✓ for a text nobody will ever see (P-08)."""
    chat, anna, ben = await chat_a(world)
    key = world.key()
    first = await world.send(chat, anna, "original", key=key)
    if restarts:
        await world.engine.reopen()
    outcome = await world.try_send(chat, anna, "another", key=key)
    assert isinstance(outcome, KeyReused)
    assert outcome.details == {
        "sequence": first.sequence,
        "message_id": first.message_id,
        "created_at_ms": first.created_at_ms,
    }
    assert [m.content for m in await world.messages(ben, chat)] == ["original"]
    assert (await world.send(chat, anna, "original", key=key)).deduplicated
