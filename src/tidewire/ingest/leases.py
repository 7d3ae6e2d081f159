"""Who looks after which shard of the outbox: everybody the same share, nobody's shard twice. PURE.

The table is read, then changed shard by shard under a condition, so a plan may be overtaken; the
next one starts from what has become of it.
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.outbox import Lease, LeaseTable


class LeasePlan(msgspec.Struct, frozen=True):
    take: list[int]
    """Shards that nobody holds."""
    renew: list[int]
    release: list[int]
    """More than a fair share, for whoever has less."""


def plan_leases(
    table: LeaseTable, relay_id: str, *, shards: int, now_ms: int, lease_ms: int
) -> LeasePlan:
    """What this relay does about its leases now. A lease is renewed when half of it is over."""
    relays = sorted({*table.relays, relay_id})
    share = -(-shards // len(relays))
    own = sorted(
        (lease for lease in table.leases if lease.owner == relay_id), key=lambda one: one.shard
    )
    kept = own[:share]
    held = {lease.shard for lease in table.leases}
    free = [shard for shard in _from(relays.index(relay_id) * share, shards) if shard not in held]
    return LeasePlan(
        take=free[: share - len(kept)],
        renew=[one.shard for one in kept if _is_half_over(one, now_ms, lease_ms)],
        release=[one.shard for one in own[share:]],
    )


def _from(start: int, shards: int) -> Sequence[int]:
    """All shards, each relay starting elsewhere: so they seldom want the same one."""
    return [(start + step) % shards for step in range(shards)]


def _is_half_over(lease: Lease, now_ms: int, lease_ms: int) -> bool:
    return lease.until_ms - now_ms <= lease_ms // 2
