"""The ingest service on a real event loop, with a store that fails and waits on command."""

import asyncio
import contextlib
import itertools

import pytest

from tests.unit.ingest.fake_store import OUTSIDER, FakeStore
from tests.unit.ingest.house import House, client_message_id, next_turn
from tidewire.domain.errors import (
    CounterMissing,
    DeadlinePassed,
    ErrorCode,
    InvalidMessage,
    KeyReused,
    MessageTooLarge,
    NotAMember,
    Overloaded,
    StoreUnavailable,
    StoreUnusable,
    Unavailable,
)
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, MessageBody
from tidewire.ingest.batcher import Batcher
from tidewire.ingest.service import HELD_MS_MAX

AWAY = StoreUnavailable("the store is away")


# Answers.


async def test_send_returns_what_the_store_says(house: House) -> None:
    first = await house.send("hello")
    assert first == Appended(house.store.messages[0].message_id, 1, 0, house.clock.date_ms, False)
    assert await house.send("hello") == Appended(first.message_id, 1, 0, house.clock.date_ms, True)
    with pytest.raises(KeyReused):
        await house.send("goodbye", key="hello")
    assert house.store.contents == ["hello"]


async def test_send_that_breaks_a_rule_never_reaches_the_store(house: House) -> None:
    with pytest.raises(InvalidMessage):
        await house.send("", key="empty")
    with pytest.raises(MessageTooLarge):
        await house.send("x" * 4097, key="large")
    assert house.store.calls == []


async def test_done_is_never_called_before_submit_returns(house: House) -> None:
    house.submit("fine")
    house.submit("", label="broken")
    assert house.answers == {}
    await house.answered("fine", "broken")
    assert isinstance(house.answers["broken"], InvalidMessage)


async def test_sends_of_one_turn_share_an_append(house: House) -> None:
    for number in range(10):
        house.submit(f"m{number}", chat=f"chat_{number % 3}", line=f"line_{number % 2}")
    await house.answered("m9")
    assert [call.contents for call in house.store.calls] == [[f"m{n}" for n in range(10)]]


async def test_sends_during_an_append_share_the_next_one(held: House) -> None:
    held.submit("m1")
    first = await held.store.arrival()
    held.submit("m2")
    held.submit("m3")
    first.commit()
    second = await held.store.arrival()
    assert second.contents == ["m2", "m3"]
    second.commit()
    await held.answered("m1", "m2", "m3")
    assert held.order == ["m1", "m2", "m3"]


async def test_next_append_is_with_the_store_before_answers_are_given(held: House) -> None:
    appends_at_answer: list[int] = []
    held.service.submit_nowait(
        MessageBody(content="m1"),
        chat_id=ChatId("chat_1"),
        sender_id=UserId("user_anna"),
        client_message_id=client_message_id("m1"),
        done=lambda _outcome: appends_at_answer.append(len(held.store.calls)),
    )
    first = await held.store.arrival()
    held.submit("m2")
    first.commit()
    (await held.store.arrival()).commit()
    await held.answered("m2")
    assert appends_at_answer == [2]


async def test_answers_keep_their_order_when_the_store_never_waits(houses: list[House]) -> None:
    house = House(FakeStore(), batch_sends_max=1)
    houses.append(house)
    for number in range(5):
        house.submit(f"m{number}")
    await house.answered("m4")
    assert house.order == [f"m{number}" for number in range(5)]


async def test_cancelled_caller_gives_up_the_answer_and_not_the_message(held: House) -> None:
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(held.send("hello"))
        call = await held.store.arrival()
        caller.cancel()
    assert caller.cancelled()
    call.commit()
    held.store.is_holding = False
    assert (await held.send("hello")).deduplicated


async def test_missing_counter_is_counted_by_itself(held: House) -> None:
    held.submit("m1")
    call = await held.store.arrival()
    call.answer([CounterMissing("chat_1")])
    await held.answered("m1")
    counters = held.service.counters
    assert (counters.counter_missing, counters.stored) == (1, 0)
    assert counters.refused_by_code == {ErrorCode.SERVICE_UNAVAILABLE: 1}
    # The store being away for another reason is no such alarm.
    held.submit("m2")
    (await held.store.arrival()).answer([StoreUnavailable("away")])
    await held.answered("m2")
    assert counters.counter_missing == 1


async def test_counters_tell_what_happened(house: House) -> None:
    house.submit("m1")
    house.submit("m1", label="again")
    house.submit("m2", sender=OUTSIDER)
    house.submit("", label="empty")
    await house.answered("m1", "again", "m2", "empty")
    counters = house.service.counters
    assert (counters.sends, counters.stored, counters.deduplicated) == (4, 1, 1)
    assert counters.refused_by_code == {ErrorCode.NOT_A_MEMBER: 1, ErrorCode.INVALID_MESSAGE: 1}
    # The second m1 held its line back, so that the outsider came in a batch of his own.
    assert (counters.batches, counters.last_batch_sends) == (2, 1)
    assert (house.service.queued_count, house.service.in_flight_count) == (0, 0)


# Once.


async def test_retry_while_the_first_is_in_flight_is_one_message_and_equal_answers(
    held: House,
) -> None:
    held.submit("hello", line="phone", label="first")
    call = await held.store.arrival()
    held.submit("hello", line="laptop", label="retry")
    call.commit()
    await held.answered("first", "retry")
    assert held.sequence("first") == held.sequence("retry") == 1
    assert len(held.store.calls) == len(held.store.messages) == 1


async def test_two_equal_ids_in_one_batch_are_one_message_and_equal_answers(house: House) -> None:
    house.submit("hello", label="first")
    house.submit("hello", label="second")
    house.submit("goodbye", key="hello", label="other")
    await house.answered("first", "second", "other")
    first, second = house.answers["first"], house.answers["second"]
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert (first.message_id, first.sequence) == (second.message_id, second.sequence)
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert isinstance(house.answers["other"], KeyReused)
    assert house.store.contents == ["hello"]


async def test_same_uuid_in_capital_letters_is_the_same_key(house: House) -> None:
    answers = [
        await house.service.send(
            MessageBody(content="hello"),
            chat_id=ChatId("chat_1"),
            sender_id=UserId("user_anna"),
            client_message_id=ClientMessageId(written),
        )
        for written in (
            "0000abcd-0000-4000-8000-00000000cafe",
            "0000ABCD-0000-4000-8000-00000000CAFE",
        )
    ]
    assert [answer.sequence for answer in answers] == [1, 1]
    assert house.store.contents == ["hello"]


async def test_next_waiter_takes_the_place_when_the_first_was_refused(house: House) -> None:
    house.submit("hello", sender=OUTSIDER, label="outsider")
    house.submit("hello", label="member")
    await house.answered("outsider", "member")
    assert isinstance(house.answers["outsider"], NotAMember)
    assert house.sequence("member") == 1


async def test_retry_after_a_lost_answer_finds_the_stored_message(held: House) -> None:
    held.submit("hello", label="first")
    (await held.store.arrival()).commit_then_fail(AWAY)
    await held.answered("first")
    assert held.answers["first"] is AWAY
    held.store.is_holding = False
    again = await held.send("hello")
    assert (again.sequence, again.deduplicated) == (1, True)
    assert held.store.contents == ["hello"]


# Order.


async def test_order_of_a_connection_is_kept_over_batches(houses: list[House]) -> None:
    house = House(FakeStore(), batch_sends_max=3)
    houses.append(house)
    names = [f"m{number}" for number in range(10)]
    for name in names:
        house.submit(name, line="phone")
        house.submit(name, line="laptop", chat="chat_2", label=f"{name}'")
    await house.answered(*names, *[f"{name}'" for name in names])
    for chat in ("chat_1", "chat_2"):
        stored = [message.content for message in house.store.messages if message.chat_id == chat]
        assert stored == names


async def test_failure_takes_the_later_ones_of_the_connection_along(held: House) -> None:
    held.submit("m1")
    first = await held.store.arrival()
    held.submit("m2")
    held.submit("n1", line="laptop")
    held.submit("m1 elsewhere", chat="chat_2")
    first.fail(AWAY)
    second = await held.store.arrival()
    assert second.contents == ["n1", "m1 elsewhere"]
    second.commit()
    await held.answered("m1", "m2", "n1", "m1 elsewhere")
    assert held.answers["m1"] is held.answers["m2"] is AWAY


async def test_created_at_is_held_when_the_clock_jumps_back_and_then_follows_it(
    house: House,
) -> None:
    before_ms = (await house.send("m1")).created_at_ms
    house.clock.date_ms -= 60_000
    assert (await house.send("m2")).created_at_ms == before_ms
    house.clock.date_ms += 60_001
    assert (await house.send("m3")).created_at_ms == before_ms + 1
    house.clock.date_ms -= 60_000
    assert (await house.send("m4")).created_at_ms == before_ms + 1
    house.clock.passed_ms += HELD_MS_MAX
    assert (await house.send("m5")).created_at_ms == house.clock.date_ms


# Bounds and deadlines.


async def test_queue_at_its_bound_refuses_at_once(houses: list[House]) -> None:
    house = House(FakeStore(is_holding=True), queue_sends_max=2)
    houses.append(house)
    house.submit("m1")
    call = await house.store.arrival()
    for name in ("m2", "m3", "m4"):
        house.submit(name)
    await house.answered("m4")
    refusal = house.answers["m4"]
    assert isinstance(refusal, Overloaded)
    assert refusal.code is ErrorCode.SERVICE_UNAVAILABLE
    assert house.answers.keys() == {"m4"}
    house.store.is_holding = False
    call.commit()
    await house.answered("m1", "m2", "m3")
    assert house.store.contents == ["m1", "m2", "m3"]


async def test_deadline_during_a_commit_does_not_undo_it_and_the_retry_finds_it(
    held: House,
) -> None:
    held.submit("hello", patience_ms=2)
    call = await held.store.arrival()
    await held.answered("hello")
    assert isinstance(held.answers["hello"], DeadlinePassed)
    async with asyncio.TaskGroup() as group:
        retry = group.create_task(held.send("hello"))
        await next_turn()
        call.commit()
    again = retry.result()
    assert (again.sequence, again.deduplicated) == (1, True)
    assert held.store.contents == ["hello"]


async def test_deadline_in_the_queue_takes_the_later_ones_of_the_connection_along(
    held: House,
) -> None:
    held.submit("n1", line="laptop")
    call = await held.store.arrival()
    held.submit("m1", patience_ms=2)
    held.submit("m2")
    held.submit("n2", line="laptop")
    await held.answered("m1", "m2")
    assert all(isinstance(held.answers[name], DeadlinePassed) for name in ("m1", "m2"))
    held.store.is_holding = False
    call.commit()
    await held.answered("n1", "n2")
    assert held.store.contents == ["n1", "n2"]


async def test_earlier_deadline_is_not_missed_behind_a_later_one(held: House) -> None:
    held.submit("late", line=None, patience_ms=60_000)
    held.submit("early", line=None, patience_ms=2)
    await held.answered("early")
    assert held.answers.keys() == {"early"}
    held.store.is_holding = False
    (await held.store.arrival()).commit()
    await held.answered("late")


# Chats side by side.


async def test_chats_are_appended_side_by_side_up_to_the_bound(houses: list[House]) -> None:
    store = FakeStore(appends_per_chat=True, is_holding=True)
    house = House(store, appends_in_flight_max=3)
    houses.append(house)
    names = [f"m{number}" for number in range(5)]
    for name in names:
        house.submit(name, chat=f"chat_{name}")
        house.submit(f"{name}+", chat=f"chat_{name}")
    calls = [await store.arrival() for _ in range(3)]
    assert [call.contents for call in calls] == [["m0", "m0+"], ["m1", "m1+"], ["m2", "m2+"]]
    assert house.service.in_flight_count == 3
    calls[1].commit()
    assert (await store.arrival()).contents == ["m3", "m3+"]
    store.is_holding = False
    for call in (calls[0], calls[2], store.calls[3]):
        call.commit()
    await house.answered(*names)
    assert store.in_flight_count_max == 3
    assert len(store.messages) == 10


# Bugs: every sender is answered, and the process ends only if the store is in doubt.


async def test_batch_that_fails_unexpectedly_fails_its_senders_and_no_others(held: House) -> None:
    held.submit("m1")
    call = await held.store.arrival()
    held.submit("m2")
    held.submit("n1", line="laptop")
    held.store.is_holding = False
    call.fail(ValueError("a bug"))
    await held.answered("m1", "m2", "n1")
    assert isinstance(held.answers["m1"], StoreUnavailable)
    # The line goes with it, others do not.
    assert isinstance(held.answers["m2"], StoreUnavailable)
    assert held.store.contents == ["n1"]
    assert held.tasks.failures_by_kind == {"send": 1}
    await held.send("m1")
    assert held.store.contents == ["n1", "m1"]
    assert held.deaths.empty()


async def test_message_that_breaks_the_store_again_and_again_takes_no_other_along(
    house: House,
) -> None:
    house.store.poison = "poison"
    house.submit("poison", line="enemy", chat="chat_2")
    house.submit("m1")
    await house.answered("poison", "m1")
    for number in range(5):
        # Both at once, and the bad one first.
        house.submit("poison", line="enemy", chat="chat_2", label=f"poison {number}")
        house.submit(f"n{number}", line=f"line {number}", chat="chat_1")
        await house.answered(f"poison {number}", f"n{number}")
    assert house.store.contents == [f"n{number}" for number in range(5)]
    assert house.deaths.empty()


async def test_store_in_doubt_fails_its_senders_and_ends_the_process(held: House) -> None:
    bug = StoreUnusable("a commit failed and its outcome is unknown")
    held.submit("m1")
    (await held.store.arrival()).fail(bug)
    await held.answered("m1")
    assert isinstance(held.answers["m1"], StoreUnavailable)
    assert await held.deaths.get() is bug
    assert held.tasks.failures_by_kind == {}


async def test_store_that_cannot_be_asked_fails_its_senders(house: House) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    house.store.append_nowait = broken  # type: ignore[method-assign]
    house.submit("m1")
    await house.answered("m1")
    assert isinstance(house.answers["m1"], StoreUnavailable)
    assert house.tasks.failures_by_kind == {"send": 1}
    assert house.deaths.empty()


@pytest.mark.parametrize("method", ["take", "expire"])
async def test_queue_that_breaks_ends_the_process(
    house: House, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Without its queue the service can keep no promise."""
    bug = ValueError("a bug")

    def broken(*_: object) -> None:
        raise bug

    monkeypatch.setattr(Batcher, method, broken)
    if method == "expire":
        house.store.is_holding = True
    house.submit("m1", patience_ms=1)
    assert await house.deaths.get() is bug
    monkeypatch.undo()
    house.store.is_holding = False


async def test_store_that_answers_too_little_fails_its_callers_and_tells_the_owner(
    held: House,
) -> None:
    held.submit("m1")
    (await held.store.arrival()).answer([])
    await held.answered("m1")
    assert isinstance(held.answers["m1"], StoreUnavailable)
    assert isinstance(await held.deaths.get(), AssertionError)


async def test_done_that_raises_keeps_nobody_from_his_answer(house: House) -> None:
    def broken(_outcome: AppendOutcome) -> None:
        raise ZeroDivisionError

    house.service.submit_nowait(
        MessageBody(content="m1"),
        chat_id=ChatId("chat_1"),
        sender_id=UserId("user_anna"),
        client_message_id=client_message_id("m1"),
        done=broken,
    )
    house.submit("m2")
    await house.answered("m2")
    assert house.tasks.failures_by_kind == {"send": 1}
    assert house.deaths.empty()


# The end.


async def test_drain_stores_what_was_taken_in_and_refuses_the_rest(held: House) -> None:
    held.submit("m1")
    call = await held.store.arrival()
    held.submit("m2")
    held.submit("", label="broken")
    held.store.is_holding = False
    async with asyncio.TaskGroup() as group:
        drain = group.create_task(held.service.drain())
        await next_turn()
        held.submit("too late")
        await held.answered("too late")
        assert isinstance(held.answers["too late"], Unavailable)
        assert not drain.done()
        call.commit()
    assert held.answers.keys() == {"m1", "m2", "broken", "too late"}
    assert held.store.contents == ["m1", "m2"]
    await held.service.drain()


async def test_drain_waits_for_answers_that_are_on_their_way(house: House) -> None:
    house.submit("", label="broken")
    await house.service.drain()
    assert house.answers.keys() == {"broken"}


async def test_drain_gives_up_in_time_and_answers_everybody(houses: list[House]) -> None:
    house = House(FakeStore(is_holding=True), drain_ms=2)
    houses.append(house)
    house.submit("m1")
    call = await house.store.arrival()
    house.submit("m2")
    await house.service.drain()
    assert house.answers.keys() == {"m1", "m2"}
    assert all(isinstance(answer, Unavailable) for answer in house.answers.values())
    call.commit()
    await next_turn()
    assert house.store.contents == ["m1"]


async def test_drain_goes_on_after_a_batch_that_failed_unexpectedly(held: House) -> None:
    held.submit("m1")
    call = await held.store.arrival()
    held.submit("n1", line="laptop")
    held.store.is_holding = False
    call.fail(ValueError("a bug"))
    await held.service.drain()
    assert isinstance(held.answers["m1"], StoreUnavailable)
    assert held.store.contents == ["n1"]


async def test_drain_is_done_when_all_that_was_in_flight_has_expired(held: House) -> None:
    held.submit("m1", patience_ms=1)
    call = await held.store.arrival()
    await held.answered("m1")
    async with asyncio.TaskGroup() as group:
        group.create_task(held.service.drain())
        await next_turn()
        call.commit()
    assert held.store.contents == ["m1"]


# Many at once.


async def test_many_senders_with_retries_end_in_one_message_each(house: House) -> None:
    house.store.is_holding = True
    fates = itertools.cycle(("commit", "fail", "commit_then_fail"))

    async def serve() -> None:
        while True:
            call = await house.store.arrival()
            fate = next(fates)
            if fate == "commit":
                call.commit()
            elif fate == "fail":
                call.fail(AWAY)
            else:
                call.commit_then_fail(AWAY)

    async def insist(name: str) -> Appended:
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await house.send(name)

    names = [f"{number}" for number in range(200)]
    async with asyncio.TaskGroup() as group:
        server = group.create_task(serve())
        answers = await asyncio.gather(*map(insist, names), *map(insist, names))
        server.cancel()
    assert sorted(house.store.contents) == sorted(names)
    assert {answer.sequence for answer in answers[:200]} == set(range(1, 201))
    assert [one.sequence for one in answers[:200]] == [one.sequence for one in answers[200:]]


async def test_store_that_takes_nothing_in_by_callback_is_answered_and_tried_again(
    houses: list[House],
) -> None:
    store = FakeStore()
    house = House(store)
    houses.append(house)
    store.refusal = AWAY
    house.submit("m1")
    await house.answered("m1")
    assert house.answers["m1"] is AWAY
    store.refusal = None
    house.submit("m2")
    await house.answered("m2")
    assert store.contents == ["m2"]
