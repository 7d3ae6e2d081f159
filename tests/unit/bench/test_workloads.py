"""The workloads against a server that only speaks the frames: they measure, and they find faults.

Goal: a tool that says "all arrived" must be one that notices when it did not.
"""

from collections import Counter

import msgspec
import pytest

from tests.unit.bench.fake_server import FakeMaker, FakeServer, running
from tidewire_bench.catch_up import CatchUpLoad
from tidewire_bench.figures import Figures, Meter
from tidewire_bench.frames import message_key
from tidewire_bench.idle import IdleLoad
from tidewire_bench.storm import StormLoad
from tidewire_bench.talk import ChangingSender, TalkLoad
from tidewire_bench.target import LoadImpossible, Person, Target, raise_file_limit
from tidewire_bench.workload import Outcome, Timing, Workload

SHORT = Timing(warm_up_s=0.02, measured_s=0.1, give_up_s=5.0)

# Each talks over real sockets for a moment.
pytestmark = pytest.mark.slow


def no_bar(stage: str, done: int, total: int | None) -> None:
    """No progress is shown."""


async def run(
    workload: Workload, fake: FakeServer | None = None, timing: Timing = SHORT
) -> tuple[Figures, Outcome]:
    async with running(fake or FakeServer()) as server:
        await workload.prepare(FakeMaker(server))
        outcome = Outcome()
        target = Target(f"http://127.0.0.1:{server.port}")
        return await workload.measure(target, timing, outcome, no_bar), outcome


async def test_changes_are_of_messages_that_were_acknowledged() -> None:
    """Six of ten are messages; each edit and each reaction is of another one of them."""
    person, meter = Person("me", "token", "device"), Meter(Target("http://127.0.0.1:1"))
    outcome, window = Outcome(), 25
    sender = ChangingSender(
        person, 3, "chat", meter, outcome, is_offering_batch=True, window=window
    )
    targets: list[int] = []
    kinds: Counter[str] = Counter()
    for number in range(400):
        sender.sent.sequences.append(0)
        # The sequences have a gap: they are as they were acknowledged.
        if number >= window:
            sender.sent.sequences[number - window] = 1_000 + number - window
        frame = msgspec.json.decode(sender.frame(number))
        assert sender.frame(number) == sender.frame(number)
        payload = frame["payload"]
        assert (frame["request_id"], payload["chat_id"]) == (str(number), "chat")
        assert payload["client_message_id"] == message_key(3, number)
        if number >= 100:
            kinds[frame["type"]] += 1
        if "target" in payload:
            targets.append(payload["target"])
            assert (payload["target"] - 1_000) % 10 < 4, "a message, and acknowledged"
    assert kinds == {"send_message": 180, "edit_message": 60, "react": 60}
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("is_offered", [True, False], ids=["batch", "bare"])
@pytest.mark.parametrize("is_known", [True, False], ids=["new server", "old server"])
@pytest.mark.parametrize(("kind", "receivers"), [("pairs", 1), ("group", 3)])
async def test_talk_measures_what_arrives(
    kind: str, receivers: int, *, is_known: bool, is_offered: bool
) -> None:
    fake = FakeServer(knows_batch=is_known)
    make = TalkLoad.pairs if kind == "pairs" else TalkLoad.group
    workload = make(1 + receivers, 2, is_offering_batch=is_offered)
    figures, outcome = await run(workload, fake)
    assert bool(fake.arrays) == (is_known and is_offered)
    assert figures.workload.endswith("without batch") == (not is_offered)
    assert outcome.faults.count == 0, outcome.faults.first
    assert not outcome.errors
    assert figures.messages
    assert figures.deliveries_per_s
    assert figures.messages_per_s
    assert figures.deliveries_per_s > 0.5 * receivers * figures.messages_per_s
    assert figures.ack_p50_ms is not None
    assert figures.delivered_p99_ms is not None
    assert figures.server_cpu_s is None
    heads = [stored[-1].sequence for stored in fake.messages.values()]
    assert set(fake.acked.values()) <= set(heads)
    assert len(fake.acked) == len(heads) * receivers


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        (FakeServer(lost_push=5), "whose predecessor is 5, after 4"),
        (FakeServer(doubled_push=5), "got sequence 5 again"),
        (FakeServer(lied_ack=5), "was acknowledged as 6"),
    ],
)
async def test_talk_finds_what_the_server_did_wrong(fake: FakeServer, words: str) -> None:
    _, outcome = await run(TalkLoad.pairs(1, 1), fake)
    assert any(words in sentence for sentence in outcome.faults.first), outcome.faults.first


async def test_talk_syncs_when_it_is_told_to() -> None:
    _, outcome = await run(TalkLoad.pairs(1, 2), FakeServer(resync_at=5))
    assert outcome.faults.count == 0, outcome.faults.first
    assert outcome.errors == {"resync": 1}


async def test_talk_sends_again_what_was_throttled() -> None:
    # Twice 50 ms pass before anything is acknowledged: in the warm-up, so that a machine that
    # stands still for a moment does not take all of the measured time.
    timing = Timing(warm_up_s=0.4, measured_s=0.6, give_up_s=5.0)
    _, outcome = await run(TalkLoad.pairs(1, 1), FakeServer(throttled=2), timing)
    assert outcome.faults.count == 0, outcome.faults.first
    assert outcome.errors == {"error_RATE_LIMITED": 2}


async def test_talk_says_so_if_it_cannot_connect() -> None:
    with pytest.raises(LoadImpossible, match="http_429"):
        await run(TalkLoad.pairs(1, 1), FakeServer(refused_handshakes=1))


async def test_idle_connects_everybody_with_three_chats() -> None:
    timing = Timing(measured_s=0)
    fake = FakeServer(refused_handshakes=1, closed_handshakes=2)
    figures, outcome = await run(IdleLoad(5), fake, timing)
    assert outcome.faults.count == 0, outcome.faults.first
    assert outcome.errors == {"http_429": 1, "close_1013": 2}
    assert figures.connections == 5
    assert figures.connections_per_s


async def test_storm_brings_everybody_back_complete() -> None:
    figures, outcome = await run(StormLoad(6))
    assert outcome.faults.count == 0, outcome.faults.first
    assert not outcome.errors
    assert figures.incomplete == 0
    assert figures.half_s is not None
    assert figures.all_s is not None
    assert 0.7 < figures.half_s <= figures.all_s
    assert figures.try_half_s is not None
    assert figures.try_most_s is not None
    # Without the wait of most of a second before it.
    assert 0 < figures.try_half_s <= figures.try_most_s < figures.all_s


async def test_storm_tells_who_did_not_come_back() -> None:
    figures, outcome = await run(StormLoad(4), timing=Timing(give_up_s=0.05))
    assert figures.incomplete == 4
    assert figures.all_s is None
    assert outcome.faults.count == 4


async def test_catch_up_reads_page_by_page() -> None:
    figures, outcome = await run(CatchUpLoad(1_201))
    assert outcome.faults.count == 0, outcome.faults.first
    assert figures.messages == 1_201


def test_target_spreads_many_connections_over_addresses() -> None:
    target = Target("http://127.0.0.1:8080")
    assert target.socket_url == "ws://127.0.0.1:8080/v1/ws"
    assert target.source_address(19_999) is None
    assert target.source_address(20_000) == ("127.0.0.2", 0)
    assert target.source_address(40_000) == ("127.0.0.3", 0)
    elsewhere = Target("https://chat.example.org")
    assert elsewhere.socket_url == "wss://chat.example.org/v1/ws"
    assert elsewhere.source_address(40_000) is None


def test_raise_file_limit_says_what_is_missing() -> None:
    with pytest.raises(LoadImpossible, match="ulimit"):
        raise_file_limit(10**9)
