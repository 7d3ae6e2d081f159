"""Builders of accounts and sessions, for tests of the store."""

from collections.abc import Sequence

from tests.support.world import World
from tidewire.domain.accounts import Invite, NewAccount, OpenSession, Session, SessionKind
from tidewire.domain.ids import UserId
from tidewire.domain.users import User

DAY_MS = 24 * 3_600_000
INVITE_LIFE_MS = 3_600_000


def a_user(world: World, username: str) -> User:
    now_ms = world.now()
    return User(
        user_id=world.ids.user_id(now_ms),
        username=username,
        display_name=username,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


def an_account(
    world: World, username: str, password_hash: str = "hash", *, invite_hash: bytes | None = None
) -> NewAccount:
    return NewAccount(
        user=a_user(world, username), password_hash=password_hash, invite_hash=invite_hash
    )


async def registered(world: World, username: str, password_hash: str = "hash") -> UserId:
    account = an_account(world, username, password_hash)
    return (await world.storage.register(account, now_ms=world.now())).user_id


def an_invite(world: World, code_hash: bytes) -> Invite:
    now_ms = world.now()
    return Invite(
        code_hash=code_hash,
        created_by=None,
        created_at_ms=now_ms,
        expires_at_ms=now_ms + INVITE_LIFE_MS,
    )


def a_device(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def a_login(
    world: World,
    user_id: UserId,
    *,
    device: str | None = None,
    bot: str | None = None,
    refresh_hash: bytes = b"token 0",
    life_ms: int = 30 * DAY_MS,
    password_hash: str | None = None,
    rehashed: str | None = None,
    places: Sequence[str] = (),
) -> OpenSession:
    """A session that is not open yet: on a device of its own unless told, or of a bot."""
    now_ms = world.now()
    session = Session(
        session_id=world.ids.session_id(now_ms),
        user_id=user_id,
        device_id=None if bot else device or a_device(now_ms & 0xFFFFFFFF),
        kind=SessionKind.BOT if bot else SessionKind.LOGIN,
        label=bot,
        created_at_ms=now_ms,
        last_active_at_ms=now_ms,
        expires_at_ms=now_ms + life_ms,
    )
    return OpenSession(
        session=session,
        refresh_hash=None if bot else refresh_hash,
        password_hash=password_hash,
        rehashed=rehashed,
        places=places,
    )
