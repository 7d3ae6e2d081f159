"""People as others see them: names, lookups, and who blocks whom."""

from collections.abc import Callable, Sequence

import msgspec

from tidewire.domain.errors import InvalidOperation, UserNotFound
from tidewire.domain.ids import ChatId, UserId, is_safe_token
from tidewire.domain.limits import LOOKUP_NAMES_MAX, USERS_PAGE_MAX
from tidewire.domain.names import RESERVED_NAMES, name_key
from tidewire.domain.users import User, check_chosen_display_name, check_display_name
from tidewire.ports.runtime import Clock
from tidewire.ports.storage import Storage

OnRosterChanged = Callable[[ChatId], None]
"""Called when a chat's roster has a new version without an event: it must be read again."""


class Lookup(msgspec.Struct, frozen=True):
    """The users with these names, and the names that no user has, as they were asked for."""

    users: Sequence[User]
    not_found: Sequence[str]


class PeopleService:
    """Every method acts for `actor`."""

    def __init__(self, *, store: Storage, clock: Clock, on_roster_changed: OnRosterChanged) -> None:
        self._store = store
        self._clock = clock
        self._on_roster_changed = on_roster_changed
        self._has_anybody = False

    async def has_anybody(self) -> bool:
        """False until the first account is made."""
        if not self._has_anybody:
            # Deleted accounts keep their rows: once True, it stays True.
            self._has_anybody = bool(await self._store.list_users(after=None, count_max=1))
        return self._has_anybody

    async def user(self, user_id: UserId) -> User:
        """Raises UserNotFound."""
        found = await self._store.users((user_id,))
        if not found:
            raise UserNotFound(user_id)
        return found[0]

    async def users(self, user_ids: Sequence[UserId]) -> dict[UserId, User]:
        """Those that exist, by id: for the names beside messages and members."""
        return {user.user_id: user for user in await self._store.users(user_ids)}

    async def lookup(self, usernames: Sequence[str]) -> Lookup:
        """Find users by name, disabled ones excluded. Raises InvalidOperation (too many)."""
        if len(usernames) > LOOKUP_NAMES_MAX:
            raise InvalidOperation(f"at most {LOOKUP_NAMES_MAX} names are looked up at once")
        names = [name for name in usernames if is_safe_token(name)]
        found = {
            user.username.casefold(): user
            for user in await self._store.users_named(names)
            if user.disabled_at_ms is None
        }
        return Lookup(
            users=list(found.values()),
            not_found=[name for name in usernames if name.casefold() not in found],
        )

    async def set_display_name(self, actor: UserId, display_name: str) -> User:
        """Raises InvalidOperation for an unusable name, or a reserved one. A reserved name is
        allowed if it is the actor's user name, because then an operator has given it."""
        check_display_name(display_name)
        if name_key(display_name) in RESERVED_NAMES:
            own = (await self.user(actor)).username
            if name_key(own) != name_key(display_name):
                check_chosen_display_name(display_name)
        return await self._store.set_display_name(actor, display_name, now_ms=self._clock.wall_ms())

    async def block(self, actor: UserId, other: UserId) -> None:
        """Refuse messages of another user. A second call changes nothing. Raises UserNotFound,
        InvalidOperation (oneself, or too many)."""
        change = await self._store.block(actor, other, now_ms=self._clock.wall_ms())
        if change.chat_id is not None:
            self._on_roster_changed(change.chat_id)

    async def unblock(self, actor: UserId, other: UserId) -> None:
        """Undo `block`. If the user is not blocked, this changes nothing."""
        change = await self._store.unblock(actor, other)
        if change.chat_id is not None:
            self._on_roster_changed(change.chat_id)

    async def blocked(
        self, actor: UserId, *, after: UserId | None = None, count_max: int = USERS_PAGE_MAX
    ) -> list[UserId]:
        """Whom the actor blocks, by id."""
        return await self._store.blocked_users(
            actor, after=after, count_max=min(count_max, USERS_PAGE_MAX)
        )
