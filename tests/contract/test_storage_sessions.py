"""SessionStore: one session a device, a bound on them, refresh tokens that rotate (S-02)."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.support.accounts import DAY_MS, a_device, a_login, registered
from tests.support.world import World
from tidewire.domain.accounts import (
    OpenSession,
    RefreshOtherDevice,
    RefreshOutcome,
    RefreshReused,
    RefreshRotated,
    RefreshUnknown,
    RotateRefresh,
    Session,
)
from tidewire.domain.errors import InvalidCredentials, UserNotFound
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.login_places import PLACES_MAX

SESSIONS_MAX = 3
GRACE_MS = 30_000
LIFE_MS = 30 * DAY_MS
PHONE = a_device(1)


async def opened(world: World, command: OpenSession) -> list[SessionId]:
    """Open a session; those that had to go."""
    outcome = await world.storage.open_session(
        command, sessions_max=SESSIONS_MAX, now_ms=command.session.created_at_ms
    )
    assert outcome.session == command.session
    return list(outcome.ended)


async def session_ids(world: World, user_id: UserId) -> list[SessionId]:
    sessions = await world.storage.sessions(user_id, now_ms=world.now())
    return [session.session_id for session in sessions]


# Opening.


async def test_session_is_found_and_listed_oldest_first(world: World) -> None:
    anna, ben = await registered(world, "anna"), await registered(world, "ben")
    commands = [a_login(world, anna), a_login(world, anna, bot="builder"), a_login(world, anna)]
    for command in [*commands, a_login(world, ben)]:
        assert await opened(world, command) == []
    sessions = [command.session for command in commands]
    assert await world.storage.sessions(anna, now_ms=world.now()) == sessions
    assert await world.storage.session(sessions[0].session_id) == sessions[0]
    assert await world.storage.session(SessionId("sess_none")) is None


async def test_session_of_the_same_device_takes_the_place_of_the_first(world: World) -> None:
    anna, ben = await registered(world, "anna"), await registered(world, "ben")
    first, other = a_login(world, anna, device=PHONE), a_login(world, anna)
    same_device_of_ben = a_login(world, ben, device=PHONE)
    for command in (first, other, same_device_of_ben):
        assert await opened(world, command) == []
    second = a_login(world, anna, device=PHONE)
    assert await opened(world, second) == [first.session.session_id]
    assert await session_ids(world, anna) == [other.session.session_id, second.session.session_id]
    assert await session_ids(world, ben) == [same_device_of_ben.session.session_id]


async def test_bound_that_was_lowered_ends_all_that_are_beyond_it(world: World) -> None:
    """Also if these are more than one transaction of the store takes."""
    anna = await registered(world, "anna")
    commands = [a_login(world, anna) for _ in range(60)]
    for command in commands:
        now_ms = command.session.created_at_ms
        await world.storage.open_session(command, sessions_max=100, now_ms=now_ms)
    ids = [command.session.session_id for command in commands]
    last = a_login(world, anna)
    assert sorted(await opened(world, last)) == sorted(ids[:-2])
    assert await session_ids(world, anna) == [*ids[-2:], last.session.session_id]


async def test_session_beyond_the_bound_ends_the_oldest(world: World) -> None:
    anna = await registered(world, "anna")
    commands = [a_login(world, anna) for _ in range(SESSIONS_MAX + 2)]
    ended = [await opened(world, command) for command in commands]
    ids = [command.session.session_id for command in commands]
    assert ended == [[], [], [], [ids[0]], [ids[1]]]
    assert await session_ids(world, anna) == ids[2:]


async def test_session_beyond_the_bound_ends_the_one_that_is_not_in_use(world: World) -> None:
    anna = await registered(world, "anna")
    commands = [a_login(world, anna) for _ in range(SESSIONS_MAX)]
    for command in commands:
        await opened(world, command)
    ids = [command.session.session_id for command in commands]
    await world.storage.touch_sessions([ids[0], ids[2]], now_ms=world.now())
    assert await opened(world, a_login(world, anna)) == [ids[1]]


async def test_session_of_the_same_device_at_the_bound_ends_no_other(world: World) -> None:
    anna = await registered(world, "anna")
    commands = [a_login(world, anna, device=a_device(number)) for number in range(SESSIONS_MAX)]
    for command in commands:
        await opened(world, command)
    again = a_login(world, anna, device=a_device(SESSIONS_MAX - 1))
    assert await opened(world, again) == [commands[-1].session.session_id]
    assert len(await session_ids(world, anna)) == SESSIONS_MAX


async def test_sessions_of_bots_are_not_counted_and_not_ended(world: World) -> None:
    anna = await registered(world, "anna")
    bots = [a_login(world, anna, bot=f"bot {number}") for number in range(SESSIONS_MAX + 1)]
    for command in bots:
        assert await opened(world, command) == []
    for _ in range(SESSIONS_MAX):
        assert await opened(world, a_login(world, anna)) == []
    assert len(await session_ids(world, anna)) == 2 * SESSIONS_MAX + 1


async def test_sessions_that_have_expired_are_not_counted_and_not_listed(world: World) -> None:
    anna = await registered(world, "anna")
    for _ in range(SESSIONS_MAX):
        await opened(world, a_login(world, anna, life_ms=1))
    world.now()
    fresh = a_login(world, anna)
    assert await opened(world, fresh) == []
    assert await session_ids(world, anna) == [fresh.session.session_id]


async def test_session_opened_again_is_found(world: World) -> None:
    anna = await registered(world, "anna")
    command = a_login(world, anna)
    await opened(world, command)
    assert await opened(world, command) == []
    assert await session_ids(world, anna) == [command.session.session_id]


async def test_sessions_opened_at_once_keep_to_the_bound(world: World) -> None:
    anna = await registered(world, "anna")
    commands = [a_login(world, anna) for _ in range(3 * SESSIONS_MAX)]
    ended = await asyncio.gather(*(opened(world, command) for command in commands))
    left = await session_ids(world, anna)
    assert len(left) == SESSIONS_MAX
    gone = [session_id for some in ended for session_id in some]
    assert sorted([*gone, *left]) == sorted(command.session.session_id for command in commands)


async def test_session_is_opened_only_with_the_password_that_is_true_now(world: World) -> None:
    """A login whose password was checked before it was changed must not slip in after that."""
    anna = await registered(world, "anna", "old")
    await world.storage.set_password(
        anna, "new", expected_hash="old", keep=None, now_ms=world.now()
    )
    with pytest.raises(InvalidCredentials):
        await opened(world, a_login(world, anna, password_hash="old"))
    assert await session_ids(world, anna) == []
    await opened(world, a_login(world, anna, password_hash="new"))


async def test_session_refused_ends_no_other(world: World) -> None:
    anna = await registered(world, "anna", "hash")
    first = a_login(world, anna, device=PHONE)
    await opened(world, first)
    with pytest.raises(InvalidCredentials):
        await opened(world, a_login(world, anna, device=PHONE, password_hash="other"))
    assert await session_ids(world, anna) == [first.session.session_id]


async def test_places_of_logins_are_remembered_with_the_password(world: World) -> None:
    """Where an account got in outlives its sessions and a new password (A10)."""
    anna = await registered(world, "anna", "hash")
    await opened(world, a_login(world, anna, password_hash="hash", places=("phone", "home")))
    await opened(world, a_login(world, anna, password_hash="hash", places=("laptop", "home")))
    await world.storage.revoke_sessions(anna, keep=None)
    await world.storage.set_password(
        anna, "new", expected_hash="hash", keep=None, now_ms=world.now()
    )
    await world.engine.reopen()
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert credentials == await world.storage.credentials_of(anna)
    assert list(credentials.places) == ["laptop", "home", "phone"]


async def test_places_are_bounded_and_those_of_a_refused_login_are_not_kept(world: World) -> None:
    anna = await registered(world, "anna", "hash")
    with pytest.raises(InvalidCredentials):
        await opened(world, a_login(world, anna, password_hash="other", places=("cafe",)))
    for number in range(PLACES_MAX + 2):
        places = (f"place{number}",)
        await opened(world, a_login(world, anna, password_hash="hash", places=places))
    credentials = await world.storage.credentials_of(anna)
    assert credentials is not None
    expected = [f"place{number}" for number in reversed(range(2, PLACES_MAX + 2))]
    assert list(credentials.places) == expected


async def test_session_opened_with_a_stronger_hash_stores_it(world: World) -> None:
    anna = await registered(world, "anna", "weak")
    await opened(world, a_login(world, anna, password_hash="weak", rehashed="strong"))
    credentials = await world.storage.credentials_of(anna)
    assert credentials is not None
    assert credentials.password_hash == "strong"


async def test_session_of_nobody_is_refused(world: World) -> None:
    with pytest.raises(UserNotFound):
        await opened(world, a_login(world, world.stranger()))


# Refreshing.


async def phone_session(world: World) -> Session:
    anna = await registered(world, "anna")
    command = a_login(world, anna, device=PHONE, refresh_hash=b"token 0")
    await opened(world, command)
    return command.session


async def rotate(
    world: World,
    session: Session,
    presented: bytes,
    following: bytes,
    *,
    now_ms: int,
    device: str = PHONE,
    **changed: Any,
) -> RefreshOutcome:
    command = RotateRefresh(
        session_id=session.session_id,
        device_id=device,
        presented_hash=presented,
        next_hash=following,
        grace_ms=GRACE_MS,
        life_ms=LIFE_MS,
        **changed,
    )
    return await world.storage.rotate_refresh(command, now_ms=now_ms)


async def test_refresh_rotates_the_current_token(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now()
    outcome = await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    expected = msgspec.structs.replace(
        session, generation=1, last_active_at_ms=at_ms, expires_at_ms=at_ms + LIFE_MS
    )
    assert outcome == RefreshRotated(expected, repeated=False)
    assert await world.storage.session(session.session_id) == expected
    outcome = await rotate(world, session, b"token 1", b"token 2", now_ms=world.now())
    assert isinstance(outcome, RefreshRotated)
    assert outcome.session.generation == 2


async def test_refresh_whose_answer_was_lost_is_repeated_within_the_grace(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now()
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    for delay_ms in (0, 1, GRACE_MS):
        outcome = await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms + delay_ms)
        assert isinstance(outcome, RefreshRotated)
        assert (outcome.repeated, outcome.session.generation) == (True, 1)
    # What it gave is the current token still, and only that goes on.
    outcome = await rotate(world, session, b"token 1", b"token 2", now_ms=at_ms + GRACE_MS)
    assert isinstance(outcome, RefreshRotated)
    assert (outcome.repeated, outcome.session.generation) == (False, 2)


async def test_refresh_repeated_with_another_next_token_makes_that_current(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now()
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    await rotate(world, session, b"token 0", b"token 1b", now_ms=at_ms)
    outcome = await rotate(world, session, b"token 1b", b"token 2", now_ms=at_ms)
    assert isinstance(outcome, RefreshRotated)


async def test_refresh_after_the_grace_ends_the_session(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now()
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    outcome = await rotate(world, session, b"token 0", b"x", now_ms=at_ms + GRACE_MS + 1)
    assert isinstance(outcome, RefreshReused)
    assert outcome.session.session_id == session.session_id
    assert await world.storage.session(session.session_id) is None
    # Also for whoever holds the good token.
    outcome = await rotate(world, session, b"token 1", b"x", now_ms=at_ms + GRACE_MS + 1)
    assert outcome == RefreshUnknown()


async def test_refresh_with_the_token_before_the_last_rotation_counts_from_that(
    world: World,
) -> None:
    """The grace of the first token is over as soon as its successor was used."""
    session = await phone_session(world)
    at_ms = world.now()
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    await rotate(world, session, b"token 1", b"token 2", now_ms=at_ms)
    outcome = await rotate(world, session, b"token 0", b"x", now_ms=at_ms)
    assert isinstance(outcome, RefreshUnknown)
    assert outcome.session is not None
    assert (outcome.session.generation, outcome.refresh_hash) == (2, b"token 2")


async def test_refresh_with_an_unknown_token_changes_nothing(world: World) -> None:
    session = await phone_session(world)
    outcome = await rotate(world, session, b"guess", b"x", now_ms=world.now())
    assert outcome == RefreshUnknown(session, b"token 0")
    assert isinstance(
        await rotate(world, session, b"token 0", b"token 1", now_ms=world.now()), RefreshRotated
    )


async def test_refresh_from_another_device_changes_nothing(world: World) -> None:
    session = await phone_session(world)
    other = a_device(2)
    at_ms = world.now()
    outcome = await rotate(world, session, b"token 0", b"x", now_ms=at_ms, device=other)
    assert outcome == RefreshOtherDevice()
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    outcome = await rotate(world, session, b"token 0", b"x", now_ms=at_ms, device=other)
    assert outcome == RefreshOtherDevice()
    assert isinstance(
        await rotate(world, session, b"token 1", b"token 2", now_ms=at_ms), RefreshRotated
    )


async def test_refresh_of_a_session_that_is_over_or_a_bots_is_unknown(world: World) -> None:
    session = await phone_session(world)
    outcome = await rotate(world, session, b"token 0", b"x", now_ms=session.expires_at_ms)
    assert outcome == RefreshUnknown()
    bot = a_login(world, session.user_id, bot="builder")
    await opened(world, bot)
    assert await rotate(world, bot.session, b"", b"x", now_ms=world.now()) == RefreshUnknown()
    assert await world.storage.revoke_session(session.user_id, session.session_id)
    outcome = await rotate(world, session, b"token 0", b"x", now_ms=world.now())
    assert outcome == RefreshUnknown()


async def test_refresh_moves_the_end_of_the_session(world: World) -> None:
    """A device that is used at least once a life stays logged in (B7)."""
    session = await phone_session(world)
    at_ms = session.created_at_ms
    for number in range(3):
        at_ms += LIFE_MS - 1
        following = b"token %d" % (number + 1)
        outcome = await rotate(world, session, b"token %d" % number, following, now_ms=at_ms)
        assert isinstance(outcome, RefreshRotated)
        assert outcome.session.expires_at_ms == at_ms + LIFE_MS
    listed = await world.storage.sessions(session.user_id, now_ms=at_ms + LIFE_MS - 1)
    assert [each.session_id for each in listed] == [session.session_id]
    assert await world.storage.revoke_sessions(session.user_id, keep=None) == [session.session_id]


async def test_refresh_repeated_moves_nothing(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now()
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms)
    known = await world.storage.session(session.session_id)
    outcome = await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms + 5, address="x")
    assert known is not None
    assert outcome == RefreshRotated(known, repeated=True)
    assert await world.storage.session(session.session_id) == known


async def test_refresh_moves_the_end_no_further_than_the_bound(world: World) -> None:
    session = await phone_session(world)
    bound_ms = LIFE_MS + 5 * DAY_MS
    end_ms = session.created_at_ms + bound_ms
    at_ms = session.created_at_ms + 10 * DAY_MS
    outcome = await rotate(
        world, session, b"token 0", b"token 1", now_ms=at_ms, life_ms_max=bound_ms
    )
    assert isinstance(outcome, RefreshRotated)
    assert outcome.session.expires_at_ms == end_ms
    outcome = await rotate(
        world, session, b"token 1", b"token 2", now_ms=end_ms, life_ms_max=bound_ms
    )
    assert outcome == RefreshUnknown()


async def test_session_keeps_where_it_was_last_refreshed_from(world: World) -> None:
    anna = await registered(world, "anna")
    command = a_login(world, anna, device=PHONE)
    session = msgspec.structs.replace(command.session, address="192.0.2.1", client="a phone")
    await opened(world, msgspec.structs.replace(command, session=session))
    assert await world.storage.session(session.session_id) == session

    at_ms = world.now()
    moved: dict[str, str] = {"address": "2001:db8::1", "client": "a newer phone"}
    await rotate(world, session, b"token 0", b"token 1", now_ms=at_ms, **moved)
    await rotate(world, session, b"token 1", b"token 2", now_ms=at_ms)
    found = await world.storage.session(session.session_id)
    assert found is not None
    assert (found.address, found.client) == ("2001:db8::1", "a newer phone")


async def test_refreshes_at_once_all_get_the_same_next_token(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now()
    outcomes = await asyncio.gather(
        *(rotate(world, session, b"token 0", b"token 1", now_ms=at_ms) for _ in range(5))
    )
    rotated = [outcome for outcome in outcomes if isinstance(outcome, RefreshRotated)]
    assert len(rotated) == 5
    assert [outcome.repeated for outcome in rotated].count(False) == 1
    assert {outcome.session.generation for outcome in rotated} == {1}


# Ending and touching.


async def test_revoke_session_ends_own_sessions_only(world: World) -> None:
    anna, ben = await registered(world, "anna"), await registered(world, "ben")
    command = a_login(world, anna)
    await opened(world, command)
    session_id = command.session.session_id
    assert not await world.storage.revoke_session(ben, session_id)
    assert await world.storage.session(session_id) == command.session
    assert await world.storage.revoke_session(anna, session_id)
    assert await world.storage.session(session_id) is None
    assert not await world.storage.revoke_session(anna, session_id)


@pytest.mark.parametrize("keeps", [True, False])
async def test_revoke_sessions_ends_all_logins_but_the_kept_one(world: World, keeps: bool) -> None:
    anna, ben = await registered(world, "anna"), await registered(world, "ben")
    commands = [a_login(world, anna) for _ in range(3)]
    bot, other = a_login(world, anna, bot="builder"), a_login(world, ben)
    for command in (*commands, bot, other):
        await opened(world, command)
    ids = [command.session.session_id for command in commands]
    ended = await world.storage.revoke_sessions(anna, keep=ids[1] if keeps else None)
    kept = ids[1:2] if keeps else []
    assert sorted([*ended, *kept]) == sorted(ids)
    assert await session_ids(world, anna) == [*kept, bot.session.session_id]
    assert await session_ids(world, ben) == [other.session.session_id]


async def test_touch_sessions_moves_forward_only(world: World) -> None:
    session = await phone_session(world)
    at_ms = world.now() + DAY_MS
    ids = [session.session_id, SessionId("sess_none")]
    await world.storage.touch_sessions(ids, now_ms=at_ms)
    await world.storage.touch_sessions(ids, now_ms=at_ms - 1)
    touched = await world.storage.session(session.session_id)
    assert touched == msgspec.structs.replace(session, last_active_at_ms=at_ms)
