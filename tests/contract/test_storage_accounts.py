"""CredentialStore: registering, passwords, invites, external identities, disabled users; and what
UserStore tells about many users."""

import asyncio

import msgspec
import pytest

from tests.support.accounts import (
    a_login,
    a_user,
    an_account,
    an_invite,
    registered,
)
from tests.support.world import World
from tidewire.domain.accounts import ExternalIdentity
from tidewire.domain.errors import (
    Forbidden,
    InvalidCredentials,
    InvalidInvite,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.users import User

HOUR_MS = 3_600_000


# Registering.


async def test_register_makes_a_user_with_a_password(world: World) -> None:
    account = an_account(world, "Anna", "hash of anna")
    assert await world.storage.register(account, now_ms=world.now()) == account.user
    credentials = await world.storage.credentials("Anna")
    assert credentials is not None
    assert (credentials.user, credentials.password_hash) == (account.user, "hash of anna")
    assert await world.storage.credentials("ANNA") == credentials
    assert await world.storage.credentials_of(account.user.user_id) == credentials


async def test_register_finds_the_first_one_when_tried_again(world: World) -> None:
    account = an_account(world, "anna", "first")
    await world.storage.register(account, now_ms=world.now())
    again = msgspec.structs.replace(account, password_hash="second")
    assert await world.storage.register(again, now_ms=world.now()) == account.user
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials.password_hash == "first"


async def test_register_gives_a_name_to_one_of_those_who_ask_at_once(world: World) -> None:
    accounts = [an_account(world, name, name) for name in ("anna", "Anna", "ANNA", "aNNa")]
    outcomes = await asyncio.gather(
        *(world.storage.register(account, now_ms=world.now()) for account in accounts),
        return_exceptions=True,
    )
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, User)]
    assert [type(outcome) for outcome in outcomes].count(UsernameTaken) == 3
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    # The password is that of the one who won, not of a loser.
    assert (credentials.user, credentials.password_hash) == (winner, winner.username)


async def test_credentials_of_nobody_are_none(world: World) -> None:
    assert await world.storage.credentials("nobody") is None
    assert await world.storage.credentials_of(world.stranger()) is None


async def test_credentials_of_a_user_without_a_password_have_no_hash(world: World) -> None:
    user = a_user(world, "anna")
    await world.storage.add_user(user)
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials.password_hash is None


async def test_accounts_are_still_there_after_a_restart(world: World) -> None:
    account = an_account(world, "anna", "hash")
    await world.storage.register(account, now_ms=world.now())
    opened = await world.storage.open_session(
        a_login(world, account.user.user_id), sessions_max=5, now_ms=world.now()
    )
    await world.engine.reopen()
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials.password_hash == "hash"
    assert await world.storage.session(opened.session.session_id) == opened.session


# Invites.


async def test_invite_lets_one_in(world: World) -> None:
    await world.storage.add_invite(an_invite(world, b"code"))
    account = an_account(world, "anna", "hash", invite_hash=b"code")
    assert await world.storage.register(account, now_ms=world.now()) == account.user
    late = an_account(world, "ben", "hash", invite_hash=b"code")
    with pytest.raises(InvalidInvite):
        await world.storage.register(late, now_ms=world.now())
    assert await world.storage.user_named("ben") is None


async def test_invite_lets_one_of_many_in_who_come_at_once(world: World) -> None:
    await world.storage.add_invite(an_invite(world, b"code"))
    accounts = [an_account(world, f"user{i}", "hash", invite_hash=b"code") for i in range(8)]
    outcomes = await asyncio.gather(
        *(world.storage.register(account, now_ms=world.now()) for account in accounts),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(InvalidInvite) == 7
    assert len(await world.storage.list_users(after=None, count_max=10)) == 1


async def test_invite_is_not_used_up_by_a_name_that_is_taken(world: World) -> None:
    await registered(world, "anna")
    await world.storage.add_invite(an_invite(world, b"code"))
    with pytest.raises(UsernameTaken):
        await world.storage.register(
            an_account(world, "ANNA", "hash", invite_hash=b"code"), now_ms=world.now()
        )
    other = an_account(world, "ben", "hash", invite_hash=b"code")
    assert await world.storage.register(other, now_ms=world.now()) == other.user


async def test_invite_that_is_unknown_or_expired_lets_nobody_in(world: World) -> None:
    invite = an_invite(world, b"code")
    await world.storage.add_invite(invite)
    for invite_hash, now_ms in ((b"other", world.now()), (b"code", invite.expires_at_ms)):
        with pytest.raises(InvalidInvite):
            await world.storage.register(
                an_account(world, "anna", "hash", invite_hash=invite_hash), now_ms=now_ms
            )
    await world.storage.register(
        an_account(world, "anna", "hash", invite_hash=b"code"), now_ms=invite.expires_at_ms - 1
    )


async def test_invite_is_judged_before_the_name(world: World) -> None:
    """Who has no invite does not learn who exists (A16)."""
    await registered(world, "anna")
    await world.storage.add_invite(an_invite(world, b"code"))
    for invite_hash, refusal in ((b"other", InvalidInvite), (b"code", UsernameTaken)):
        account = an_account(world, "anna", "hash", invite_hash=invite_hash)
        with pytest.raises(refusal):
            await world.storage.register(account, now_ms=world.now())


async def test_invite_is_open_until_it_is_used_or_expires(world: World) -> None:
    invite = an_invite(world, b"code")
    assert not await world.storage.is_invite_open(b"code", now_ms=world.now())
    await world.storage.add_invite(invite)
    assert await world.storage.is_invite_open(b"code", now_ms=invite.expires_at_ms - 1)
    assert not await world.storage.is_invite_open(b"code", now_ms=invite.expires_at_ms)
    account = an_account(world, "anna", "hash", invite_hash=b"code")
    await world.storage.register(account, now_ms=world.now())
    assert not await world.storage.is_invite_open(b"code", now_ms=world.now())


async def test_invite_that_was_used_is_not_fresh_when_added_again(world: World) -> None:
    invite = an_invite(world, b"code")
    await world.storage.add_invite(invite)
    account = an_account(world, "anna", "hash", invite_hash=b"code")
    await world.storage.register(account, now_ms=world.now())
    await world.storage.add_invite(invite)
    with pytest.raises(InvalidInvite):
        await world.storage.register(
            an_account(world, "ben", "hash", invite_hash=b"code"), now_ms=world.now()
        )


# Passwords.


async def test_set_password_ends_all_logins_but_one_and_no_bot(world: World) -> None:
    anna = await registered(world, "anna", "old")
    ben = await registered(world, "ben", "ben")
    logins = [a_login(world, anna) for _ in range(3)]
    bot = a_login(world, anna, bot="builder")
    other = a_login(world, ben)
    for command in (*logins, bot, other):
        await world.storage.open_session(command, sessions_max=5, now_ms=world.now())
    kept, *ended = [command.session.session_id for command in logins]
    gone = await world.storage.set_password(
        anna, "new", expected_hash="old", keep=kept, now_ms=world.now()
    )
    assert sorted(gone) == sorted(ended)
    left = await world.storage.sessions(anna, now_ms=world.now())
    assert [session.session_id for session in left] == [kept, bot.session.session_id]
    assert len(await world.storage.sessions(ben, now_ms=world.now())) == 1
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials.password_hash == "new"


async def test_set_password_refuses_when_the_old_one_is_another_by_now(world: World) -> None:
    anna = await registered(world, "anna", "old")
    login = a_login(world, anna)
    await world.storage.open_session(login, sessions_max=5, now_ms=world.now())
    with pytest.raises(InvalidCredentials):
        await world.storage.set_password(
            anna, "new", expected_hash="other", keep=None, now_ms=world.now()
        )
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials.password_hash == "old"
    assert await world.storage.session(login.session.session_id) is not None


async def test_set_password_gives_one_to_a_user_who_had_none(world: World) -> None:
    user = a_user(world, "anna")
    await world.storage.add_user(user)
    await world.storage.set_password(
        user.user_id, "new", expected_hash=None, keep=None, now_ms=world.now()
    )
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials.password_hash == "new"
    with pytest.raises(UserNotFound):
        await world.storage.set_password(
            world.stranger(), "x", expected_hash=None, keep=None, now_ms=world.now()
        )


# External identities.


async def test_external_user_is_made_once(world: World) -> None:
    identity = ExternalIdentity("https://id.example", "42")
    assert await world.storage.external_user(identity) is None
    first = await world.storage.ensure_external_user(
        identity, a_user(world, "anna"), fallback_username="u-1"
    )
    again = await world.storage.ensure_external_user(
        identity, a_user(world, "other"), fallback_username="u-2"
    )
    assert again == first
    assert await world.storage.external_user(identity) == first
    assert first.username == "anna"
    assert await world.storage.user_named("other") is None


async def test_external_user_is_made_once_also_for_many_who_come_at_once(world: World) -> None:
    identity = ExternalIdentity("https://id.example", "42")
    users = await asyncio.gather(
        *(
            world.storage.ensure_external_user(
                identity, a_user(world, f"anna{i}"), fallback_username=f"u-{i}"
            )
            for i in range(5)
        )
    )
    assert len({user.user_id for user in users}) == 1
    assert len(await world.storage.list_users(after=None, count_max=10)) == 1


async def test_external_user_never_becomes_somebody_of_the_same_name(world: World) -> None:
    anna = await registered(world, "anna")
    subjects = [
        ("https://id.example", "1"),
        ("https://id.example", "2"),
        ("https://other.example", "1"),
    ]
    users = [
        await world.storage.ensure_external_user(
            ExternalIdentity(*identity), a_user(world, "ANNA"), fallback_username=f"u-{number}"
        )
        for number, identity in enumerate(subjects)
    ]
    assert [user.username for user in users] == ["u-0", "u-1", "u-2"]
    assert len({anna, *(user.user_id for user in users)}) == 4


# Disabled users.


async def test_disabled_user_loses_his_sessions_and_opens_none(world: World) -> None:
    anna = await registered(world, "anna", "hash")
    commands = [a_login(world, anna), a_login(world, anna), a_login(world, anna, bot="builder")]
    for command in commands:
        await world.storage.open_session(command, sessions_max=5, now_ms=world.now())
    now_ms = world.now()
    ended = await world.storage.disable_user(anna, now_ms=now_ms)
    assert sorted(ended) == sorted(command.session.session_id for command in commands)
    assert await world.storage.sessions(anna, now_ms=world.now()) == []
    [user] = await world.storage.users([anna])
    assert user.disabled_at_ms == now_ms
    with pytest.raises(Forbidden):
        await world.storage.open_session(a_login(world, anna), sessions_max=5, now_ms=world.now())
    assert await world.storage.disable_user(anna, now_ms=world.now()) == []
    [user] = await world.storage.users([anna])
    assert user.disabled_at_ms == now_ms


async def test_enabled_user_opens_sessions_again(world: World) -> None:
    anna = await registered(world, "anna", "hash")
    await world.storage.disable_user(anna, now_ms=world.now())
    enabled = await world.storage.enable_user(anna, now_ms=world.now())
    assert enabled.disabled_at_ms is None
    assert await world.storage.users([anna]) == [enabled]
    command = a_login(world, anna)
    opened = await world.storage.open_session(command, sessions_max=5, now_ms=world.now())
    assert opened.session == command.session


async def test_enabled_user_was_enabled_later_each_time_whatever_the_clock_says(
    world: World,
) -> None:
    anna = await registered(world, "anna", "hash")
    never = await world.storage.enable_user(anna, now_ms=world.now())
    assert never.enabled_at_ms is None
    later_ms = world.now() + HOUR_MS
    times = []
    for now_ms in (1_000, later_ms, 2_000, later_ms + 5):
        await world.storage.disable_user(anna, now_ms=now_ms)
        times.append((await world.storage.enable_user(anna, now_ms=now_ms)).enabled_at_ms)
    assert times == [never.created_at_ms + 1, later_ms, later_ms + 1, later_ms + 5]


async def test_nobody_is_neither_disabled_nor_enabled(world: World) -> None:
    with pytest.raises(UserNotFound):
        await world.storage.disable_user(world.stranger(), now_ms=world.now())
    with pytest.raises(UserNotFound):
        await world.storage.enable_user(world.stranger(), now_ms=world.now())


# Many users.


async def test_users_named_are_those_that_exist_each_once(world: World) -> None:
    anna, ben = await registered(world, "Anna"), await registered(world, "ben")
    found = await world.storage.users_named(["anna", "ANNA", "nobody", "Ben"])
    assert sorted(user.user_id for user in found) == sorted([anna, ben])
    assert await world.storage.users_named([]) == []


async def test_list_users_goes_through_all_by_name(world: World) -> None:
    for name in ("delta", "Alpha", "charlie", "Bravo", "echo"):
        await registered(world, name)
    names: list[str] = []
    while page := await world.storage.list_users(after=names[-1] if names else None, count_max=2):
        names += [user.username for user in page]
    assert names == ["Alpha", "Bravo", "charlie", "delta", "echo"]


async def test_set_display_name_changes_the_name_and_its_time_only(world: World) -> None:
    user = a_user(world, "anna")
    await world.storage.add_user(user)
    now_ms = world.now()
    renamed = await world.storage.set_display_name(user.user_id, "Anna ✨", now_ms=now_ms)
    assert renamed == msgspec.structs.replace(user, display_name="Anna ✨", updated_at_ms=now_ms)
    assert await world.storage.user_named("anna") == renamed
    with pytest.raises(UserNotFound):
        await world.storage.set_display_name(world.stranger(), "X", now_ms=world.now())


# Sweeping.


async def test_sweep_deletes_what_has_expired_in_bounded_pieces(world: World) -> None:
    anna = await registered(world, "anna")
    for number in range(3):
        await world.storage.add_invite(an_invite(world, b"code %d" % number))
    bots = [a_login(world, anna, bot=f"bot {number}", life_ms=HOUR_MS) for number in range(3)]
    for command in bots:
        await world.storage.open_session(command, sessions_max=5, now_ms=world.now())
    long = a_login(world, anna, life_ms=1000 * HOUR_MS)
    await world.storage.open_session(long, sessions_max=5, now_ms=world.now())
    assert await world.storage.sweep_accounts(now_ms=world.now(), count_max=100) == 0
    later_ms = world.now() + 100 * HOUR_MS
    swept = [await world.storage.sweep_accounts(now_ms=later_ms, count_max=2) for _ in range(3)]
    assert swept == [4, 2, 0]
    assert await world.storage.session(bots[0].session.session_id) is None
    assert await world.storage.session(long.session.session_id) == long.session
