"""The view `pending_deliveries` against the same question answered the long way.

Method: a random history of joins, leaves, re-adds, sends and acknowledgements; then the view is
compared with a loop over every member and every message.
"""

from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

import apsw
import pytest

from tests.engines.sqlite.store import Stores, open_beside, store_of
from tests.support.world import World
from tidewire.domain.errors import Refused
from tidewire.domain.ids import ChatId, UserId


class History:
    """People who do random things in a few groups."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(seed)
        self._people: list[UserId] = []
        self._groups: dict[ChatId, UserId] = {}

    async def begin(self) -> None:
        self._people = await self._world.people(8)
        for owner in self._people[:3]:
            self._groups[await self._world.group(owner)] = owner

    async def go_on(self) -> None:
        """One more act; whoever may not do it is refused."""
        chat, owner = self._random.choice(list(self._groups.items()))
        somebody = self._random.choice(self._people)
        act = self._random.choice(
            [self._send, self._send, self._ack, self._read, self._join, self._join, self._part]
        )
        with suppress(Refused):
            await act(chat, owner, somebody)

    async def _send(self, chat: ChatId, owner: UserId, somebody: UserId) -> None:
        await self._world.try_send(chat, somebody)

    async def _ack(self, chat: ChatId, owner: UserId, somebody: UserId) -> None:
        await self._world.try_ack(somebody, chat, self._random.randrange(40))

    async def _read(self, chat: ChatId, owner: UserId, somebody: UserId) -> None:
        await self._world.try_read(somebody, chat, self._random.randrange(20))

    async def _join(self, chat: ChatId, owner: UserId, somebody: UserId) -> None:
        await self._world.add(owner, chat, somebody)

    async def _part(self, chat: ChatId, owner: UserId, somebody: UserId) -> None:
        await self._world.remove(owner, chat, somebody)


def pending_the_long_way(
    members: Iterable[tuple[Any, ...]],
    acknowledged: dict[tuple[str, str], int],
    messages: list[tuple[Any, ...]],
) -> list[tuple[str, str, int]]:
    found = []
    for chat, user, joined in members:
        position = max(joined, acknowledged[user, chat])
        missing = [
            sequence
            for in_chat, sequence, sender in messages
            if in_chat == chat and sender != user and sequence > position
        ]
        if missing:
            found.append((user, chat, min(missing)))
    return sorted(found)


@pytest.mark.parametrize("seed", range(4))
async def test_pending_deliveries_agree_with_a_count_by_hand(stores: Stores, seed: int) -> None:
    world = await stores.open()
    history = History(world, seed)
    await history.begin()
    looks = []
    database = open_beside(store_of(world).path)
    for _ in range(6):
        for _ in range(20):
            await history.go_on()
        looks.append(compare(database))
    # Or this proves nothing: some are waited for, some members are not, and some have left.
    assert any(0 < pending < members < states for pending, members, states in looks), looks
    # Positions that no history leads to, such as one just below one's own message.
    for lower in range(1, 8):
        database.execute("BEGIN")
        database.execute(
            "UPDATE delivery_state SET last_acked_sequence = max(last_acked_sequence - ?, 0)",
            (lower,),
        )
        compare(database)
        database.execute("ROLLBACK")
    database.close()


def compare(database: apsw.Connection) -> tuple[int, int, int]:
    """Compare the two answers; how many are pending, how many members and positions there are."""
    view = rows_of(
        database, "SELECT user_id, chat_id, first_undelivered_sequence FROM pending_deliveries"
    )
    members = rows_of(database, "SELECT chat_id, user_id, joined_sequence FROM chat_memberships")
    states = rows_of(database, "SELECT user_id, chat_id, last_acked_sequence FROM delivery_state")
    messages = rows_of(database, "SELECT chat_id, sequence, sender_id FROM messages")
    acknowledged = {(user, chat): position for user, chat, position in states}
    assert sorted(view) == pending_the_long_way(members, acknowledged, messages)
    return len(view), len(members), len(states)


def rows_of(database: apsw.Connection, query: str) -> list[tuple[Any, ...]]:
    return database.execute(query).fetchall()
