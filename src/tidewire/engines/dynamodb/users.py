"""People, their names and their passwords."""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.domain.accounts import Credentials, ExternalIdentity, Invite, NewAccount
from tidewire.domain.errors import InvalidInvite, StoreUnavailable, UsernameTaken, UserNotFound
from tidewire.domain.ids import UserId
from tidewire.domain.login_places import decode_places
from tidewire.domain.users import User, check_enable
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.backoff import CONDITION_FAILED, Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, Cancelled, ConditionFailed
from tidewire.engines.dynamodb.rows import Row, Write

INITIALS: Final = "-.0123456789:_abcdefghijklmnopqrstuvwxyz"
"""What a name can begin with, folded, in the order in which names are listed."""


async def _user_row(database: Database, user_id: UserId) -> Row | None:
    return await database.get(schema.USERS, {"user_id": user_id})


async def the_user_row(database: Database, user_id: UserId) -> Row:
    row = await _user_row(database, user_id)
    if row is None:
        raise UserNotFound(user_id)
    return row


async def add_user(
    database: Database, user: User, *, password_hash: str | None = None, invite: Write | None = None
) -> User:
    """Make a user with a name that nobody has; the same user_id again is found."""
    writes = [
        rows.put_new(schema.USERS, values.user_row(user, password_hash=password_hash)),
        rows.put_new(schema.USERNAMES, values.name_row(user)),
    ]
    try:
        await database.transact(writes if invite is None else [*writes, invite])
    except Cancelled as cancelled:
        known = await _user_row(database, user.user_id)
        if known is not None:
            return values.user_of(known)
        if invite is not None and cancelled.codes[2] == CONDITION_FAILED:
            raise InvalidInvite from cancelled
        raise UsernameTaken(user.username) from cancelled
    return user


async def register(database: Database, account: NewAccount, *, now_ms: int) -> User:
    invite = None
    if account.invite_hash is not None:
        invite = rows.update(
            schema.INVITES,
            {"code_hash": account.invite_hash},
            "SET #used_by = :user",
            condition="attribute_exists(#code_hash) AND attribute_not_exists(#used_by)"
            " AND #expires_at > :now",
            user=account.user.user_id,
            now=now_ms,
        )
    return await add_user(
        database, account.user, password_hash=account.password_hash, invite=invite
    )


async def add_invite(database: Database, invite: Invite) -> None:
    row: dict[str, rows.Value] = {
        "code_hash": invite.code_hash,
        "created_by": invite.created_by,
        "created_at": invite.created_at_ms,
        "expires_at": invite.expires_at_ms,
        "ttl": -(-invite.expires_at_ms // 1000),
    }
    try:
        await database.transact([rows.put_new(schema.INVITES, row)])
    except Cancelled:
        return


async def is_invite_open(database: Database, code_hash: bytes, *, now_ms: int) -> bool:
    row = await database.get(schema.INVITES, {"code_hash": code_hash})
    return row is not None and row.get("used_by") is None and row["expires_at"] > now_ms


async def users(database: Database, user_ids: Sequence[UserId]) -> list[User]:
    wanted = dict.fromkeys(user_ids)
    found = await database.get_many([(schema.USERS, {"user_id": one}) for one in wanted])
    return [values.user_of(row) for row in found if row is not None]


async def users_named(database: Database, usernames: Sequence[str]) -> list[User]:
    names = dict.fromkeys(username.casefold() for username in usernames if username)
    found = await database.get_many([(schema.USERNAMES, values.name_key(name)) for name in names])
    return await users(database, [UserId(row["user_id"]) for row in found if row is not None])


async def list_users(database: Database, *, after: str | None, count_max: int) -> list[User]:
    """By name, from one first letter to the next."""
    last = "" if after is None else after.casefold()
    user_ids: list[UserId] = []
    for initial in INITIALS:
        if initial < last[:1] or len(user_ids) >= count_max:
            continue
        found = await database.query(
            schema.USERNAMES,
            initial,
            above=last if initial == last[:1] else None,
            limit=count_max - len(user_ids),
        )
        user_ids += [UserId(row["user_id"]) for row in found]
    known = {user.user_id: user for user in await users(database, user_ids)}
    return [known[user_id] for user_id in user_ids if user_id in known]


async def change_user(
    database: Database, user_id: UserId, change: str, **fields: rows.Value
) -> User:
    """Change a user's row, and do it again if the answer is lost: the same twice is the same."""
    write = rows.update(
        schema.USERS,
        {"user_id": user_id},
        change,
        condition="attribute_exists(#user_id) AND attribute_not_exists(#deleted_at)",
        **fields,
    )
    tried = 0
    while True:
        try:
            return values.user_of(await database.write(write, returned="ALL_NEW"))
        except ConditionFailed as failed:
            raise UserNotFound(user_id) from failed
        except AnswerLost:
            await database.pause(Hindrance.LOST, tried)
            tried += 1


async def enable_user(database: Database, user_id: UserId, *, now_ms: int) -> User:
    tried = 0
    while True:
        user = values.user_of(await the_user_row(database, user_id))
        if user.disabled_at_ms is None:
            return user
        check_enable(user)
        enabled_at_ms = max(now_ms, (user.enabled_at_ms or user.created_at_ms) + 1)
        write = rows.update(
            schema.USERS,
            {"user_id": user_id},
            "SET #enabled_at = :now REMOVE #disabled_at",
            condition="#disabled_at = :disabled",
            now=enabled_at_ms,
            disabled=user.disabled_at_ms,
        )
        try:
            return values.user_of(await database.write(write, returned="ALL_NEW"))
        except (ConditionFailed, AnswerLost):
            await database.pause(Hindrance.LOST, tried)
            tried += 1


async def pending_deletions(database: Database, *, count_max: int) -> list[User]:
    found = await database.query(schema.USERNAMES, values.PENDING_DELETIONS, limit=count_max)
    return await users(database, [UserId(row["username"]) for row in found])


async def finish_deletion(database: Database, user_id: UserId) -> None:
    await database.write(rows.delete(schema.USERNAMES, values.pending_key(user_id)))


def credentials_of(row: Row | None) -> Credentials | None:
    if row is None:
        return None
    return Credentials(
        user=values.user_of(row),
        password_hash=row.get("password_hash"),
        places=decode_places(row.get("known_places", "")),
    )


async def credentials_by_id(database: Database, user_id: UserId) -> Credentials | None:
    return credentials_of(await _user_row(database, user_id))


async def credentials_by_name(database: Database, username: str) -> Credentials | None:
    if not username:
        return None
    row = await database.get(schema.USERNAMES, values.name_key(username))
    return None if row is None else await credentials_by_id(database, UserId(row["user_id"]))


# People of another identity provider.


def identity_key(identity: ExternalIdentity) -> str:
    """Issuers and subjects can be long: a key of bounded length, different for every pair."""
    text = msgspec.json.encode([identity.issuer, identity.subject])
    return hashlib.sha256(text).hexdigest()


async def external_user(database: Database, identity: ExternalIdentity) -> User | None:
    row = await database.get(schema.EXTERNAL_USERS, {"identity": identity_key(identity)})
    if row is None:
        return None
    return values.user_of(await the_user_row(database, UserId(row["user_id"])))


async def ensure_external_user(
    database: Database, identity: ExternalIdentity, user: User, *, fallback_username: str
) -> User:
    link: dict[str, rows.Value] = {
        "identity": identity_key(identity),
        "issuer": identity.issuer,
        "subject": identity.subject,
        "user_id": user.user_id,
    }
    for username in (user.username, fallback_username):
        named = msgspec.structs.replace(user, username=username)
        known = await external_user(database, identity)
        if known is not None:
            return known
        try:
            await database.transact(
                [
                    rows.put_new(schema.EXTERNAL_USERS, link),
                    rows.put_new(schema.USERS, values.user_row(named)),
                    rows.put_new(schema.USERNAMES, values.name_row(named)),
                ]
            )
        except Cancelled:
            continue
        return named
    known = await external_user(database, identity)
    if known is None:
        raise StoreUnavailable("no name is free for a user of another identity provider")
    return known
