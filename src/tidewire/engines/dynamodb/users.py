"""People, their names and their passwords."""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.domain.accounts import Credentials, ExternalIdentity, Invite, NewAccount
from tidewire.domain.errors import InvalidInvite, StoreUnavailable, UsernameTaken, UserNotFound
from tidewire.domain.ids import UserId
from tidewire.domain.login_places import decode_places
from tidewire.domain.users import PendingDeletion, User, as_enabled, as_erased
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import Part, act, until_answered, until_committed
from tidewire.engines.dynamodb.backoff import CONDITION_FAILED
from tidewire.engines.dynamodb.errors import Cancelled, ConditionFailed
from tidewire.engines.dynamodb.rows import Row, Value, Write

INITIALS: Final = "-.0123456789:_abcdefghijklmnopqrstuvwxyz"
"""The first characters that a name can have, case-folded, in the order of the list of names."""


class Users(Part):
    async def _user_row(self, user_id: UserId) -> Row:
        row = await self._database.get(schema.USERS, {"user_id": user_id})
        if row is None:
            raise UserNotFound(user_id)
        return row

    @act
    async def add_user(self, user: User) -> User:
        return await self._add_user(user)

    async def _add_user(
        self, user: User, *, password_hash: str | None = None, invite: Write | None = None
    ) -> User:
        """Store a user under a free name; if the user_id exists already, return its user."""
        writes = [
            rows.put_new(schema.USERS, values.user_row(user, password_hash=password_hash)),
            rows.put_new(schema.USERNAMES, values.name_row(user)),
        ]
        try:
            await self._database.transact(writes if invite is None else [*writes, invite])
        except Cancelled as cancelled:
            known = await self._database.get(schema.USERS, {"user_id": user.user_id})
            if known is not None:
                return values.USER.value(known)
            if invite is not None and cancelled.codes[2] == CONDITION_FAILED:
                raise InvalidInvite from cancelled
            raise UsernameTaken(user.username) from cancelled
        return user

    @act
    async def register(self, account: NewAccount, *, now_ms: int) -> User:
        invite = None
        if account.invite_hash is not None:
            invite = rows.change(
                schema.INVITES,
                {"code_hash": account.invite_hash},
                {"used_by": account.user.user_id},
                where={"used_by": None},
                condition="#expires_at > :now",
                now=now_ms,
            )
        return await self._add_user(
            account.user, password_hash=account.password_hash, invite=invite
        )

    @act
    async def add_invite(self, invite: Invite) -> None:
        row: dict[str, Value] = {
            "code_hash": invite.code_hash,
            "created_by": invite.created_by,
            "created_at": invite.created_at_ms,
            "expires_at": invite.expires_at_ms,
            "ttl": values.expiry(invite.expires_at_ms),
        }
        await self._database.commit([rows.put_new(schema.INVITES, row)])

    @act
    async def is_invite_open(self, code_hash: bytes, *, now_ms: int) -> bool:
        row = await self._database.get(schema.INVITES, {"code_hash": code_hash})
        return row is not None and row.get("used_by") is None and row["expires_at"] > now_ms

    @act
    async def users(self, user_ids: Sequence[UserId]) -> list[User]:
        found = await self._database.get_each(schema.USERS, dict.fromkeys(user_ids))
        return [values.USER.value(row) for row in found if row is not None]

    async def user_named(self, username: str) -> User | None:
        found = await self.users_named([username])
        return found[0] if found else None

    @act
    async def users_named(self, usernames: Sequence[str]) -> list[User]:
        names = dict.fromkeys(username.casefold() for username in usernames if username)
        found = await self._database.get_many(
            [(schema.USERNAMES, values.name_key(name)) for name in names]
        )
        return await self.users([UserId(row["user_id"]) for row in found if row is not None])

    @act
    async def list_users(self, *, after: str | None, count_max: int) -> list[User]:
        """Read the names in order, one first letter after the other."""
        last = "" if after is None else after.casefold()
        user_ids: list[UserId] = []
        for initial in INITIALS:
            if initial < last[:1] or len(user_ids) >= count_max:
                continue
            found = await self._database.query(
                schema.USERNAMES,
                initial,
                above=last if initial == last[:1] else None,
                limit=count_max - len(user_ids),
            )
            user_ids += [UserId(row["user_id"]) for row in found]
        known = {user.user_id: user for user in await self.users(user_ids)}
        return [known[user_id] for user_id in user_ids if user_id in known]

    @act
    @until_answered
    async def set_display_name(self, user_id: UserId, display_name: str, *, now_ms: int) -> User:
        write = rows.change(
            schema.USERS,
            {"user_id": user_id},
            {"display_name": display_name, "updated_at": now_ms},
            where={"user_id": rows.PRESENT, "deleted_at": None},
        )
        try:
            return values.USER.value(await self._database.write(write, returned="ALL_NEW"))
        except ConditionFailed as failed:
            raise UserNotFound(user_id) from failed

    @act
    @until_answered
    @until_committed
    async def enable_user(self, user_id: UserId, *, now_ms: int) -> User:
        user = values.USER.value(await self._user_row(user_id))
        enabled = as_enabled(user, now_ms=now_ms)
        if enabled == user:
            return user
        write = rows.change(
            schema.USERS,
            {"user_id": user_id},
            values.USER.changes(user, enabled),
            where={"disabled_at": user.disabled_at_ms},
        )
        return values.USER.value(await self._database.write(write, returned="ALL_NEW"))

    @act
    @until_answered
    async def erase_name(self, user_id: UserId, *, now_ms: int) -> User:
        user = values.USER.value(await self._user_row(user_id))
        erased = as_erased(user, now_ms=now_ms)
        if erased == user:
            return user
        # Nothing else changes a deleted account, so if this commit fails, an earlier one made it.
        await self._database.commit(
            [
                rows.change(
                    schema.USERS,
                    {"user_id": user_id},
                    values.USER.changes(user, erased),
                    where={"username": user.username},
                ),
                rows.delete(schema.USERNAMES, values.name_key(user.username)),
                rows.put_new(schema.USERNAMES, values.name_row(erased)),
            ]
        )
        return erased

    @act
    async def pending_deletions(self, *, count_max: int) -> list[PendingDeletion]:
        found = await self._database.query(
            schema.USERNAMES, values.PENDING_DELETIONS, limit=count_max
        )
        erases = {UserId(row["username"]): row.get("erases", False) for row in found}
        users = await self.users(list(erases))
        return [PendingDeletion(user, erases[user.user_id]) for user in users]

    @act
    async def finish_deletion(self, user_id: UserId) -> None:
        await self._database.write(rows.delete(schema.USERNAMES, values.pending_key(user_id)))

    @act
    async def credentials(self, username: str) -> Credentials | None:
        if not username:
            return None
        row = await self._database.get(schema.USERNAMES, values.name_key(username))
        return None if row is None else await self.credentials_of(UserId(row["user_id"]))

    @act
    async def credentials_of(self, user_id: UserId) -> Credentials | None:
        row = await self._database.get(schema.USERS, {"user_id": user_id})
        if row is None:
            return None
        return Credentials(
            user=values.USER.value(row),
            password_hash=row.get("password_hash"),
            places=decode_places(row.get("known_places", "")),
        )

    # People of another identity provider.

    @act
    async def external_user(self, identity: ExternalIdentity) -> User | None:
        key = {"identity": _identity_key(identity)}
        row = await self._database.get(schema.EXTERNAL_USERS, key)
        if row is None:
            return None
        return values.USER.value(await self._user_row(UserId(row["user_id"])))

    @act
    async def ensure_external_user(
        self, identity: ExternalIdentity, user: User, *, fallback_username: str
    ) -> User:
        link: dict[str, Value] = {
            "identity": _identity_key(identity),
            "issuer": identity.issuer,
            "subject": identity.subject,
            "user_id": user.user_id,
        }
        for username in (user.username, fallback_username):
            named = msgspec.structs.replace(user, username=username)
            known = await self.external_user(identity)
            if known is not None:
                return known
            writes = [
                rows.put_new(schema.EXTERNAL_USERS, link),
                rows.put_new(schema.USERS, values.user_row(named)),
                rows.put_new(schema.USERNAMES, values.name_row(named)),
            ]
            if await self._database.commit(writes):
                return named
        known = await self.external_user(identity)
        if known is None:
            raise StoreUnavailable("no name is free for a user of another identity provider")
        return known


def _identity_key(identity: ExternalIdentity) -> str:
    """Issuers and subjects can be long: a key of bounded length, different for every pair."""
    text = msgspec.json.encode([identity.issuer, identity.subject])
    return hashlib.sha256(text).hexdigest()
