"""Two gateways, one store, and the way between them; all of it does what it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from tests.unit.ingest.fake_store import OUTSIDER, Call, FakeStore
from tests.unit.ingest.house import House, next_turn
from tidewire.domain.errors import NotAMember, Refused, StoreUnavailable, Unavailable
from tidewire.domain.ids import ChatId, UlidSource
from tidewire.domain.messages import Amendment, Appended, EntryKind, SendMessage
from tidewire.ingest import forwarding as module
from tidewire.ingest.forwarding import Forwarding
from tidewire.ports.storage import Appends
from tidewire.wire.forwards import Answered, Forwarded, encode_between

CHAT = ChatId("chat_1")
AWAY = StoreUnavailable("the store is away")
SEAL = b"sealed for "


class Post:
    """Leases, and what gateways tell each other: it arrives in the next turn, or not at all."""

    def __init__(self) -> None:
        self.gateways: dict[str, Forwarding] = {}
        self.holder: str | None = None
        self.asked: list[list[tuple[ChatId, str]]] = []
        self.is_lost = False
        self.loses_to: set[str] = set()
        """What is told to these gets lost on the way."""
        self.handed: list[str] = []

    def of(self, name: str) -> "Way":
        return Way(self, name)


class Way:
    """One gateway's end."""

    def __init__(self, post: Post, name: str) -> None:
        self._post = post
        self._name = name

    async def leases(self, wishes: Sequence[tuple[ChatId, str]], life_ms: int) -> list[str]:
        if self._post.is_lost:
            raise Unavailable("nobody answers")
        self._post.asked.append(list(wishes))
        if self._post.holder in (None, wishes[0][1]):
            self._post.holder = self._name
        assert self._post.holder is not None
        return [self._post.holder] * len(wishes)

    async def hand(self, gateway_id: str, body: bytes) -> bool:
        post = self._post
        if post.is_lost:
            raise Unavailable("nobody answers")
        post.handed.append(gateway_id)
        if gateway_id not in post.gateways:
            return False
        if gateway_id not in post.loses_to:
            asyncio.get_running_loop().call_soon(post.gateways[gateway_id].heard, body)
        return True

    async def close(self) -> None: ...


def seal(to: str, body: bytes) -> bytes:
    return SEAL + to.encode() + b":" + body


def unseal(to: str, sealed: bytes) -> bytes | None:
    seal_of = SEAL + to.encode() + b":"
    return sealed.removeprefix(seal_of) if sealed.startswith(seal_of) else None


class Gateway(House):
    def __init__(self, name: str, post: Post, store: FakeStore, **options: int) -> None:
        self.name = name
        self.post = post
        super().__init__(store, appends=self._before, **options)
        self.forwarding.use(self.service)
        post.gateways[name] = self.forwarding
        self.tasks.start_service("hot-chats", self.forwarding.run())

    def _before(self, house: House) -> Appends:
        self.forwarding = Forwarding(
            gateway_id=self.name,
            store=self.store,
            between=self.post.of(self.name),
            seal=seal,
            unseal=unseal,
            clock=self.clock,
            ids=UlidSource(lambda _bits: 8),
            tasks=self.tasks,
        )
        return self.forwarding

    async def overtaken(self) -> None:
        """And it has asked for the lease."""
        asked = len(self.post.asked)
        self.forwarding.overtaken(CHAT)
        await until(lambda: len(self.post.asked) > asked)
        await next_turn()

    @property
    def counts(self) -> tuple[int, int, int, int]:
        counters = self.forwarding.counters
        return counters.forwarded, counters.answered, counters.undecided, counters.unanswered


class Pair:
    """Ann's gateway forwards to Ben's."""

    def __init__(self, **options: int) -> None:
        self.post = Post()
        ann, ben = (FakeStore(appends_per_chat=True) for _ in range(2))
        # One database, two processes.
        ben.messages, ben._first_by_key = ann.messages, ann._first_by_key
        self.ann = Gateway("ann", self.post, ann, **options)
        self.ben = Gateway("ben", self.post, ben, **options)

    async def begin(self) -> None:
        await self.ben.overtaken()
        await self.ann.overtaken()
        assert self.post.holder == "ben"

    async def close(self) -> None:
        await self.ann.tasks.close()
        await self.ben.tasks.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    await pair.begin()
    yield pair
    await pair.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for an answer."""
    monkeypatch.setattr(module, "FORWARD_MS", 50)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await next_turn()


async def some_turns() -> None:
    """For what must not happen: more of them than anything here takes."""
    for _ in range(50):
        await next_turn()


def contents(calls: Sequence[Call]) -> list[list[str]]:
    return [call.contents for call in calls]


async def test_batch_is_appended_by_who_has_the_lease(pair: Pair) -> None:
    for text in ("m1", "m2", "m3"):
        pair.ann.submit(text)
    await pair.ann.answered("m1", "m2", "m3")
    assert pair.ann.store.calls == []
    assert contents(pair.ben.store.calls) == [["m1", "m2", "m3"]]
    assert pair.ann.order == ["m1", "m2", "m3"]
    assert [pair.ann.sequence(text) for text in pair.ann.order] == [1, 2, 3]
    stored = pair.ben.store.calls[0].sends[0]
    assert (stored.sender_id, stored.origin_connection_id) == ("user_anna", "phone")
    assert pair.ann.counts == (1, 1, 0, 0)


async def test_forwarded_sends_share_a_batch_with_those_of_the_holder(pair: Pair) -> None:
    pair.ben.store.is_holding = True
    pair.ben.submit("b1")
    first = await pair.ben.store.arrival()
    pair.ann.submit("a1")
    await until(lambda: pair.ben.service.queued_count > 0)
    pair.ben.submit("b2")
    first.commit()
    second = await pair.ben.store.arrival()
    assert second.contents == ["a1", "b2"]
    second.commit()
    await pair.ann.answered("a1")
    await pair.ben.answered("b1", "b2")


async def test_forwarded_sends_count_where_they_were_taken_in(pair: Pair) -> None:
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    assert pair.ann.service.counters.by_outcome == {"stored": 1, "deduplicated": 0}
    assert pair.ben.service.counters.by_outcome == {"stored": 0, "deduplicated": 0}
    assert (pair.ann.service.counters.sends, pair.ben.service.counters.sends) == (1, 0)
    assert pair.ben.forwarding.counters.foreign == 1


async def test_next_batch_waits_for_the_answer_of_the_one_before(pair: Pair) -> None:
    pair.ben.store.is_holding = True
    pair.ann.submit("m1")
    first = await pair.ben.store.arrival()
    pair.ann.submit("m2")
    await some_turns()
    assert pair.ann.forwarding.counters.forwarded == 1
    first.commit()
    second = await pair.ben.store.arrival()
    assert second.contents == ["m2"]
    second.commit()
    await pair.ann.answered("m1", "m2")


async def test_chat_that_is_not_hot_is_appended_where_it_is() -> None:
    pair = Pair()
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    assert (pair.post.asked, pair.post.handed) == ([], [])
    assert contents(pair.ann.store.calls) == [["m1"]]
    await pair.close()


async def test_refusal_for_good_is_told_by_the_holder(pair: Pair) -> None:
    pair.ann.submit("m1", sender=OUTSIDER)
    await pair.ann.answered("m1")
    refusal = pair.ann.answers["m1"]
    assert isinstance(refusal, Refused)
    assert (refusal.code, str(refusal)) == (NotAMember.code, NotAMember.sentence)
    assert pair.ann.store.calls == []


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("lost", ["the sends", "the answer"])
async def test_batch_without_an_answer_is_appended_at_its_origin(pair: Pair, lost: str) -> None:
    pair.post.loses_to = {"ben" if lost == "the sends" else "ann"}
    pair.ann.submit("m1")
    pair.ann.submit("m2")
    await pair.ann.answered("m1", "m2")
    assert contents(pair.ann.store.calls) == [["m1", "m2"]]
    assert pair.ann.store.contents == ["m1", "m2"]
    is_stored_before = lost == "the answer"
    for text in ("m1", "m2"):
        answer = pair.ann.answers[text]
        assert isinstance(answer, Appended)
        assert answer.deduplicated is is_stored_before
    # A try of its own: what the holder has stored is the holder's to tell.
    assert {one.message_id for one in pair.ann.store.calls[0].sends} != {
        one.message_id for one in pair.ann.store.messages
    } or not is_stored_before
    # Whoever does not answer does not keep the lease.
    await until(lambda: pair.post.holder == "ann")
    assert pair.post.asked[-1] == [(CHAT, "ben")]


@pytest.mark.usefixtures("soon")
async def test_answer_that_comes_after_all_changes_nothing(pair: Pair) -> None:
    pair.ben.store.is_holding = True
    pair.ann.submit("m1")
    late = await pair.ben.store.arrival()
    await pair.ann.answered("m1")
    late.commit()
    await some_turns()
    assert pair.ann.store.contents == ["m1"]
    # Ben's time for it ends with Ann's: she may hear first that he has given it up.
    assert pair.ann.counts in ((1, 0, 0, 1), (1, 0, 1, 0))


async def test_batch_for_a_gateway_that_is_gone_is_appended_at_once(pair: Pair) -> None:
    del pair.post.gateways["ben"]
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    assert contents(pair.ann.store.calls) == [["m1"]]


async def test_batch_is_taken_back_when_the_lease_is_anothers(pair: Pair) -> None:
    pair.post.loses_to = {"ben"}
    pair.ann.submit("m1")
    await until(lambda: pair.ann.counts[0] > 0)
    # Ben has died, and his lease has lapsed.
    pair.ben.forwarding.hot.forget()
    pair.post.holder = None
    async with asyncio.timeout(2):
        await pair.ann.answered("m1")
    await until(lambda: pair.post.holder == "ann")
    assert contents(pair.ann.store.calls) == [["m1"]]


async def test_everything_is_appended_here_when_the_way_is_lost(pair: Pair) -> None:
    pair.post.loses_to = {"ben"}
    pair.ann.submit("m1")
    await until(lambda: pair.ann.counts[0] > 0)
    pair.post.is_lost = True
    async with asyncio.timeout(2):
        await pair.ann.answered("m1")
    pair.ann.submit("m2")
    await pair.ann.answered("m2")
    assert contents(pair.ann.store.calls) == [["m1"], ["m2"]]
    assert len(pair.ann.forwarding.hot) == 0


async def test_batch_that_cannot_be_handed_over_is_appended_here(pair: Pair) -> None:
    pair.post.is_lost = True
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    assert contents(pair.ann.store.calls) == [["m1"]]


async def test_what_the_holder_cannot_decide_is_decided_at_the_origin(pair: Pair) -> None:
    pair.ben.store.is_holding = True
    pair.ann.submit("m1")
    (await pair.ben.store.arrival()).fail(AWAY)
    await pair.ann.answered("m1")
    assert isinstance(pair.ann.answers["m1"], Appended)
    assert contents(pair.ann.store.calls) == [["m1"]]
    assert pair.ann.counts == (1, 0, 1, 0)


async def test_answers_of_both_are_put_together_in_order(pair: Pair) -> None:
    pair.ben.store.is_holding = True
    for text, line in (("m1", "phone"), ("m2", "laptop"), ("m3", "phone")):
        pair.ann.submit(text, line=line)
    call = await pair.ben.store.arrival()
    stored = call._store.store(call.sends[:1], call.now_ms)
    call.answer([stored[0], AWAY, *call._store.store(call.sends[2:], call.now_ms)])
    await pair.ann.answered("m1", "m2", "m3")
    assert contents(pair.ann.store.calls) == [["m2"]]
    assert [pair.ann.sequence(text) for text in ("m1", "m2", "m3")] == [1, 3, 2]


@pytest.mark.parametrize("error", [AWAY, ZeroDivisionError()])
async def test_origin_that_fails_too_says_so_for_what_has_no_verdict(
    pair: Pair, error: Exception
) -> None:
    pair.ben.store.is_holding = pair.ann.store.is_holding = True
    pair.ann.submit("m1", line="phone")
    pair.ann.submit("m2", line="laptop")
    call = await pair.ben.store.arrival()
    call.answer([*call._store.store(call.sends[:1], call.now_ms), AWAY])
    (await pair.ann.store.arrival()).fail(error)
    await pair.ann.answered("m1", "m2")
    # A reason that no code expected may lie in any of them: all may be sent again.
    assert isinstance(pair.ann.answers["m1"], Appended) is (error is AWAY)
    assert isinstance(pair.ann.answers["m2"], Unavailable)


async def test_store_that_breaks_its_contract_fails_the_batch(pair: Pair) -> None:
    pair.ben.store.is_holding = pair.ann.store.is_holding = True
    pair.ann.submit("m1")
    (await pair.ben.store.arrival()).fail(AWAY)
    (await pair.ann.store.arrival()).answer([])
    await pair.ann.answered("m1")
    assert isinstance(pair.ann.answers["m1"], Unavailable)


async def test_store_that_takes_nothing_in_fails_the_batch(pair: Pair) -> None:
    pair.ben.store.is_holding = True
    pair.ann.submit("m1")
    pair.ann.store.refusal = AWAY
    (await pair.ben.store.arrival()).fail(AWAY)
    await pair.ann.answered("m1")
    assert pair.ann.answers["m1"] is AWAY


async def test_what_was_forwarded_is_not_forwarded_again(pair: Pair) -> None:
    # Both believe that the other has the lease.
    pair.ben.forwarding.hot.told(CHAT, "ann", pair.ben.clock.monotonic_ms())
    assert pair.ben.forwarding.hot.way(CHAT, pair.ben.clock.monotonic_ms()) == "ann"
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    assert contents(pair.ben.store.calls) == [["m1"]]
    assert pair.post.handed == ["ben", "ann"]


async def test_sends_of_others_do_not_keep_the_lease_of_who_has_none_itself(pair: Pair) -> None:
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    hot = pair.ben.forwarding.hot
    assert hot._chats[CHAT].own_at_ms < 0 < hot._chats[CHAT].foreign_at_ms
    pair.ben.submit("m2")
    await pair.ben.answered("m2")
    assert hot._chats[CHAT].own_at_ms > 0


async def test_amendment_is_appended_where_it_is(pair: Pair) -> None:
    pair.ann.submit("x", amends=Amendment(kind=EntryKind.EDIT, target=1))
    await pair.ann.answered("x")
    assert contents(pair.ann.store.calls) == [["x"]]


async def test_holder_that_ends_leaves_it_to_the_origin(pair: Pair) -> None:
    await pair.ben.service.drain()
    pair.ann.submit("m1")
    await pair.ann.answered("m1")
    assert contents(pair.ann.store.calls) == [["m1"]]


async def test_forwarded_send_that_breaks_a_rule_is_refused(pair: Pair) -> None:
    """The origin would not have sent it: nobody believes it all the same."""
    send = SendMessage(
        content="x" * 5_000,
        content_type="text/plain",
        chat_id=CHAT,
        sender_id=OUTSIDER,
        client_message_id="key",  # type: ignore[arg-type]
        message_id="msg",  # type: ignore[arg-type]
    )
    pair.ben.forwarding.heard(seal("ben", encode_between(Forwarded(1, "ann", 1_000, [send]))))
    await until(lambda: pair.post.handed == ["ann"])
    assert pair.ben.store.calls == []


async def test_what_has_no_seal_is_counted_and_left_alone(pair: Pair) -> None:
    told = encode_between(Forwarded(1, "ann", 1_000, []))
    for sealed in (told, seal("ann", told), seal("ben", b"something else")):
        pair.ben.forwarding.heard(sealed)
    assert pair.ben.forwarding.counters.unsealed == 3
    # An answer that nobody waits for, and no sends at all.
    pair.ben.forwarding.heard(seal("ben", encode_between(Answered(99, []))))
    pair.ben.forwarding.heard(seal("ben", told))
    assert pair.ben.forwarding.counters.unsealed == 3
    assert pair.ben.store.calls == []


# Bounds.


@pytest.mark.parametrize(("bound", "most"), [("FORWARDS_MAX", 1), ("FORWARDS_BYTES_MAX", 600)])
async def test_one_batch_more_than_may_be_under_way_is_appended_here(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(module, bound, most)
    other = ChatId("chat_2")
    pair.ann.forwarding.hot.overtaken(other, pair.ann.clock.monotonic_ms())
    pair.ann.forwarding.hot.told(other, "ben", pair.ann.clock.monotonic_ms())
    pair.ben.store.is_holding = True
    pair.ann.submit("m1")
    first = await pair.ben.store.arrival()
    pair.ann.submit("m2", chat="chat_2")
    await pair.ann.answered("m2")
    assert contents(pair.ann.store.calls) == [["m2"]]
    first.commit()
    await pair.ann.answered("m1")
    # There is room again.
    pair.ann.submit("m3")
    (await pair.ben.store.arrival()).commit()
    await pair.ann.answered("m3")
    assert contents(pair.ann.store.calls) == [["m2"]]


async def test_one_send_more_than_may_wait_for_others_is_not_taken_in(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOREIGN_SENDS_MAX", 2)
    for text in ("m1", "m2", "m3"):
        pair.ann.submit(text)
    await pair.ann.answered("m1", "m2", "m3")
    assert contents(pair.ann.store.calls) == [["m1", "m2", "m3"]]
    assert pair.ben.store.calls == []
