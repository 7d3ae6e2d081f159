"""The commits that the event log may not have yet, as far as this process knows, with times. PURE.

A commit is kept here from when it is made, or from when the relay could not publish its row, until
the log has it or its row is gone: then another relay has published it.
"""

from collections.abc import Collection
from math import inf

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.domain.lag import Behind, Former, gathered
from tidewire.domain.outbox import OutboxKey


class _Commit(msgspec.Struct, frozen=True):
    chat_id: ChatId
    former: Former
    since_ms: int


class Unlogged:
    """Bounded: a commit beyond the bound is not kept, and the chats that wait are unknown until
    the log has every commit that waited at that time."""

    def __init__(self, *, commits_max: int) -> None:
        self._commits_max = commits_max
        self._count = 0
        self._by_shard: dict[int, dict[OutboxKey, _Commit]] = {}
        # When the first and the last commit found no room here.
        self._no_room_ms: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._count

    def committed(self, key: OutboxKey, chat_id: ChatId, former: Former, now_ms: int) -> None:
        """Note a commit that waits. One that is known already keeps its earlier time."""
        commits = self._by_shard.setdefault(key.shard, {})
        if key in commits:
            return
        if self._count >= self._commits_max:
            first_ms = now_ms if self._no_room_ms is None else self._no_room_ms[0]
            self._no_room_ms = first_ms, now_ms
            return
        commits[key] = _Commit(chat_id, former, now_ms)
        self._count += 1

    def logged(self, key: OutboxKey) -> None:
        """Forget a commit that the log has."""
        if self._by_shard.get(key.shard, {}).pop(key, None) is not None:
            self._count -= 1
        # Do not wait until no commit is left: under load there is always one on its way.
        if self._no_room_ms is not None and self._oldest_ms() > self._no_room_ms[1]:
            self._no_room_ms = None

    def keys_in(self, shard: int) -> list[OutboxKey]:
        return list(self._by_shard.get(shard, ()))

    def gone(self, keys: Collection[OutboxKey]) -> None:
        """Forget commits whose rows are not in the outbox any more."""
        for key in keys:
            self.logged(key)

    def since(self, before_ms: int) -> Behind | None:
        """The chats of commits that have waited since `before_ms` or longer; None: any chat may."""
        if self._no_room_ms is not None and self._no_room_ms[0] <= before_ms:
            return None
        return gathered(
            (one.chat_id, one.former)
            for commits in self._by_shard.values()
            for one in commits.values()
            if one.since_ms <= before_ms
        )

    def _oldest_ms(self) -> float:
        """Since when the oldest commit waits. Each shard has its oldest first."""
        firsts = (next(iter(commits.values())) for commits in self._by_shard.values() if commits)
        return min((one.since_ms for one in firsts), default=inf)
