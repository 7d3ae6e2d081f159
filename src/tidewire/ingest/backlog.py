"""A relay's view of the outbox: where to read on, which rows are due, how old the oldest is. PURE.

A shard is read in pages. A pass goes through all of them, also over rows that have to stay, so that
those cannot hide the rows behind them.

A table of leases says which relay looks after which shard: all have the same share. The table is
read, then changed shard by shard under a condition, so another relay may change it in between; the
next plan starts from the result.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidewire.domain.outbox import Lease, LeaseTable, OutboxKey, OutboxRow

AHEAD_MS_MAX: Final = 60_000
"""How far the clock of the gateway that wrote a row may be ahead of the relay's."""


def due_rows(
    rows: Sequence[OutboxRow],
    *,
    now_ms: int,
    after_ms: int,
    is_publishing: Callable[[OutboxKey], bool],
) -> list[OutboxRow]:
    """Rows that this relay must publish: old enough, and not being published by this process. A row
    from far in the future is due too: its clock was wrong, so its age is not known."""
    return [
        row
        for row in rows
        if not -AHEAD_MS_MAX <= now_ms - row.created_at_ms < after_ms and not is_publishing(row.key)
    ]


def pause_ms(failures: int, *, poll_ms: int, pause_ms_max: int) -> int:
    """The time until the next step: the usual one, or longer after each failure in a row."""
    return min(poll_ms << min(failures, 16), max(poll_ms, pause_ms_max))


class Backlog:
    """How far this relay has read its shards, and the age of the rows that stayed there."""

    def __init__(self) -> None:
        self._after: dict[int, str] = {}
        # When the oldest row that stayed was made, by shard: in the last pass, and in this one.
        self._oldest: dict[int, int] = {}
        self._oldest_in_pass: dict[int, int] = {}

    def after(self, shard: int) -> str | None:
        """Where the next page of a shard begins."""
        return self._after.get(shard)

    def saw(self, shard: int, page: Sequence[OutboxRow], *, count_max: int) -> bool:
        """Note that a page was read and handled; True if the shard has more."""
        has_more = len(page) >= count_max
        if has_more:
            self._after[shard] = page[-1].key.row
        else:
            self._after.pop(shard, None)
        return has_more

    def stayed(self, shard: int, rows: Sequence[OutboxRow], *, has_more: bool) -> None:
        """Note which rows of the page are still there."""
        times = [row.created_at_ms for row in rows]
        if shard in self._oldest_in_pass:
            times.append(self._oldest_in_pass[shard])
        if has_more:
            if times:
                self._oldest_in_pass[shard] = min(times)
            return
        self._oldest_in_pass.pop(shard, None)
        if times:
            self._oldest[shard] = min(times)
        else:
            self._oldest.pop(shard, None)

    def forget(self, shard: int) -> None:
        """Forget a shard, because another relay looks after it now."""
        self._after.pop(shard, None)
        self._oldest.pop(shard, None)
        self._oldest_in_pass.pop(shard, None)

    def oldest_ms(self, now_ms: int) -> int:
        """The age of the oldest row that was seen and stayed; 0 if there is none."""
        oldest = min([*self._oldest.values(), *self._oldest_in_pass.values()], default=now_ms)
        return max(0, now_ms - oldest)


class Looks:
    """When to look at which shard: first at once, then after `poll_ms` while a row waits there, and
    after twice the last interval, up to `most_ms`, while none does."""

    def __init__(self, *, shards: int, poll_ms: int, most_ms: int) -> None:
        self._shards = shards
        self._poll_ms = poll_ms
        self._most_ms = max(poll_ms, most_ms)
        # By shard: the time of the next look, and the interval before it.
        self._next: dict[int, tuple[int, int]] = {}

    def __contains__(self, shard: int) -> bool:
        return shard in self._next

    def begin(self, shard: int, now_ms: int) -> None:
        """A shard may have rows: look now, and again after `poll_ms`."""
        self._next[shard] = (now_ms, 0)

    def forget(self, shard: int) -> None:
        self._next.pop(shard, None)

    def due(self, now_ms: int) -> list[int]:
        return sorted(shard for shard, (at_ms, _) in self._next.items() if at_ms <= now_ms)

    def looked(self, shard: int, now_ms: int, *, waits: bool) -> bool:
        """Plan the next look at a shard; `waits`: a row in it is late. True if no row was late for
        so many looks that the interval has reached its maximum."""
        _, before_ms = self._next.get(shard, (0, 0))
        after_ms = self._poll_ms if waits or not before_ms else min(2 * before_ms, self._most_ms)
        wait_ms = after_ms
        if after_ms == self._most_ms > before_ms:
            # From here on the looks at all shards are spread evenly.
            wait_ms = self._most_ms * (shard + 1) // self._shards
        self._next[shard] = (now_ms + wait_ms, after_ms)
        return after_ms == self._most_ms


class LeasePlan(msgspec.Struct, frozen=True):
    take: list[int]
    """Shards that no relay holds."""
    renew: list[int]
    release: list[int]
    """Shards above this relay's fair share, for relays that have less."""


def plan_leases(
    table: LeaseTable, relay_id: str, *, shards: int, now_ms: int, lease_ms: int
) -> LeasePlan:
    """The leases to take, renew and release now. A lease is renewed when half of it is over."""
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
    """All shards. Each relay starts at another one, so that two rarely want the same shard."""
    return [(start + step) % shards for step in range(shards)]


def _is_half_over(lease: Lease, now_ms: int, lease_ms: int) -> bool:
    return lease.until_ms - now_ms <= lease_ms // 2
