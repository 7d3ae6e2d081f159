"""What a relay has seen of the outbox: where to read on, what is due, how old the oldest is. PURE.

A shard is read in pages. A pass goes through all of them, also over rows that have to stay, so that
those cannot hide the ones behind them.

Which relay looks after which shard stands in a table of leases: all have the same share. The table
is read, then changed shard by shard under a condition, so a plan may be overtaken; the next one
starts from what has become of it.
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
    """Rows that will hardly be published otherwise: old enough, and not on their way here. One
    from far in the future was stamped by a clock that was wrong, so its age is not known."""
    return [
        row
        for row in rows
        if not -AHEAD_MS_MAX <= now_ms - row.created_at_ms < after_ms and not is_publishing(row.key)
    ]


def pause_ms(failures: int, *, poll_ms: int, pause_ms_max: int) -> int:
    """How long to leave log and store alone: as long as ever, or longer after each failure."""
    return min(poll_ms << min(failures, 16), max(poll_ms, pause_ms_max))


class Backlog:
    """What was seen of the shards that this relay looks after."""

    def __init__(self) -> None:
        self._after: dict[int, str] = {}
        # The oldest row that stayed, by shard: of the pass before, and of this one so far.
        self._oldest: dict[int, int] = {}
        self._oldest_in_pass: dict[int, int] = {}

    def after(self, shard: int) -> str | None:
        """Where the next page of a shard begins."""
        return self._after.get(shard)

    def saw(self, shard: int, page: Sequence[OutboxRow], *, count_max: int) -> bool:
        """A page was read and dealt with; True if the shard has more."""
        has_more = len(page) >= count_max
        if has_more:
            self._after[shard] = page[-1].key.row
        else:
            self._after.pop(shard, None)
        return has_more

    def stayed(self, shard: int, rows: Sequence[OutboxRow], *, has_more: bool) -> None:
        """These rows of the page are still there."""
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
        """Another relay looks after it now."""
        self._after.pop(shard, None)
        self._oldest.pop(shard, None)
        self._oldest_in_pass.pop(shard, None)

    def oldest_ms(self, now_ms: int) -> int:
        """How old the oldest row is that was seen and stayed; 0 if there is none."""
        oldest = min([*self._oldest.values(), *self._oldest_in_pass.values()], default=now_ms)
        return max(0, now_ms - oldest)


class Looks:
    """When to look at which shard: at once to begin with, a poll later while there is something
    that waits, and after twice as long each time while there is nothing."""

    def __init__(self, *, shards: int, poll_ms: int, most_ms: int) -> None:
        self._shards = shards
        self._poll_ms = poll_ms
        self._most_ms = max(poll_ms, most_ms)
        # The time of the next look, and how long after the one before that is.
        self._next: dict[int, tuple[int, int]] = {}

    def __contains__(self, shard: int) -> bool:
        return shard in self._next

    def begin(self, shard: int, now_ms: int) -> None:
        """There may be something: look now, and soon again."""
        self._next[shard] = (now_ms, 0)

    def forget(self, shard: int) -> None:
        self._next.pop(shard, None)

    def due(self, now_ms: int) -> list[int]:
        return sorted(shard for shard, (at_ms, _) in self._next.items() if at_ms <= now_ms)

    def looked(self, shard: int, now_ms: int, *, waits: bool) -> bool:
        """A shard was looked at; `waits`: something in it is late. True if nothing was for so many
        looks that the next one is as far away as any."""
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
    """More than a fair share, for relays that have less."""


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
