"""Everybody the same share of the shards, whoever comes and goes."""

from tidewire.domain.outbox import Lease, LeaseTable
from tidewire.ingest.leases import LeasePlan, plan_leases

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
