"""Which commits the event log may not have yet, as far as this process knows, and since when. PURE.

A commit is known here from when it is made, or from when the relay finds its row, until the log has
it or its row is seen to be gone: another relay has published it then.
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
    """Bounded: past it, it is not known any more which chats wait, until all is in the log that
    waited then."""

    def __init__(self, *, commits_max: int) -> None:
        self._commits_max = commits_max
        self._count = 0
        self._by_shard: dict[int, dict[OutboxKey, _Commit]] = {}
        # When the first and the last commit found no room here.
        self._no_room_ms: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._count

    def committed(self, key: OutboxKey, chat_id: ChatId, former: Former, now_ms: int) -> None:
        """A commit waits; one that is known already has waited for longer."""
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
        """The log has it."""
        if self._by_shard.get(key.shard, {}).pop(key, None) is not None:
            self._count -= 1
        # Not only when nothing waits: under load there is always a commit on its way.
        if self._no_room_ms is not None and self._oldest_ms() > self._no_room_ms[1]:
            self._no_room_ms = None

    def keys_in(self, shard: int) -> list[OutboxKey]:
        return list(self._by_shard.get(shard, ()))

    def gone(self, keys: Collection[OutboxKey]) -> None:
        """Their rows are not in the outbox any more."""
        for key in keys:
            self.logged(key)

    def since(self, before_ms: int) -> Behind | None:
        """The chats of commits that wait since then or longer; None: it may be any chat."""
        if self._no_room_ms is not None and self._no_room_ms[0] <= before_ms:
            return None
        return gathered(
            (one.chat_id, one.former)
            for commits in self._by_shard.values()
            for one in commits.values()
            if one.since_ms <= before_ms
        )

    def _oldest_ms(self) -> float:
        """Since when the one waits that waits longest. Each shard has its oldest first."""
        firsts = (next(iter(commits.values())) for commits in self._by_shard.values() if commits)
        return min((one.since_ms for one in firsts), default=inf)
