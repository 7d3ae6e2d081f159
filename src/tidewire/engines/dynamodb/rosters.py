"""Reads a chat with all its members."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tidewire.domain import delivery
from tidewire.domain.chats import Chat, Member, Roster, roster_of
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.acts import CONFLICT_STEPS_MAX, act
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.known import Place
from tidewire.engines.dynamodb.member_cache import MemberCache
from tidewire.engines.dynamodb.own_moves import OwnMoves
from tidewire.engines.dynamodb.reading import Reading
from tidewire.engines.dynamodb.rows import Row
from tidewire.engines.dynamodb.values import MemberState

Members = Mapping[UserId, MemberState]


class FullChat(msgspec.Struct, frozen=True):
    """A chat, its members by user id, and their positions. The head was read first: a member
    who joined since owes nothing up to it, and positions read later can only be higher."""

    chat: Chat
    members: Members
    deliveries: list[delivery.MemberDelivery]
    hidden_through: Mapping[UserId, int]
    """By member who has hidden the chat."""
    last_mention: int
    """The last message that mentions members."""

    def floors(self) -> delivery.Floors:
        head = self.chat.head
        delivered = [
            (
                one.user_id,
                min(head, delivery.effective(one.positions.delivered, one.joined_sequence)),
            )
            for one in self.deliveries
        ]
        read = [
            (one.user_id, min(head, delivery.effective(one.positions.read, one.joined_sequence)))
            for one in self.deliveries
        ]
        return delivery.Floors(
            self.chat.chat_id,
            self.chat.membership_version,
            head,
            delivery.lowest_of(delivered),
            delivery.lowest_of(read),
        )

    def positions(self, user_id: UserId) -> delivery.Positions:
        [own] = [one.positions for one in self.deliveries if one.user_id == user_id]
        return own


class Rosters(Reading):
    _rosters: MemberCache[MemberState]
    _own_moves: OwnMoves

    async def _write_waiting(self, places: Sequence[Place]) -> None:
        """Write the waiting moves of authors before their positions are read: a position that was
        shown and is not stored would go back when this process ends (`Authors`)."""
        raise NotImplementedError

    @act
    async def members(
        self, reader: UserId, chat_id: ChatId, *, after: UserId | None, count_max: int
    ) -> list[Member]:
        found = await self._members(chat_id, after=after, count_max=count_max)
        await self.access_chat(reader, chat_id)
        return [state.member for state in found.values()]

    async def _members(
        self, chat_id: ChatId, *, after: UserId | None = None, count_max: int | None = None
    ) -> dict[UserId, MemberState]:
        """The members by user id, from above `after`."""
        found = await self._database.query(
            schema.MEMBERSHIPS, chat_id, above=after, limit=count_max
        )
        states = [state for row in found if (state := values.member_state_of(row)) is not None]
        return {state.member.user_id: state for state in states}

    async def _chats(self, chat_ids: Sequence[ChatId]) -> list[Chat | None]:
        found = await self._database.get_each(schema.CHATS, chat_ids)
        chats = [values.chat_of(row) for row in found]
        for chat in chats:
            if chat is not None:
                self._known.saw_head(chat.chat_id, chat.head)
        return chats

    @act
    async def roster(self, chat_id: ChatId) -> Roster | None:
        """The members and their version; read again if the version has moved meanwhile."""
        tried = 0
        [chat] = await self._chats([chat_id])
        while chat is not None:
            members, is_exact = await self._members_of(chat)
            if is_exact:
                return roster_of(
                    chat_id,
                    chat.membership_version,
                    {one: members[one].member.joined_sequence for one in sorted(members)},
                    has_block=any(state.is_blocked for state in members.values()),
                )
            await self._database.pause(Hindrance.CONFLICT, min(tried, CONFLICT_STEPS_MAX))
            tried += 1
            [chat] = await self._chats([chat_id])
        return None

    async def _full_chats(self, chat_ids: Sequence[ChatId]) -> list[FullChat | None]:
        """These chats with all their members; None where there is no such chat. One request reads
        many heads, or many positions."""
        heads = await self._database.get_each(schema.CHATS, chat_ids)
        chats = [values.chat_of(row) for row in heads]
        there = [chat for chat in chats if chat is not None]
        rosters = await asyncio.gather(*(self._members_of(chat) for chat in there))
        members_by_chat = {
            chat.chat_id: members for chat, (members, _) in zip(there, rosters, strict=True)
        }
        places = [
            (chat_id, user_id)
            for chat_id, members in members_by_chat.items()
            for user_id in members
        ]
        await self._write_waiting(places)
        rows = await self._database.get_many(
            [
                (schema.POSITIONS, {"user_id": user_id, "chat_id": chat_id})
                for chat_id, user_id in places
            ]
        )
        found = iter(rows)
        return [
            None
            if row is None or chat is None
            else self._full(chat, row, members_by_chat[chat.chat_id], found)
            for row, chat in zip(heads, chats, strict=True)
        ]

    async def _members_of(self, chat: Chat) -> tuple[Members, bool]:
        """The members, and whether they are those of the version that the chat shows. If not, they
        may be newer: missing members have left, and new ones owe nothing up to the chat's head.
        """
        known = self._rosters.find(chat.chat_id, chat.membership_version)
        if known is not None:
            return known, True

        async def look() -> tuple[Members, bool] | None:
            members = await self._members(chat.chat_id)
            [later] = await self._chats([chat.chat_id])
            is_exact = later is not None and later.membership_version == chat.membership_version
            # A row may be committed but not visible yet, or deleted but still visible: the chat's
            # row has the count.
            return None if is_exact and len(members) != chat.member_count else (members, is_exact)

        members, is_exact = await self._database.until_shown(look)
        if is_exact:
            self._rosters.remember(chat.chat_id, chat.membership_version, members)
        return members, is_exact

    def _full(
        self, chat: Chat, head_row: Row, members: Members, positions: Iterator[Row | None]
    ) -> FullChat:
        found = [(state.member, next(positions)) for state in members.values()]
        hidden = {
            member.user_id: row["hidden_through"]
            for member, row in found
            if row is not None and "hidden_through" in row
        }
        deliveries = [_delivery(member, row) for member, row in found]
        return FullChat(chat, members, deliveries, hidden, values.last_mention(head_row))


def _delivery(member: Member, row: Row | None) -> delivery.MemberDelivery:
    return delivery.MemberDelivery(
        user_id=member.user_id,
        joined_sequence=member.joined_sequence,
        positions=values.positions_of(row),
        updated_at_ms=member.joined_at_ms if row is None else row["updated_at"],
    )
