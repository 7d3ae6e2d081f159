"""Makes, renames and closes chats, and changes members. Gives ids and bounds; the store writes.

The store's transaction decides who may do what, by the rules of `domain.access`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidewire.chats.options import ChatOptions
from tidewire.domain import access
from tidewire.domain.audit import AuditAction
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
from tidewire.domain.limits import MEMBERS_PAGE_MAX, MUTE_HOURS_MAX
from tidewire.domain.rates import Limiter, Rate, SharedView
from tidewire.ports.audit import NO_TRAIL, AuditTrail
from tidewire.ports.runtime import Clock, IdSource
from tidewire.ports.storage import ChatStore

_HOUR_MS: Final = 3_600_000
_STRANGER_KEYS_MAX: Final = 100_000
"""How many users are remembered. Beyond it some that added few are forgotten, as if they had added
none."""
_FOREVER_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: the latest that every date library can write."""


@dataclass(eq=False, kw_only=True)
class ChatService:
    """Every method acts for `actor` or reads for `reader`, and refuses what that user may not."""

    store: ChatStore
    clock: Clock
    ids: IdSource
    options: ChatOptions
    trail: AuditTrail = NO_TRAIL

    def __post_init__(self) -> None:
        per_hour = self.options.strangers_per_hour
        # All of an hour's strangers may be drawn in at once, and the allowance comes back evenly.
        self._strangers: Limiter[UserId] = Limiter(
            Rate(per_hour, per_ms=_HOUR_MS, burst=per_hour), keys_max=_STRANGER_KEYS_MAX
        )

    def share_limits(self) -> dict[str, SharedView]:
        """Count strangers over all processes."""
        return {"strangers": self._strangers.share()}

    async def create_direct(
        self, actor: UserId, other: UserId, *, is_counted: bool = True
    ) -> CreatedChat:
        """Find the chat of a pair, or make it if that is allowed. Raises RateLimited if the actor
        has drawn in too many strangers; with `is_counted` False, for an operator, none counts."""
        if is_counted:
            await self._count_strangers(actor, (other,))
        now_ms = self.clock.wall_ms()
        command = CreateDirect(
            chat_id=self.ids.chat_id(now_ms),
            actor_id=actor,
            other_id=other,
            policy=self.options.direct_policy,
        )
        return await self.store.create_direct(command, now_ms=now_ms)

    async def create_group(
        self,
        actor: UserId,
        name: str,
        members: Sequence[UserId],
        *,
        chat_id: ChatId | None = None,
    ) -> CreatedChat:
        """Make a group. With a `chat_id` that the caller has made, a retry finds the first group.
        Raises RateLimited if the actor has drawn in too many strangers."""
        await self._count_strangers(actor, members)
        now_ms = self.clock.wall_ms()
        command = CreateGroup(
            chat_id=chat_id or self.ids.chat_id(now_ms),
            actor_id=actor,
            name=check_chat_name(name),
            member_ids=tuple(members),
        )
        made = await self.store.create_group(
            command, members_max=self.options.group_members_max, now_ms=now_ms
        )
        if made.created:
            self.trail.record(
                AuditAction.GROUP_CREATED,
                actor=actor,
                chat_id=made.chat.chat_id,
                count=len(members) + 1,
            )
        return made

    async def add_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role = Role.MEMBER
    ) -> Member:
        """Add a member. Raises RateLimited if the actor has drawn in too many strangers."""
        await self._count_strangers(actor, (user_id,))
        member = await self.store.add_member(
            actor,
            chat_id,
            user_id,
            role,
            members_max=self.options.group_members_max,
            now_ms=self.clock.wall_ms(),
        )
        self.trail.record(
            AuditAction.MEMBER_ADDED, actor=actor, chat_id=chat_id, target=user_id, reason=role
        )
        return member

    async def remove_member(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> None:
        await self.store.remove_member(actor, chat_id, user_id, now_ms=self.clock.wall_ms())
        self.trail.record(AuditAction.MEMBER_REMOVED, actor=actor, chat_id=chat_id, target=user_id)

    async def leave(self, actor: UserId, chat_id: ChatId, *, for_good: bool = False) -> None:
        """Leave a group; `for_good`: and the actor cannot be added again, until `readmit`."""
        now_ms = self.clock.wall_ms()
        await self.store.leave(actor, chat_id, for_good=for_good, now_ms=now_ms)
        self.trail.record(AuditAction.MEMBER_LEFT, actor=actor, chat_id=chat_id, target=actor)

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role
    ) -> Member:
        member = await self.store.change_role(
            actor, chat_id, user_id, role, now_ms=self.clock.wall_ms()
        )
        self.trail.record(
            AuditAction.ROLE_CHANGED, actor=actor, chat_id=chat_id, target=user_id, reason=role
        )
        return member

    async def hand_over(self, actor: UserId, chat_id: ChatId, user_id: UserId) -> Member:
        """Make another member the owner of the actor's group; the actor stays as an admin."""
        owner = await self.store.hand_over(actor, chat_id, user_id, now_ms=self.clock.wall_ms())
        self.trail.record(
            AuditAction.GROUP_HANDED_OVER, actor=actor, chat_id=chat_id, target=user_id
        )
        return owner

    async def close_group(self, actor: UserId, chat_id: ChatId) -> None:
        """End the actor's group: it has no members any more."""
        await self.store.close_group(actor, chat_id, now_ms=self.clock.wall_ms())
        self.trail.record(AuditAction.GROUP_CLOSED, actor=actor, chat_id=chat_id)

    async def depart(self, actor: UserId, chat_id: ChatId) -> None:
        """Leave a group in any role: as `leave`, but an owner's group passes to the longest-serving
        admin, else member, and closes if there is no other. Every step can be repeated, so a call
        that was interrupted can be repeated. Raises NotAMember if it is done already."""
        while (await self.store.access_chat(actor, chat_id)).me.role is Role.OWNER:
            heir = access.successor(await self.all_members(actor, chat_id), actor)
            if heir is None:
                await self.close_group(actor, chat_id)
                return
            try:
                await self.hand_over(actor, chat_id, heir.user_id)
            except UserNotFound:
                # The heir has left meanwhile: look for another, if any.
                continue
        await self.leave(actor, chat_id)

    async def all_members(self, reader: UserId, chat_id: ChatId) -> list[Member]:
        """Every member, by user id. Raises NotAMember."""
        found: list[Member] = []
        while True:
            after = found[-1].user_id if found else None
            page = await self.store.members(
                reader, chat_id, after=after, count_max=MEMBERS_PAGE_MAX
            )
            found += page
            if len(page) < MEMBERS_PAGE_MAX:
                return found

    async def rename(self, actor: UserId, chat_id: ChatId, name: str) -> ChatAccess:
        renamed = await self.store.rename(
            actor, chat_id, check_chat_name(name), now_ms=self.clock.wall_ms()
        )
        self.trail.record(AuditAction.GROUP_RENAMED, actor=actor, chat_id=chat_id)
        return renamed

    async def mute(self, actor: UserId, chat_id: ChatId, hours: int | None) -> Member:
        """Mute for some hours, at most a year, or (None) until it is unmuted."""
        if hours is None:
            return await self.store.mute(actor, chat_id, _FOREVER_MS)
        if not 1 <= hours <= MUTE_HOURS_MAX:
            raise InvalidOperation(f"a chat is muted for 1 to {MUTE_HOURS_MAX} hours, or for good")
        return await self.store.mute(actor, chat_id, self.clock.wall_ms() + hours * _HOUR_MS)

    async def _count_strangers(self, actor: UserId, others: Sequence[UserId]) -> None:
        """Count every try, also one that is refused later, so that strangers cannot be probed."""
        wanted = [other for other in dict.fromkeys(others) if other != actor]
        strangers = await self.store.strangers(actor, wanted) if wanted else ()
        count, per_hour = len(strangers), self.options.strangers_per_hour
        if not count:
            return
        if count > per_hour:
            # Never allowed at once: answer with the longest wait there is.
            wait_ms = _HOUR_MS
        else:
            wait_ms = self._strangers.take(actor, self.clock.monotonic_ms(), count)
        if wait_ms:
            raise RateLimited(
                f"at most {per_hour} people who share no chat with you can be "
                "drawn into chats in an hour",
                retry_after_ms=wait_ms,
            )
