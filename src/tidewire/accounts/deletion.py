"""Deleting an account, in steps that a crash may interrupt anywhere.

The mark comes first, in one act with the end of all sessions: from then on the account is gone for
all others. Leaving groups and removing blocks is many acts, each of which may be repeated;
`AccountAdmin.keep_house` repeats them until none is left. If the person has asked that the messages
go too, a task of its own erases them, as long as there are any.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidewire.accounts.people import OnRosterChanged
from tidewire.accounts.plane import AccountPlane
from tidewire.domain.accounts import external_session_id
from tidewire.domain.audit import AuditAction
from tidewire.domain.chats import ChatType
from tidewire.domain.errors import NotAMember, TidewireError, Unavailable
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_LIST_MAX, USERS_PAGE_MAX
from tidewire.domain.users import User

Depart = Callable[[UserId, ChatId], Awaitable[None]]
"""Takes a user out of a group, in any role; an owner's group gets another owner, or closes. May be
called again. Raises NotAMember if the user has left already."""

Erase = Callable[[UserId], Awaitable[None]]
"""Deletes all messages of a user who cannot write any more. May be called again, and goes on with
the messages that are left. Raises the errors of a send."""

AT_ONCE_S: Final = 5.0
"""How long the caller that deletes an account waits until its groups are left, and its messages
erased if wanted; the rest is done later."""
SETTLE_MS: Final = 60_000
"""A deletion is finished only after this time, which is longer than any request takes: another
process may have read the account before the mark and may still add the user to a group."""
PENDING_AT_ONCE: Final = 100

_logger: Final = logging.getLogger(__name__)


class AccountDeletion:
    """Deletes accounts at once as far as it can, and the rest later."""

    def __init__(
        self,
        plane: AccountPlane,
        *,
        depart: Depart,
        erase: Erase,
        on_roster_changed: OnRosterChanged,
    ) -> None:
        self._plane = plane
        self._store = plane.store
        self._clock = plane.clock
        self._depart = depart
        self._erase = erase
        self._on_roster_changed = on_roster_changed

    async def delete(self, user: User, *, actor: str, erases: bool = False) -> int:
        """Delete the account; return how many sessions ended. It is deleted when this returns.
        `resume` leaves the groups that are left by then; `resume_erasures` deletes the messages
        that are left, if `erases`. Raises UserNotFound."""
        is_new = user.deleted_at_ms is None
        ended = await self._store.begin_deletion(
            user.user_id, now_ms=self._clock.wall_ms(), erases=erases
        )
        # An identity provider may have let the person in: those connections end too.
        self._plane.revoked((*ended, external_session_id(user)))
        if is_new:
            self._plane.trail.record(
                AuditAction.ACCOUNT_DELETED, actor=actor, target=user.user_id, count=len(ended)
            )
        try:
            async with asyncio.timeout(AT_ONCE_S):
                await self._clear(user.user_id)
                if erases:
                    await self._try_to_erase(user.user_id)
        except (TimeoutError, Unavailable) as error:
            _logger.warning(
                "the deletion of %s could not be finished yet and goes on later: %s",
                user.user_id,
                error,
            )
        return len(ended)

    async def resume(self) -> int:
        """Go on with deletions that were begun; return how many are done. Raises Unavailable."""
        done = 0
        for pending in await self._store.pending_deletions(count_max=PENDING_AT_ONCE):
            user = pending.user
            await self._clear(user.user_id)
            if not pending.erases and self._is_settled(user):
                await self._store.finish_deletion(user.user_id)
                done += 1
        return done

    async def resume_erasures(self) -> int:
        """Go on erasing messages; return how many accounts are finished. The name is erased last,
        when no message is left that shows it. Raises Unavailable."""
        done = 0
        for pending in await self._store.pending_deletions(count_max=PENDING_AT_ONCE):
            user = pending.user
            # Ask before the erasure begins: if it is settled, all sends of the user are stored.
            is_settled = self._is_settled(user)
            if not pending.erases or not await self._try_to_erase(user.user_id) or not is_settled:
                continue
            await self._clear(user.user_id)
            await self._store.erase_name(user.user_id, now_ms=self._clock.wall_ms())
            await self._store.finish_deletion(user.user_id)
            done += 1
        return done

    def _is_settled(self, user: User) -> bool:
        return self._clock.wall_ms() - (user.deleted_at_ms or 0) >= SETTLE_MS

    async def _try_to_erase(self, user_id: UserId) -> bool:
        """True if all messages that were found are erased. A fault must not stop the erasure of
        other people's messages."""
        try:
            await self._erase(user_id)
        except TidewireError as error:
            _logger.warning(
                "the messages of %s could not be erased yet; it is tried again later: %s",
                user_id,
                error,
            )
            return False
        return True

    async def _clear(self, user_id: UserId) -> None:
        for chat_id in await self._groups(user_id):
            try:
                await self._depart(user_id, chat_id)
            except NotAMember:
                # The user is out already, by another process or an admin.
                continue
        while blocked := await self._store.blocked_users(
            user_id, after=None, count_max=USERS_PAGE_MAX
        ):
            for other in blocked:
                change = await self._store.unblock(user_id, other)
                if change.chat_id is not None:
                    self._on_roster_changed(change.chat_id)

    async def _groups(self, user_id: UserId) -> list[ChatId]:
        found: list[ChatId] = []
        after: ChatId | None = None
        while True:
            page = await self._store.digest(user_id, after=after, count_max=CHAT_LIST_MAX)
            found += [one.chat_id for one in page.entries if one.chat_type is ChatType.GROUP]
            after = page.next_chat_id
            if after is None:
                return found
