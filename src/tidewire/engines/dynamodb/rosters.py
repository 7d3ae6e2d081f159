"""Reading a chat with everybody in it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tidewire.domain.chats import Chat, Member, Roster, roster_of
from tidewire.domain.delivery import (
    Floors,
    MemberDelivery,
    Positions,
    effective,
    lowest_of,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.roster_cache import RosterCache
from tidewire.engines.dynamodb.values import MemberState


class FullChat(msgspec.Struct, frozen=True):
    """A chat, its members by user id and where they stand. The head was read first: whoever joined
    since owes nothing up to it, and positions read later can only be higher."""

    chat: Chat
    members: Mapping[UserId, MemberState]
    deliveries: list[MemberDelivery]
    hidden_through: Mapping[UserId, int]
    """Of those who have hidden it."""

    def floors(self) -> Floors:
        head = self.chat.head
        delivered = [
            (one.user_id, min(head, effective(one.positions.delivered, one.joined_sequence)))
            for one in self.deliveries
        ]
        read = [
            (one.user_id, min(head, effective(one.positions.read, one.joined_sequence)))
            for one in self.deliveries
        ]
        return Floors(self.chat.chat_id, head, lowest_of(delivered), lowest_of(read))

    def positions(self, user_id: UserId) -> Positions:
        [own] = [one.positions for one in self.deliveries if one.user_id == user_id]
        return own


async def read_members(
    database: Database,
    chat_id: ChatId,
    *,
    after: UserId | None = None,
    count_max: int | None = None,
) -> dict[UserId, MemberState]:
    """The members by user id, from above `after`."""
    found = await database.query(schema.MEMBERSHIPS, chat_id, above=after, limit=count_max)
    states = [state for row in found if (state := values.member_state_of(row)) is not None]
    return {state.member.user_id: state for state in states}


async def _read_head(database: Database, chat_id: ChatId) -> Chat | None:
    [row] = await database.get_many([(schema.CHATS, {"chat_id": chat_id})])
    return values.chat_of(row)


async def read_roster(database: Database, cache: RosterCache, chat_id: ChatId) -> Roster | None:
    """The members and the version that is true of: read again if it moved meanwhile."""
    tried = 0
    chat = await _read_head(database, chat_id)
    while chat is not None:
        members, is_exact = await _members_of(database, cache, chat)
        if is_exact:
            return roster_of(
                chat_id,
                chat.membership_version,
                {user_id: members[user_id].member.joined_sequence for user_id in sorted(members)},
                has_block=any(state.is_blocked for state in members.values()),
            )
        await database.pause(Hindrance.CONFLICT, min(tried, 2))
        tried += 1
        chat = await _read_head(database, chat_id)
    return None


async def read_full(
    database: Database, cache: RosterCache, chat_ids: Sequence[ChatId]
) -> list[FullChat | None]:
    """These chats with everybody in them; None where there is no such chat. However many they are,
    a head, and a position, is one key of a request, not a request."""
    heads = await database.get_many([(schema.CHATS, {"chat_id": one}) for one in chat_ids])
    chats = [values.chat_of(row) for row in heads]
    there = [chat for chat in chats if chat is not None]
    rosters = await asyncio.gather(*(_members_of(database, cache, chat) for chat in there))
    members_by_chat = {
        chat.chat_id: members for chat, (members, _) in zip(there, rosters, strict=True)
    }
    wanted: list[tuple[str, dict[str, rows.Value]]] = [
        (schema.POSITIONS, {"user_id": user_id, "chat_id": chat_id})
        for chat_id, members in members_by_chat.items()
        for user_id in members
    ]
    found = iter(await database.get_many(wanted))
    return [
        None if chat is None else _full(chat, members_by_chat[chat.chat_id], found)
        for chat in chats
    ]


async def _members_of(
    database: Database, cache: RosterCache, chat: Chat
) -> tuple[Mapping[UserId, MemberState], bool]:
    """The members, and whether they are those of the version that the chat shows. They may be newer
    otherwise: then those who are missing are out, and whoever came owes nothing up to that head."""
    known = cache.find(chat.chat_id, chat.membership_version)
    if known is not None:
        return known, True
    members = await read_members(database, chat.chat_id)
    later = await _read_head(database, chat.chat_id)
    is_exact = later is not None and later.membership_version == chat.membership_version
    if is_exact:
        cache.remember(chat.chat_id, chat.membership_version, members)
    return members, is_exact


def _full(
    chat: Chat, members: Mapping[UserId, MemberState], positions: Iterator[dict[str, int] | None]
) -> FullChat:
    found = [(state.member, next(positions)) for state in members.values()]
    deliveries = [_delivery(member, row) for member, row in found]
    hidden = {
        member.user_id: row["hidden_through"]
        for member, row in found
        if row is not None and "hidden_through" in row
    }
    return FullChat(chat, members, deliveries, hidden)


def _delivery(member: Member, row: dict[str, int] | None) -> MemberDelivery:
    return MemberDelivery(
        user_id=member.user_id,
        joined_sequence=member.joined_sequence,
        positions=values.positions_of(row),
        updated_at_ms=member.joined_at_ms if row is None else row["updated_at"],
    )
