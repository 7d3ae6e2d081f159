"""What is due, where to read on, how late the log is."""

from tests.unit.ingest.events import a_rename
from tidewire.domain.outbox import Lease, LeaseTable, OutboxKey, OutboxRow
from tidewire.ingest.backlog import (
    AHEAD_MS_MAX,
    Backlog,
    LeasePlan,
    Looks,
    due_rows,
    pause_ms,
    plan_leases,
)


def row(name: str, at_ms: int = 0) -> OutboxRow:
    return OutboxRow(OutboxKey(3, name), at_ms, a_rename(1))


def test_row_is_due_at_its_age_unless_it_is_on_its_way() -> None:
    rows = [row("a", 10), row("b", 11), row("c", 0)]

    def is_publishing(key: OutboxKey) -> bool:
        return key.row == "c"

    due = due_rows(rows, now_ms=30, after_ms=20, is_publishing=is_publishing)
    assert [one.key.row for one in due] == ["a"]


def test_row_of_a_clock_that_was_far_ahead_is_due() -> None:
    """Else it would be published, and its push come, when that time has come (B4)."""
    rows = [row("a", AHEAD_MS_MAX), row("b", AHEAD_MS_MAX + 1)]
    due = due_rows(rows, now_ms=0, after_ms=20, is_publishing=lambda _: False)
    assert [one.key.row for one in due] == ["b"]


def test_pause_grows_with_failures_up_to_its_bound() -> None:
    pauses = [pause_ms(failures, poll_ms=100, pause_ms_max=350) for failures in (0, 1, 2, 99)]
    assert pauses == [100, 200, 350, 350]
    assert pause_ms(5, poll_ms=100, pause_ms_max=50) == 100


def test_full_page_is_followed_by_the_next_and_a_short_one_by_the_first() -> None:
    backlog = Backlog()
    assert backlog.after(3) is None
    assert backlog.saw(3, [row("a"), row("b")], count_max=2)
    assert backlog.after(3) == "b"
    assert backlog.after(4) is None
    assert not backlog.saw(3, [row("c")], count_max=2)
    assert backlog.after(3) is None


def test_oldest_is_of_all_pages_of_a_pass() -> None:
    backlog = Backlog()
    assert backlog.oldest_ms(100) == 0
    backlog.stayed(3, [row("a", 20)], has_more=True)
    assert backlog.oldest_ms(100) == 80
    backlog.stayed(3, [row("b", 40)], has_more=True)
    backlog.stayed(3, [], has_more=False)
    assert backlog.oldest_ms(100) == 80
    backlog.stayed(4, [row("c", 50)], has_more=False)
    backlog.stayed(3, [], has_more=True)
    backlog.stayed(3, [], has_more=False)
    assert backlog.oldest_ms(100) == 50
    assert backlog.oldest_ms(30) == 0


def test_shard_of_somebody_else_is_forgotten() -> None:
    backlog = Backlog()
    backlog.saw(3, [row("a")], count_max=1)
    backlog.stayed(3, [row("a", 20)], has_more=True)
    backlog.stayed(4, [row("b", 30)], has_more=False)
    backlog.forget(3)
    backlog.forget(4)
    assert backlog.after(3) is None
    assert backlog.oldest_ms(100) == 0


SHARDS = 64
LEASE_MS = 1_000


def plan(table: LeaseTable, relay_id: str, now_ms: int = 0, shards: int = SHARDS) -> LeasePlan:
    return plan_leases(table, relay_id, shards=shards, now_ms=now_ms, lease_ms=LEASE_MS)


def held(owner: str, *shards: int, until_ms: int = LEASE_MS) -> tuple[Lease, ...]:
    return tuple(Lease(shard, owner, until_ms) for shard in shards)


def test_only_relay_takes_everything() -> None:
    assert plan(LeaseTable((), ()), "a") == LeasePlan(list(range(SHARDS)), [], [])


def test_two_relays_take_halves_from_different_ends() -> None:
    table = LeaseTable(("a", "b"), ())
    assert plan(table, "a").take == list(range(32))
    assert plan(table, "b").take == list(range(32, 64))


def test_relay_that_has_more_than_its_share_releases_the_rest() -> None:
    table = LeaseTable(("a", "b"), held("a", *range(SHARDS)))
    assert plan(table, "a") == LeasePlan([], [], list(range(32, 64)))
    assert plan(table, "b") == LeasePlan([], [], [])


def test_shards_that_nobody_holds_are_taken_up_to_the_share() -> None:
    table = LeaseTable(("a", "b", "c"), held("a", *range(22)) + held("b", *range(22, 44)))
    assert plan(table, "c").take == list(range(44, 64))
    assert plan(table, "a").take == []
    table = LeaseTable(("a", "b", "c"), held("a", *range(20)))
    assert plan(table, "a").take == [20, 21]


def test_lease_is_renewed_when_half_of_it_is_over() -> None:
    table = LeaseTable(("a",), held("a", *range(SHARDS), until_ms=LEASE_MS))
    assert plan(table, "a", now_ms=499).renew == []
    assert plan(table, "a", now_ms=500).renew == list(range(SHARDS))


def test_more_relays_than_shards_share_them_one_each() -> None:
    table = LeaseTable(("a", "b", "c"), held("a", 0) + held("b", 1))
    assert plan(table, "c", shards=2) == LeasePlan([], [], [])


def test_relays_that_come_and_go_end_with_equal_shares_and_every_shard_held() -> None:
    """Each acts on the table in its turn, as often as it takes to come to rest."""
    leases: dict[int, str] = {}
    for relays in (["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"], ["c", "d", "e", "f", "g"]):
        leases = {shard: owner for shard, owner in leases.items() if owner in relays}
        for _ in range(3):
            for relay in relays:
                rows = tuple(Lease(shard, owner, LEASE_MS) for shard, owner in leases.items())
                wanted = plan(LeaseTable(tuple(relays), rows), relay)
                for shard in wanted.release:
                    assert leases.pop(shard) == relay
                for shard in wanted.take:
                    assert leases.setdefault(shard, relay) == relay
        share = -(-SHARDS // len(relays))
        counts = [list(leases.values()).count(relay) for relay in relays]
        assert sum(counts) == SHARDS
        assert max(counts) <= share


# When to look.


def test_shard_is_looked_at_less_and_less_often_while_nothing_waits() -> None:
    looks = Looks(shards=4, poll_ms=2, most_ms=30)
    looks.begin(3, 100)
    at_ms, waits = 100, []
    for _ in range(8):
        assert looks.due(at_ms - 1) == []
        assert looks.due(at_ms) == [3]
        looks.looked(3, at_ms, waits=False)
        before_ms = at_ms
        while not looks.due(at_ms):
            at_ms += 1
        waits.append(at_ms - before_ms)
    assert waits == [2, 4, 8, 16, 30, 30, 30, 30]


def test_shard_is_looked_at_soon_again_when_something_waits_or_may() -> None:
    looks = Looks(shards=4, poll_ms=2, most_ms=30)
    looks.begin(1, 0)
    assert not looks.looked(1, 0, waits=False)
    assert not looks.looked(1, 2, waits=False)
    assert not looks.looked(1, 6, waits=True)
    assert looks.due(7) == []
    assert looks.due(8) == [1]
    looks.begin(1, 8)
    looks.looked(1, 8, waits=False)
    assert looks.due(10) == [1]
    assert 1 in looks
    looks.forget(1)
    assert 1 not in looks
    assert looks.due(999) == []


def test_looks_at_quiet_shards_are_spread() -> None:
    looks = Looks(shards=4, poll_ms=20, most_ms=20)
    quiet = [looks.looked(shard, 0, waits=False) for shard in range(4)]
    assert all(quiet)
    assert [looks.due(at_ms) for at_ms in (4, 5, 10, 20)] == [[], [0], [0, 1], [0, 1, 2, 3]]
