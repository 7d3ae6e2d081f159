"""The workloads against a server that only speaks the frames: they measure, and they find faults.

Goal: a tool that says "all arrived" must be one that notices when it did not.
"""

import pytest

from tests.unit.ops.load.fake_server import FakeMaker, FakeServer, running
from tidewire.ops.load.catch_up import CatchUpLoad
from tidewire.ops.load.figures import Figures
from tidewire.ops.load.idle import IdleLoad
from tidewire.ops.load.storm import StormLoad
from tidewire.ops.load.talk import TalkLoad
from tidewire.ops.load.target import LoadImpossible, Target, raise_file_limit
from tidewire.ops.load.workload import Outcome, Timing, Workload

SHORT = Timing(warm_up_s=0.02, measured_s=0.1, give_up_s=5.0)

# Each talks over real sockets for a moment.
pytestmark = pytest.mark.slow


def no_bar(stage: str, done: int, total: int | None) -> None:
    """Nobody watches."""


async def run(
    workload: Workload, fake: FakeServer | None = None, timing: Timing = SHORT
) -> tuple[Figures, Outcome]:
    async with running(fake or FakeServer()) as server:
        await workload.prepare(FakeMaker(server))
        outcome = Outcome()
        target = Target(f"http://127.0.0.1:{server.port}")
        return await workload.measure(target, timing, outcome, no_bar), outcome


@pytest.mark.parametrize(
    ("workload", "receivers"), [(TalkLoad.pairs(3, 2), 1), (TalkLoad.group(4, 2), 3)]
)
async def test_talk_measures_what_arrives(workload: TalkLoad, receivers: int) -> None:
    fake = FakeServer()
    figures, outcome = await run(workload, fake)
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
    _, outcome = await run(TalkLoad.pairs(1, 1), FakeServer(throttled=2))
    assert outcome.faults.count == 0, outcome.faults.first
    assert outcome.errors == {"error_RATE_LIMITED": 2}


async def test_talk_says_so_if_it_cannot_connect() -> None:
    with pytest.raises(LoadImpossible, match="http_429"):
        await run(TalkLoad.pairs(1, 1), FakeServer(refused_handshakes=1))


async def test_idle_connects_everybody_with_three_chats() -> None:
    timing = Timing(measured_s=0)
    figures, outcome = await run(IdleLoad(5), FakeServer(refused_handshakes=1), timing)
    assert outcome.faults.count == 0, outcome.faults.first
    assert outcome.errors == {"http_429": 1}
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
