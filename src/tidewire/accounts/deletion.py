"""Deleting an account, in steps that a crash may interrupt anywhere.

The mark comes first, in one act with the end of all sessions: from then on the account is gone for
everybody. Leaving groups and forgetting blocks is many acts, each of which may be repeated; whoever
keeps house does them again until nothing is left.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidewire.accounts.people import OnRosterChanged
from tidewire.accounts.service import OnRevoked
from tidewire.domain.accounts import external_session_id
from tidewire.domain.audit import AuditAction
from tidewire.domain.chats import ChatType
from tidewire.domain.errors import NotAMember, Unavailable
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_LIST_MAX, USERS_PAGE_MAX
from tidewire.domain.users import User
from tidewire.ports.audit import AuditTrail
from tidewire.ports.runtime import Clock
from tidewire.ports.storage import Storage

Depart = Callable[[UserId, ChatId], Awaitable[None]]
"""Takes a user out of a group, whatever the role; an owner's group passes on, or closes. May be
called again. Raises NotAMember if that is done already."""

AT_ONCE_S: Final = 5.0
"""How long the one who deletes an account waits for its groups; the rest is done later."""
SETTLE_MS: Final = 60_000
"""Another process may have looked before the mark and be about to add the user to a group: what
was begun is looked at once more after this, which is longer than any request takes."""
PENDING_AT_ONCE: Final = 100

_logger: Final = logging.getLogger(__name__)


class AccountDeletion:
    """For the account plane, and for whoever keeps house."""

    def __init__(
        self,
        *,
        store: Storage,
        clock: Clock,
        depart: Depart,
        on_revoked: OnRevoked,
        on_roster_changed: OnRosterChanged,
        trail: AuditTrail,
    ) -> None:
        self._store = store
        self._clock = clock
        self._depart = depart
        self._on_revoked = on_revoked
        self._on_roster_changed = on_roster_changed
        self._trail = trail

    async def delete(self, user: User, *, actor: str) -> int:
        """Delete the account; how many sessions ended. It is deleted when this returns; what is
        left of its groups by then is done by `resume`. Raises UserNotFound."""
        is_new = user.deleted_at_ms is None
        ended = await self._store.begin_deletion(user.user_id, now_ms=self._clock.wall_ms())
        # An identity provider may have let the person in: those connections end too.
        self._on_revoked((*ended, external_session_id(user)))
        if is_new:
            self._trail.record(
                AuditAction.ACCOUNT_DELETED, actor=actor, target=user.user_id, count=len(ended)
            )
        try:
            async with asyncio.timeout(AT_ONCE_S):
                await self._clear(user.user_id)
        except (TimeoutError, Unavailable) as error:
            _logger.warning("the deletion of %s goes on later: %s", user.user_id, error)
        return len(ended)

    async def resume(self) -> int:
        """Go on with what was begun; how many are done for good. Raises Unavailable."""
        done = 0
        for user in await self._store.pending_deletions(count_max=PENDING_AT_ONCE):
            await self._clear(user.user_id)
            if self._clock.wall_ms() - (user.deleted_at_ms or 0) >= SETTLE_MS:
                await self._store.finish_deletion(user.user_id)
                done += 1
        return done

    async def _clear(self, user_id: UserId) -> None:
        for chat_id in await self._groups(user_id):
            try:
                await self._depart(user_id, chat_id)
            except NotAMember:
                # Somebody else did it: another process, or an admin.
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
