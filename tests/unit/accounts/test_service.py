"""Registering, logging in, refreshing and logging out, with everything that may go wrong."""

import asyncio
import logging

import pytest

from tests.support.engines import MemoryHarness
from tests.unit.accounts.parts import IP, LAPTOP, PASSWORD, PHONE, PlainHasher, Plane
from tidewire.accounts import service
from tidewire.accounts.keys import TokenKey
from tidewire.accounts.login_limits import REFRESH_BURST, REGISTER_INTERVAL_MS
from tidewire.accounts.options import AccountOptions, Registration, ThrottleOptions
from tidewire.accounts.service import LoggedIn, Refreshed
from tidewire.domain.accounts import Secret, external_session_id
from tidewire.domain.errors import (
    DeviceMismatch,
    Forbidden,
    InvalidCredentials,
    InvalidInvite,
    InvalidOperation,
    InvalidRefreshToken,
    RateLimited,
    SessionNotFound,
    Unauthorized,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.ids import SESSION_PREFIX, USER_PREFIX, SessionId, UserId, has_form
from tidewire.ports.audit import ORIGIN, Origin

WRONG = Secret("wrong password")
GRACE_MS = 30_000


def a_device(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-00000000000f"


async def is_good(plane: Plane, logged_in: LoggedIn | Refreshed) -> bool:
    token = logged_in.tokens.access_token.reveal()
    try:
        await plane.accounts.authenticator.authenticate(token, device_id=None)
    except Unauthorized:
        return False
    return True


# Registering.


async def test_register_makes_an_account_and_logs_in(plane: Plane) -> None:
    anna = await plane.accounts.service.register(
        "anna", PASSWORD, device_id=PHONE.upper(), client_ip=IP, display_name="Anna ✨"
    )
    assert has_form(anna.user.user_id, USER_PREFIX)
    assert (anna.user.username, anna.user.display_name) == ("anna", "Anna ✨")
    assert has_form(anna.session.session_id, SESSION_PREFIX)
    assert (anna.session.device_id, anna.is_new_user) == (PHONE, True)
    assert anna.session.expires_at_ms == plane.clock.wall_ms() + 30 * 86_400_000
    assert anna.tokens.access_expires_at_ms == plane.clock.wall_ms() + 3_600_000
    assert await is_good(plane, anna)
    assert not (await plane.logged_in("anna", LAPTOP)).is_new_user


async def test_register_shows_no_secret(plane: Plane) -> None:
    anna = await plane.registered()
    shown = repr(anna)
    assert PASSWORD.reveal() not in shown
    for token in (anna.tokens.access_token, anna.tokens.refresh_token):
        assert token.reveal().rpartition(".")[2] not in shown


async def test_register_stores_no_secret(plane: Plane, engine: MemoryHarness) -> None:
    anna = await plane.registered()
    tables = engine._tables.accounts
    assert anna.tokens.refresh_token.reveal() not in repr(tables)
    row = tables.sessions[anna.session.session_id]
    assert row.refresh_hash is not None
    assert len(row.refresh_hash) == 32


async def test_register_hashes_off_the_event_loop(plane: Plane) -> None:
    await plane.registered()
    assert plane.blocking_calls == 1
    await plane.logged_in()
    assert plane.blocking_calls == 2


@pytest.mark.parametrize(
    ("username", "password", "display_name", "device_id"),
    [
        ("anna b", PASSWORD, None, PHONE),
        ("", PASSWORD, None, PHONE),
        ("anna", Secret("short"), None, PHONE),
        ("anna", Secret("x" * 1025), None, PHONE),
        ("anna", PASSWORD, " edge", PHONE),
        ("anna", PASSWORD, None, "phone"),
    ],
)
async def test_register_refuses_what_has_no_form(
    plane: Plane, username: str, password: Secret, display_name: str | None, device_id: str
) -> None:
    with pytest.raises(InvalidOperation):
        await plane.accounts.service.register(
            username, password, device_id=device_id, client_ip=IP, display_name=display_name
        )
    assert plane.blocking_calls == 0


async def test_register_refuses_a_name_that_is_taken(plane: Plane) -> None:
    await plane.registered("anna")
    with pytest.raises(UsernameTaken):
        await plane.registered("ANNA", LAPTOP)


async def test_register_is_refused_when_it_is_closed(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=AccountOptions(registration=Registration.CLOSED))
    with pytest.raises(Forbidden):
        await plane.registered()
    # The operator still can.
    await plane.accounts.admin.add_user("anna", PASSWORD)
    await plane.logged_in()


async def test_register_with_an_invite_lets_one_in(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=AccountOptions(registration=Registration.INVITE))
    with pytest.raises(Forbidden):
        await plane.registered()
    invite = await plane.accounts.admin.create_invite()
    outcomes = await asyncio.gather(
        *(
            plane.accounts.service.register(
                f"user{number}", PASSWORD, device_id=PHONE, client_ip=IP, invite=invite.code
            )
            for number in range(5)
        ),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(InvalidInvite) == 4
    [_] = [outcome for outcome in outcomes if isinstance(outcome, LoggedIn)]


async def test_register_without_a_good_invite_learns_nothing_and_costs_nothing(
    engine: MemoryHarness,
) -> None:
    """The same answer whether the name is taken or free, before anything is hashed (A16)."""
    plane = Plane(engine, options=AccountOptions(registration=Registration.INVITE))
    await plane.accounts.admin.add_user("anna", PASSWORD)
    calls, told = plane.blocking_calls, []
    for name in ("anna", "ben"):
        for invite in (None, Secret("nonsense")):
            with pytest.raises((Forbidden, InvalidInvite)) as refused:
                await plane.accounts.service.register(
                    name, PASSWORD, device_id=PHONE, client_ip=IP, invite=invite
                )
            told.append((refused.type, str(refused.value)))
    assert told[:2] == told[2:]
    assert plane.blocking_calls == calls


@pytest.mark.parametrize("username", ["admin", "System", "SUP.PORT"])
async def test_register_refuses_names_that_pass_for_the_server(plane: Plane, username: str) -> None:
    with pytest.raises(InvalidOperation, match="reserved"):
        await plane.registered(username)
    with pytest.raises(InvalidOperation, match="reserved"):
        await plane.accounts.service.register(
            "anna", PASSWORD, device_id=PHONE, client_ip=IP, display_name=username
        )
    # The operator can give it, and its owner works like everybody.
    await plane.accounts.admin.add_user(username, PASSWORD)
    owner = (await plane.logged_in(username)).user
    shown = await plane.accounts.people.set_display_name(owner.user_id, username.upper())
    assert shown.display_name == username.upper()
    with pytest.raises(InvalidOperation, match="reserved"):
        await plane.accounts.people.set_display_name(owner.user_id, "Moderator")


async def test_register_ignores_an_invite_when_nobody_needs_one(plane: Plane) -> None:
    await plane.accounts.service.register(
        "anna", PASSWORD, device_id=PHONE, client_ip=IP, invite=Secret("whatever")
    )


async def test_register_is_throttled_by_address(engine: MemoryHarness) -> None:
    options = AccountOptions(throttle=ThrottleOptions(register_ip_burst=2))
    plane = Plane(engine, options=options)
    await plane.registered("user1")
    await plane.registered("user2")
    with pytest.raises(RateLimited) as refused:
        await plane.registered("user3")
    assert refused.value.retry_after_ms == REGISTER_INTERVAL_MS
    await plane.accounts.service.register("user3", PASSWORD, device_id=PHONE, client_ip="192.0.2.2")


# Logging in.


async def test_login_ignores_the_case_of_a_name(plane: Plane) -> None:
    anna = await plane.registered("Anna")
    assert (await plane.logged_in("aNNA", LAPTOP)).user == anna.user


async def test_login_on_the_same_device_ends_the_earlier_session(plane: Plane) -> None:
    first = await plane.registered("anna", PHONE)
    second = await plane.logged_in("anna", PHONE)
    assert plane.take_revoked() == [first.session.session_id]
    assert not await is_good(plane, first)
    assert await is_good(plane, second)


async def test_login_beyond_the_bound_ends_the_oldest(plane: Plane) -> None:
    first = await plane.registered("anna", a_device(0))
    for number in range(1, plane.options.sessions_max):
        plane.clock.pass_ms(1)
        await plane.logged_in("anna", a_device(number))
    assert plane.take_revoked() == []
    await plane.logged_in("anna", a_device(99))
    assert plane.take_revoked() == [first.session.session_id]
    assert not await is_good(plane, first)


@pytest.mark.parametrize(
    "username", ["anna", "nobody", "no name", "", "x" * 500, "a\x00b", "\ud800", "zoe"]
)
async def test_login_that_fails_looks_the_same_for_every_reason(
    plane: Plane, username: str
) -> None:
    """Same answer, same work: a stranger does not learn who has an account."""
    await plane.registered("anna")
    # Somebody without a password.
    await plane.accounts.admin.add_user("zoe", None)
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("anna", LAPTOP, WRONG)
    plane.hasher.calls.clear()
    blocking_calls = plane.blocking_calls
    with pytest.raises(InvalidCredentials) as refused:
        await plane.logged_in(username, LAPTOP, WRONG)
    assert str(refused.value) == str(InvalidCredentials())
    assert plane.hasher.calls == ["matches"]
    assert plane.blocking_calls == blocking_calls + 1


async def test_login_of_a_disabled_user_is_refused(plane: Plane) -> None:
    anna = await plane.registered()
    await plane.accounts.admin.disable_user(anna.user.user_id)
    with pytest.raises(Forbidden):
        await plane.logged_in()
    # Who does not know the password learns nothing of it.
    with pytest.raises(InvalidCredentials):
        await plane.logged_in(password=WRONG)
    await plane.accounts.admin.enable_user(anna.user.user_id)
    await plane.logged_in()


async def test_login_replaces_an_outdated_hash(plane: Plane) -> None:
    anna = await plane.registered()
    plane.hasher.version = 2
    await plane.logged_in()
    credentials = await plane.storage.credentials_of(anna.user.user_id)
    assert credentials is not None
    assert credentials.password_hash == PlainHasher(2).hash(PASSWORD)
    plane.hasher.calls.clear()
    await plane.logged_in()
    assert plane.hasher.calls == ["matches"]


async def test_login_with_a_password_that_is_changed_meanwhile_is_refused(plane: Plane) -> None:
    """An intruder who is logging in while the password is changed must not slip in after it."""
    anna = await plane.registered()
    hash_now = plane.hasher.matches

    def change_then_match(stored: str, password: Secret) -> bool:
        is_right = hash_now(stored, password)
        engine = plane.engine._tables.accounts
        engine.passwords[anna.user.user_id] = "v1:new password"
        return is_right

    plane.hasher.matches = change_then_match  # type: ignore[method-assign]
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("anna", LAPTOP)
    assert len(await plane.accounts.service.sessions(anna.user.user_id)) == 1


# Refreshing.


async def refreshed(plane: Plane, token: Secret, device_id: str = PHONE) -> Refreshed:
    return await plane.accounts.service.refresh(token, device_id=device_id)


async def test_refresh_gives_new_tokens_and_uses_the_old_one_up(plane: Plane) -> None:
    anna = await plane.registered()
    plane.clock.pass_ms(1000)
    first = await refreshed(plane, anna.tokens.refresh_token)
    assert first.session.session_id == anna.session.session_id
    assert first.session.generation == 1
    assert first.tokens.refresh_token != anna.tokens.refresh_token
    assert first.tokens.access_token != anna.tokens.access_token
    assert first.tokens.access_expires_at_ms == anna.tokens.access_expires_at_ms + 1000
    second = await refreshed(plane, first.tokens.refresh_token)
    assert second.session.generation == 2
    # Access tokens that were given out before stay good: it is the same session.
    for tokens in (anna, first, second):
        assert await is_good(plane, tokens)


async def test_refresh_whose_answer_was_lost_is_answered_again(plane: Plane) -> None:
    anna = await plane.registered()
    lost = await refreshed(plane, anna.tokens.refresh_token)
    plane.clock.pass_ms(GRACE_MS)
    again = await refreshed(plane, anna.tokens.refresh_token)
    assert again.tokens.refresh_token == lost.tokens.refresh_token
    assert again.session.generation == 1
    assert (await refreshed(plane, again.tokens.refresh_token)).session.generation == 2
    assert plane.take_revoked() == []


async def test_refreshes_at_once_all_succeed_and_whichever_is_kept_goes_on(plane: Plane) -> None:
    anna = await plane.registered()
    outcomes = await asyncio.gather(
        *(refreshed(plane, anna.tokens.refresh_token) for _ in range(4))
    )
    assert len({outcome.tokens.refresh_token.reveal() for outcome in outcomes}) == 1
    for outcome in outcomes:
        assert await is_good(plane, outcome)
    plane.clock.pass_ms(10 * GRACE_MS)
    assert (await refreshed(plane, outcomes[2].tokens.refresh_token)).session.generation == 2


async def test_refresh_token_used_again_after_the_grace_ends_the_session(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    anna = await plane.registered()
    thief = await refreshed(plane, anna.tokens.refresh_token)
    plane.clock.pass_ms(GRACE_MS + 1)
    with caplog.at_level(logging.WARNING), pytest.raises(InvalidRefreshToken):
        await refreshed(plane, anna.tokens.refresh_token)
    assert plane.take_revoked() == [anna.session.session_id]
    assert not await is_good(plane, thief)
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, thief.tokens.refresh_token)
    assert "auth.refresh_token_reuse" in caplog.text
    assert anna.tokens.refresh_token.reveal() not in caplog.text


@pytest.mark.parametrize("age", [2, 3, 7])
async def test_refresh_token_of_any_older_generation_ends_the_session(
    plane: Plane, age: int
) -> None:
    anna = await plane.registered()
    token = anna.tokens.refresh_token
    for _ in range(age):
        token = (await refreshed(plane, token)).tokens.refresh_token
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, anna.tokens.refresh_token)
    assert plane.take_revoked() == [anna.session.session_id]
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, token)


async def test_old_or_guessed_refresh_token_is_looked_at_in_turns(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def pause(delay_ms: int) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(service, "pause", pause)
    anna = await plane.registered()
    token = anna.tokens.refresh_token
    for _ in range(3 * service.GENERATIONS_AT_ONCE + 1):
        plane.clock.pass_ms(2_000)
        token = (await refreshed(plane, token)).tokens.refresh_token
    assert turns == 0
    guess = Secret(f"{anna.session.session_id}.{'a' * 43}")
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, guess)
    assert turns == 3
    assert plane.take_revoked() == []
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, anna.tokens.refresh_token)
    assert plane.take_revoked() == [anna.session.session_id]


async def test_refresh_with_a_guess_is_refused_and_ends_nothing(plane: Plane) -> None:
    """Whoever knows a session's name cannot end it."""
    anna = await plane.registered()
    for token in (
        "",
        "nonsense",
        f"{anna.session.session_id}.{'A' * 43}",
        f"{SessionId('sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE')}.{'A' * 43}",
    ):
        with pytest.raises(InvalidRefreshToken):
            await refreshed(plane, Secret(token))
    assert plane.take_revoked() == []
    await refreshed(plane, anna.tokens.refresh_token)


async def test_refresh_from_another_device_is_refused_and_ends_nothing(plane: Plane) -> None:
    anna = await plane.registered("anna", PHONE)
    with pytest.raises(DeviceMismatch):
        await refreshed(plane, anna.tokens.refresh_token, LAPTOP)
    assert plane.take_revoked() == []
    await refreshed(plane, anna.tokens.refresh_token, PHONE.upper())


async def test_refresh_keeps_an_active_device_logged_in(plane: Plane) -> None:
    """It ended after 30 days, however active it was (B7)."""
    token = (await plane.registered()).tokens.refresh_token
    for _ in range(5):
        plane.clock.pass_ms(plane.options.session_ms - 60_000)
        token = (await refreshed(plane, token)).tokens.refresh_token
    plane.clock.pass_ms(plane.options.session_ms)
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, token)


async def test_refresh_makes_no_session_longer_than_the_bound(engine: MemoryHarness) -> None:
    day_ms = 86_400_000
    options = AccountOptions(session_ms=30 * day_ms, session_ms_max=40 * day_ms)
    plane = Plane(engine, options=options)
    anna = await plane.registered()
    plane.clock.pass_ms(29 * day_ms)
    token = (await refreshed(plane, anna.tokens.refresh_token)).tokens.refresh_token
    plane.clock.pass_ms(11 * day_ms - 60_000)
    last = await refreshed(plane, token)
    assert last.tokens.access_expires_at_ms == anna.session.created_at_ms + 40 * day_ms
    plane.clock.pass_ms(60_000)
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, last.tokens.refresh_token)


async def test_bound_below_the_usual_life_shortens_the_first_one(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=AccountOptions(session_ms_max=3_600_000))
    anna = await plane.registered()
    assert anna.session.expires_at_ms == plane.clock.wall_ms() + 3_600_000


async def test_session_says_where_it_was_opened_and_refreshed(plane: Plane) -> None:
    origin = ORIGIN.set(Origin("192.0.2.1", "A phone\x00 \u202e  1.0"))
    try:
        anna = await plane.registered()
        ORIGIN.set(Origin("2001:db8::1", None))
        await refreshed(plane, anna.tokens.refresh_token)
    finally:
        ORIGIN.reset(origin)
    assert (anna.session.address, anna.session.client) == ("192.0.2.1", "A phone 1.0")
    (session,) = await plane.accounts.service.sessions(anna.user.user_id)
    assert (session.address, session.client) == ("2001:db8::1", "A phone 1.0")


async def test_refresh_is_throttled_by_session(plane: Plane) -> None:
    anna, ben = await plane.registered("anna"), await plane.registered("ben")
    for _ in range(REFRESH_BURST):
        await refreshed(plane, anna.tokens.refresh_token)
    with pytest.raises(RateLimited):
        await refreshed(plane, anna.tokens.refresh_token)
    await refreshed(plane, ben.tokens.refresh_token)


async def test_refresh_after_the_servers_secret_was_changed_still_works(
    plane: Plane, engine: MemoryHarness
) -> None:
    """Changing the secret ends access tokens; devices come back with their refresh tokens."""
    anna = await plane.registered()
    plane.keys.replace([TokenKey(secret=Secret("another key" * 4))])
    again = await refreshed(plane, anna.tokens.refresh_token)
    assert (await refreshed(plane, again.tokens.refresh_token)).session.generation == 2


# Going out.


async def test_logout_ends_the_session_and_may_be_repeated(plane: Plane) -> None:
    anna = await plane.registered()
    laptop = await plane.logged_in("anna", LAPTOP)
    for _ in range(2):
        await plane.accounts.service.logout(anna.user.user_id, anna.session.session_id)
    assert not await is_good(plane, anna)
    assert await is_good(plane, laptop)
    with pytest.raises(InvalidRefreshToken):
        await refreshed(plane, anna.tokens.refresh_token)


async def test_logout_of_an_identity_providers_user_ends_nothing_of_ours(plane: Plane) -> None:
    user = await plane.accounts.admin.add_user("zoe", None)
    await plane.accounts.service.logout(user.user_id, external_session_id(user))
    assert plane.take_revoked() == []


async def test_session_of_somebody_else_is_not_found(plane: Plane) -> None:
    anna, ben = await plane.registered("anna"), await plane.registered("ben", LAPTOP)
    with pytest.raises(SessionNotFound):
        await plane.accounts.service.revoke_session(ben.user.user_id, anna.session.session_id)
    assert plane.take_revoked() == []
    assert await is_good(plane, anna)


async def test_sessions_are_ended_all_but_one(plane: Plane) -> None:
    anna = await plane.registered("anna", PHONE)
    plane.clock.pass_ms(1)
    laptop = await plane.logged_in("anna", LAPTOP)
    sessions = await plane.accounts.service.sessions(anna.user.user_id)
    assert sessions == [anna.session, laptop.session]
    ended = await plane.accounts.service.revoke_sessions(
        anna.user.user_id, keep=laptop.session.session_id
    )
    assert (ended, plane.take_revoked()) == (1, [anna.session.session_id])
    assert await is_good(plane, laptop)
    assert await plane.accounts.service.revoke_sessions(anna.user.user_id, keep=None) == 1
    assert not await is_good(plane, laptop)
    assert await plane.accounts.service.revoke_sessions(anna.user.user_id, keep=None) == 0


# Changing the password.


async def test_change_password_ends_the_other_logins(plane: Plane) -> None:
    anna = await plane.registered("anna", PHONE)
    laptop = await plane.logged_in("anna", LAPTOP)
    new = Secret("a new password")
    ended = await plane.accounts.service.change_password(
        anna.user.user_id, anna.session.session_id, old=PASSWORD, new=new
    )
    assert (ended, plane.take_revoked()) == (1, [laptop.session.session_id])
    assert await is_good(plane, anna)
    assert not await is_good(plane, laptop)
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("anna", LAPTOP)
    await plane.logged_in("anna", LAPTOP, new)


async def test_change_password_needs_the_old_one_and_a_good_new_one(
    engine: MemoryHarness,
) -> None:
    plane = Plane(engine, options=AccountOptions(throttle=ThrottleOptions(login_name_burst=3)))
    anna = await plane.registered()
    user_id, session_id = anna.user.user_id, anna.session.session_id
    change = plane.accounts.service.change_password
    with pytest.raises(InvalidOperation):
        await change(user_id, session_id, old=PASSWORD, new=Secret("short"))
    for _ in range(3):
        with pytest.raises(InvalidCredentials):
            await change(user_id, session_id, old=WRONG, new=Secret("a new password"))
    # A stolen access token is not enough to guess the password with.
    with pytest.raises(RateLimited):
        await change(user_id, session_id, old=PASSWORD, new=Secret("a new password"))
    with pytest.raises(UserNotFound):
        await change(UserId("user_none"), session_id, old=PASSWORD, new=Secret("a new password"))
    # Somebody who fails here does not lock the login of his name.
    await plane.logged_in("anna")
