"""A copy of what a member can see of some chats, kept up to date by events alone.

For the test that our sync on reconnect needs (Zulip's verify_action): a stale copy with the events
applied must equal a fresh one. A client can never learn in time what is not in the events.
"""

from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from tests.support.world import World
from tidewire.domain.chats import Chat, ChatType, Role
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    Event,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
    PositionsAdvanced,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Message


@dataclass
class Replica:
    chats: dict[ChatId, Chat] = field(default_factory=dict)
    rosters: dict[ChatId, dict[UserId, tuple[Role, int]]] = field(default_factory=dict)
    """By chat: role and joined_sequence of each member."""
    messages: dict[ChatId, list[Message]] = field(default_factory=dict)

    @classmethod
    async def of(cls, world: World, reader: UserId, *chat_ids: ChatId) -> "Replica":
        """A fresh copy, as a reader sees it who is a member of all these chats."""
        replica = cls()
        for chat_id in chat_ids:
            replica.chats[chat_id] = await world.chat(reader, chat_id)
            members = await world.members(reader, chat_id)
            replica.rosters[chat_id] = {
                user_id: (member.role, member.joined_sequence)
                for user_id, member in members.items()
            }
            replica.messages[chat_id] = await world.messages(reader, chat_id)
        return replica

    def apply(self, event: Event) -> None:
        """Apply an event, which must fit: a wrong version or link means a lost or repeated one."""
        match event:
            case MessageAppended():
                self._append(event)
            case ChatCreated():
                self._create(event)
            case ChatRenamed():
                self._replace(event.chat)
            case MembershipChanged():
                self._replace(event.chat)
                roster = self.rosters[event.chat.chat_id]
                if event.change is MembershipChange.REMOVED:
                    assert roster.pop(event.user_id) == (event.role, event.joined_sequence)
                else:
                    assert (event.user_id in roster) == (event.change != MembershipChange.ADDED)
                    roster[event.user_id] = (event.role, event.joined_sequence)
            case ChatClosed():
                self._replace(event.chat)
                assert set(event.member_ids) == set(self.rosters[event.chat.chat_id])
                self.rosters[event.chat.chat_id] = {}
            case PositionsAdvanced():
                pass  # Positions are compared where they are tested: an own message moves them too.
            case _:
                assert_never(event)

    def _append(self, event: MessageAppended) -> None:
        message = event.message
        chat = self.chats[message.chat_id]
        assert message.prev_sequence == chat.head
        assert event.membership_version == chat.membership_version
        assert message.sender_id in self.rosters[message.chat_id]
        self.messages[message.chat_id].append(message)
        self.chats[message.chat_id] = msgspec.structs.replace(chat, head=message.sequence)

    def _create(self, event: ChatCreated) -> None:
        chat = event.chat
        assert chat.chat_id not in self.chats
        assert chat.member_count == len(event.member_ids)
        is_group = chat.chat_type is ChatType.GROUP
        self.chats[chat.chat_id] = chat
        self.messages[chat.chat_id] = []
        self.rosters[chat.chat_id] = {
            user_id: (Role.OWNER if is_group and user_id == chat.created_by else Role.MEMBER, 0)
            for user_id in event.member_ids
        }

    def _replace(self, chat: Chat) -> None:
        old = self.chats[chat.chat_id]
        assert chat.membership_version == old.membership_version + 1
        assert chat.head == old.head
        self.chats[chat.chat_id] = chat
