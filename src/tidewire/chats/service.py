"""Chats: made, joined, left, renamed. Gives them ids and bounds; the store decides and writes.

Who may do what is decided inside the store's transaction, by the rules of `domain.access`.
"""

from collections.abc import Sequence
from typing import Final

from tidewire.chats.options import ChatOptions
from tidewire.chats.strangers import StrangerBudget
from tidewire.domain import access
from tidewire.domain.audit import AuditAction
from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.chats import (
    ChatAccess,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    check_chat_name,
)
from tidewire.domain.errors import InvalidOperation, RateLimited, UserNotFound
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_LIST_MAX, MEMBERS_PAGE_MAX, MUTE_HOURS_MAX
from tidewire.domain.shared_limits import SharedView
from tidewire.ports.audit import NO_TRAIL, AuditTrail
from tidewire.ports.runtime import Clock, IdSource
from tidewire.ports.storage import ChatStore

_HOUR_MS: Final = 3_600_000
_FOREVER_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: the latest that every date library can write."""


class ChatService:
    """Every method acts for `actor` or reads for `reader`, and refuses what he may not."""

    def __init__(
        self,
        *,
        store: ChatStore,
        clock: Clock,
        ids: IdSource,
        options: ChatOptions,
        trail: AuditTrail = NO_TRAIL,
    ) -> None:
        self._store = store
        self._trail = trail
        self._clock = clock
        self._ids = ids
        self._options = options
        self._strangers = StrangerBudget(options.strangers_per_hour)

    def share_limits(self) -> dict[str, SharedView]:
        """Count strangers over all processes."""
        return {"strangers": self._strangers.share()}

    async def create_direct(
        self, actor: UserId, other: UserId, *, is_counted: bool = True
    ) -> CreatedChat:
        """The chat of a pair, found, or made if that is allowed. Raises RateLimited if the actor
        has drawn in too many strangers; not `is_counted`: an operator asks for it."""
        if is_counted:
            await self._count_strangers(actor, (other,))
        now_ms = self._clock.wall_ms()
        command = CreateDirect(
            chat_id=self._ids.chat_id(now_ms),
            actor_id=actor,
            other_id=other,
            policy=self._options.direct_policy,
        )
        return await self._store.create_direct(command, now_ms=now_ms)

    async def create_group(
        self,
        actor: UserId,
        name: str,
        members: Sequence[UserId],
        *,
        chat_id: ChatId | None = None,
    ) -> CreatedChat:
        """A new group. With a `chat_id` of the caller's making, a retry finds the first one.
        Raises RateLimited if the actor has drawn in too many strangers."""
        await self._count_strangers(actor, members)
        now_ms = self._clock.wall_ms()
        command = CreateGroup(
            chat_id=chat_id or self._ids.chat_id(now_ms),
            actor_id=actor,
            name=check_chat_name(name),
            member_ids=tuple(members),
        )
        made = await self._store.create_group(
            command, members_max=self._options.group_members_max, now_ms=now_ms
        )
        if made.created:
            self._note(AuditAction.GROUP_CREATED, actor, made.chat.chat_id, count=len(members) + 1)
        return made

    async def add_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role = Role.MEMBER
    ) -> Member:
        """Raises RateLimited if the actor has drawn in too many strangers."""
        await self._count_strangers(actor, (user_id,))
        member = await self._store.add_member(
            actor,
            chat_id,
            user_id,
            role,
            members_max=self._options.group_members_max,
            now_ms=self._clock.wall_ms(),
        )
        self._note(AuditAction.MEMBER_ADDED, actor, chat_id, user_id, reason=role)
        return member

    async def remove_member(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> None:
        await self._store.remove_member(actor, chat_id, user_id, now_ms=self._clock.wall_ms())
        self._note(AuditAction.MEMBER_REMOVED, actor, chat_id, user_id)

    async def leave(self, actor: UserId, chat_id: ChatId, *, for_good: bool = False) -> None:
        """Leave a group; `for_good`: and nobody adds the actor again, until `readmit`."""
        now_ms = self._clock.wall_ms()
        await self._store.leave(actor, chat_id, for_good=for_good, now_ms=now_ms)
        self._note(AuditAction.MEMBER_LEFT, actor, chat_id, actor)

    async def readmit(self, actor: UserId, chat_id: ChatId) -> None:
        """Let the actor be added again to a group that was left for good."""
        await self._store.readmit(actor, chat_id)

    async def refused_groups(
        self, actor: UserId, *, after: ChatId | None = None, count_max: int = CHAT_LIST_MAX
    ) -> list[ChatId]:
        """The groups that the actor has left for good, by id."""
        return await self._store.refused_groups(
            actor, after=after, count_max=min(count_max, CHAT_LIST_MAX + 1)
        )

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role
    ) -> Member:
        member = await self._store.change_role(
            actor, chat_id, user_id, role, now_ms=self._clock.wall_ms()
        )
        self._note(AuditAction.ROLE_CHANGED, actor, chat_id, user_id, reason=role)
        return member

    async def hand_over(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> Member:
        """Make another member the owner of the actor's group; the actor stays as an admin."""
        owner = await self._store.hand_over(actor, chat_id, user_id, now_ms=self._clock.wall_ms())
        self._note(AuditAction.GROUP_HANDED_OVER, actor, chat_id, user_id)
        return owner

    async def close_group(self, actor: UserId, chat_id: ChatId) -> None:
        """End the actor's group: it has no members any more."""
        await self._store.close_group(actor, chat_id, now_ms=self._clock.wall_ms())
        self._note(AuditAction.GROUP_CLOSED, actor, chat_id)

    async def depart(self, actor: UserId, chat_id: ChatId) -> None:
        """Leave a group whatever the actor's role is: as `leave`, but an owner's group passes to
        the longest-serving admin, then member, and closes if there is no other. Every step may be
        done again, so a call that broke off may be repeated. Raises NotAMember when it is done."""
        while (await self._store.access_chat(actor, chat_id)).me.role is Role.OWNER:
            heir = access.successor(await self._all_members(actor, chat_id), actor)
            if heir is None:
                await self.close_group(actor, chat_id)
                return
            try:
                await self.hand_over(actor, chat_id, heir.user_id)
            except UserNotFound:
                # The heir has left meanwhile: there is another, or none.
                continue
        await self.leave(actor, chat_id)

    async def _all_members(self, reader: UserId, chat_id: ChatId) -> list[Member]:
        found: list[Member] = []
        while True:
            after = found[-1].user_id if found else None
            page = await self.members(reader, chat_id, after=after)
            found += page
            if len(page) < MEMBERS_PAGE_MAX:
                return found

    async def rename(self, actor: UserId, chat_id: ChatId, name: str) -> ChatAccess:
        renamed = await self._store.rename(
            actor, chat_id, check_chat_name(name), now_ms=self._clock.wall_ms()
        )
        self._note(AuditAction.GROUP_RENAMED, actor, chat_id)
        return renamed

    async def mute(self, actor: UserId, chat_id: ChatId, hours: int | None) -> Member:
        """Mute for some hours, at most a year, or (None) until it is unmuted."""
        if hours is None:
            return await self._store.mute(actor, chat_id, _FOREVER_MS)
        if not 1 <= hours <= MUTE_HOURS_MAX:
            raise InvalidOperation(f"a chat is muted for 1 to {MUTE_HOURS_MAX} hours, or for good")
        return await self._store.mute(actor, chat_id, self._clock.wall_ms() + hours * _HOUR_MS)

    async def unmute(self, actor: UserId, chat_id: ChatId) -> Member:
        return await self._store.mute(actor, chat_id, None)

    async def hide(self, actor: UserId, chat_id: ChatId) -> None:
        """Hide a direct chat from the actor until there is another message in it."""
        await self._store.hide(actor, chat_id, wanted=True)

    async def unhide(self, actor: UserId, chat_id: ChatId) -> None:
        await self._store.hide(actor, chat_id, wanted=False)

    async def access(self, reader: UserId, chat_id: ChatId) -> ChatAccess:
        """The chat and the reader's membership in it, or NotAMember."""
        return await self._store.access_chat(reader, chat_id)

    async def members(
        self,
        reader: UserId,
        chat_id: ChatId,
        *,
        after: UserId | None = None,
        count_max: int = MEMBERS_PAGE_MAX,
    ) -> list[Member]:
        return await self._store.members(
            reader, chat_id, after=after, count_max=min(count_max, MEMBERS_PAGE_MAX)
        )

    async def chat_list(
        self,
        reader: UserId,
        *,
        cursor: ChatListCursor | None = None,
        count_max: int = CHAT_LIST_MAX,
        active_since_ms: int = 0,
    ) -> ChatListPage:
        """The reader's chats, newest activity first."""
        return await self._store.chat_list(
            reader,
            cursor=cursor,
            count_max=min(count_max, CHAT_LIST_MAX),
            active_since_ms=active_since_ms,
        )

    async def _count_strangers(self, actor: UserId, others: Sequence[UserId]) -> None:
        """Every try counts, also one that is refused later: so strangers cannot be tried out."""
        wanted = [other for other in dict.fromkeys(others) if other != actor]
        strangers = await self._store.strangers(actor, wanted) if wanted else ()
        wait_ms = self._strangers.take(actor, len(strangers), self._clock.monotonic_ms())
        if wait_ms:
            raise RateLimited(
                f"at most {self._strangers.per_hour} people who share no chat with you can be "
                "drawn into chats in an hour",
                retry_after_ms=wait_ms,
            )

    def _note(
        self,
        action: AuditAction,
        actor: UserId,
        chat_id: ChatId,
        target: UserId | None = None,
        *,
        reason: str | None = None,
        count: int | None = None,
    ) -> None:
        self._trail.record(
            action, actor=actor, target=target, chat_id=chat_id, reason=reason, count=count
        )
