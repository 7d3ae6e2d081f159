"""The people and chats of the crash tests.

They are derived from a constant, so that each life of a store finds those of the life before, or
makes the missing ones.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from tidewire.domain.chats import CreateDirect, CreateGroup
from tidewire.domain.ids import ChatId, UlidSource, UserId
from tidewire.domain.users import User
from tidewire.ports.storage import Storage

START_MS: Final = 1_800_000_000_000
MEMBERS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Cast:
    """All users and chats, and who is in which chat. The guest joins and leaves the first group."""

    users: tuple[UserId, ...]
    guest: UserId
    directs: tuple[tuple[ChatId, UserId, UserId], ...]
    groups: tuple[tuple[ChatId, tuple[UserId, ...]], ...]

    @property
    def open_group(self) -> ChatId:
        """The group that the guest joins and leaves; the first member is its owner."""
        return self.groups[0][0]

    def chats_of(self, user_id: UserId) -> list[ChatId]:
        """The chats to which the user may try to send; the guest is sometimes refused."""
        if user_id == self.guest:
            return [self.open_group]
        directs = [chat_id for chat_id, *pair in self.directs if user_id in pair]
        return directs + [chat_id for chat_id, members in self.groups if user_id in members]


def make_cast(senders: int) -> Cast:
    """The same people and chats for the same number of senders (the last of them is the guest)."""
    ids = UlidSource(Random(senders).getrandbits)
    users = tuple(ids.user_id(START_MS) for _ in range(senders - 1))
    directs = [
        (ids.chat_id(START_MS), one, other)
        for one, other in zip(users[::2], users[1::2], strict=False)
    ]
    half = len(users) // 2
    groups = [(ids.chat_id(START_MS), members) for members in (users, users[:half], users[half:])]
    return Cast(users, ids.user_id(START_MS), tuple(directs), tuple(groups))


async def establish(storage: Storage, cast: Cast) -> None:
    """Make the people and chats that are not there yet. May be interrupted and done again."""
    await asyncio.gather(
        *[
            storage.add_user(
                User(
                    user_id=user_id,
                    username=f"sender-{number}",
                    display_name=f"Sender {number}",
                    created_at_ms=START_MS,
                    updated_at_ms=START_MS,
                )
            )
            for number, user_id in enumerate((*cast.users, cast.guest))
        ]
    )
    directs = [
        storage.create_direct(
            CreateDirect(chat_id=chat_id, actor_id=one, other_id=other), now_ms=START_MS
        )
        for chat_id, one, other in cast.directs
    ]
    groups = [
        storage.create_group(
            CreateGroup(chat_id=chat_id, actor_id=owner, name="group", member_ids=others),
            members_max=MEMBERS_MAX,
            now_ms=START_MS,
        )
        for chat_id, (owner, *others) in cast.groups
    ]
    await asyncio.gather(*directs, *groups)
