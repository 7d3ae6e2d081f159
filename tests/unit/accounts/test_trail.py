"""What the account plane reports to the audit trail, and what it never does."""

import pytest

from tests.support.engines import MemoryHarness
from tests.unit.accounts.parts import IP, LAPTOP, PASSWORD, PHONE, Plane
from tidewire.accounts.options import AccountOptions, Registration, ThrottleOptions
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import (
    Forbidden,
    InvalidCredentials,
    InvalidInvite,
    InvalidRefreshToken,
    RateLimited,
)

WRONG = Secret("wrong password")


async def test_registering_and_logging_in_are_reported(plane: Plane) -> None:
    anna = await plane.registered()
    user_id = anna.user.user_id
    assert plane.trail.take() == [
        ("account.created", {"actor": user_id, "target": user_id}),
        (
            "login",
            {"actor": user_id, "target": user_id, "session_id": anna.session.session_id},
        ),
    ]
    await plane.logged_in()
    assert plane.trail.take()[1] == (
        "session.ended",
        {"actor": user_id, "target": user_id, "reason": "replaced", "count": 1},
    )


async def test_failed_login_names_the_account_that_it_was_about(plane: Plane) -> None:
    user_id = (await plane.registered()).user.user_id
    plane.trail.take()
    with pytest.raises(InvalidCredentials):
        await plane.logged_in(password=WRONG)
    await plane.accounts.admin.disable_user(user_id)
    plane.trail.take()
    with pytest.raises(Forbidden):
        await plane.logged_in()
    assert plane.trail.take() == [("login.failed", {"target": user_id, "reason": "forbidden"})]


async def test_failed_login_of_no_account_keeps_not_even_the_name(plane: Plane) -> None:
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("my-secret-password-by-mistake")
    assert plane.trail.take() == [("login.failed", {"reason": "invalid_credentials"})]


async def test_tries_that_are_throttled_are_reported(engine: MemoryHarness) -> None:
    throttle = ThrottleOptions(login_ip_burst=1, register_ip_burst=1)
    plane = Plane(engine, options=AccountOptions(throttle=throttle))
    await plane.registered()
    with pytest.raises(RateLimited):
        await plane.registered("berta")
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("nobody")
    with pytest.raises(RateLimited):
        await plane.logged_in("nobody")
    assert [(name, said.get("reason")) for name, said in plane.trail.take()[2:]] == [
        ("register.failed", "rate_limited"),
        ("login.failed", "invalid_credentials"),
        ("login.failed", "rate_limited"),
    ]


async def test_registering_without_a_good_invite_is_reported(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=AccountOptions(registration=Registration.INVITE))
    with pytest.raises(Forbidden):
        await plane.registered()
    with pytest.raises(InvalidInvite):
        await plane.accounts.service.register(
            "anna", PASSWORD, device_id=PHONE, client_ip=IP, invite=Secret("guessed")
        )
    assert [name for name, _ in plane.trail.take()] == ["register.failed"] * 2


async def test_sessions_that_end_are_reported_with_their_reason(plane: Plane) -> None:
    service = plane.accounts.service
    phone = await plane.registered()
    laptop = await plane.logged_in(device_id=LAPTOP)
    user_id = phone.user.user_id
    plane.trail.take()

    await service.revoke_session(user_id, laptop.session.session_id)
    await service.revoke_sessions(user_id, keep=phone.session.session_id)
    await service.logout(user_id, phone.session.session_id)
    await service.logout(user_id, phone.session.session_id)
    assert [(said["session_id"], said["reason"]) for _, said in plane.trail.take()] == [
        (laptop.session.session_id, "revoked"),
        (phone.session.session_id, "logout"),
    ]


async def test_all_sessions_that_end_at_once_are_one_record(plane: Plane) -> None:
    anna = await plane.registered()
    await plane.logged_in(device_id=LAPTOP)
    plane.trail.take()
    await plane.accounts.service.revoke_sessions(anna.user.user_id, keep=None)
    ((name, said),) = plane.trail.take()
    assert (name, said["count"]) == ("session.ended", 2)


async def test_stolen_refresh_token_is_reported(plane: Plane) -> None:
    anna = await plane.registered()
    service = plane.accounts.service
    await service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    plane.clock.pass_ms(60_000)
    plane.trail.take()
    with pytest.raises(InvalidRefreshToken):
        await service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    ((name, said),) = plane.trail.take()
    assert (name, said["reason"]) == ("session.ended", "refresh_token_reuse")
    assert said["target"] == anna.user.user_id


async def test_change_of_a_password_is_reported_done_or_not(plane: Plane) -> None:
    anna = await plane.registered()
    await plane.logged_in(device_id=LAPTOP)
    user_id = anna.user.user_id
    plane.trail.take()
    change = plane.accounts.service.change_password
    with pytest.raises(InvalidCredentials):
        await change(user_id, anna.session.session_id, old=WRONG, new=Secret("another one"))
    await change(user_id, anna.session.session_id, old=PASSWORD, new=Secret("another one"))
    assert plane.trail.take() == [
        (
            "password.failed",
            {"actor": user_id, "target": user_id, "reason": "invalid_credentials"},
        ),
        ("password.changed", {"actor": user_id, "target": user_id, "count": 1}),
    ]


async def test_acts_of_the_operator_are_reported_as_such(plane: Plane) -> None:
    admin = plane.accounts.admin
    user_id = (await admin.add_user("anna", PASSWORD)).user_id
    bot_id = (await admin.add_user("bot", None)).user_id
    bot = await admin.issue_bot_token(bot_id, "weather")
    await admin.set_password(user_id, Secret("another one"))
    await admin.disable_user(bot_id)
    await admin.enable_user(bot_id)
    await admin.create_invite()
    records = plane.trail.take()
    assert {said["actor"] for _, said in records} == {"operator"}
    assert [(name, said.get("target")) for name, said in records] == [
        ("account.created", user_id),
        ("account.created", bot_id),
        ("token.issued", bot_id),
        ("password.changed", user_id),
        ("account.disabled", bot_id),
        ("account.enabled", bot_id),
        ("invite.created", None),
    ]
    assert records[2][1]["session_id"] == bot.session.session_id


async def test_no_record_holds_a_secret(plane: Plane) -> None:
    anna = await plane.registered()
    with pytest.raises(InvalidCredentials):
        await plane.logged_in(password=WRONG)
    await plane.accounts.service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    invite = await plane.accounts.admin.create_invite()
    said = repr(plane.trail.take())
    for secret in (PASSWORD, WRONG, invite.code, anna.tokens.refresh_token):
        assert secret.reveal() not in said
