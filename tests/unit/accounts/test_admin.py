"""What an operator does: users, bots' tokens, invites, and the housekeeping."""

import pytest

from tests.unit.accounts.forgery import decoded_part
from tests.unit.accounts.parts import PASSWORD, PHONE, Plane
from tidewire.domain.accounts import Secret, SessionKind
from tidewire.domain.errors import (
    AuthFailure,
    Forbidden,
    InvalidCredentials,
    InvalidOperation,
    Unauthorized,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.ids import UserId

NOBODY = UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
DAY_MS = 86_400_000


async def test_operator_makes_users_who_can_log_in_or_not(plane: Plane) -> None:
    admin = plane.accounts.admin
    anna = await admin.add_user("anna", PASSWORD, display_name="Anna")
    bot = await admin.add_user("builder", None)
    assert (anna.display_name, bot.display_name) == ("Anna", "builder")
    assert (await plane.logged_in("anna")).user == anna
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("builder")
    for name in ("anna", "BUILDER"):
        with pytest.raises(UsernameTaken):
            await admin.add_user(name, PASSWORD)
    for bad in (admin.add_user("a b", None), admin.add_user("ben", Secret("short"))):
        with pytest.raises(InvalidOperation):
            await bad


async def test_operator_lists_and_finds_users(plane: Plane) -> None:
    admin = plane.accounts.admin
    for name in ("cleo", "Anna", "ben"):
        await admin.add_user(name, None)
    assert [user.username for user in await admin.list_users()] == ["Anna", "ben", "cleo"]
    page = await admin.list_users(after="anna", count_max=1)
    assert [user.username for user in page] == ["ben"]
    assert (await admin.user_named("ANNA")).username == "Anna"
    with pytest.raises(UserNotFound):
        await admin.user_named("nobody")


async def test_operator_sets_a_password_and_ends_the_logins(plane: Plane) -> None:
    anna = await plane.registered()
    new = Secret("a new password")
    assert await plane.accounts.admin.set_password(anna.user.user_id, new) == 1
    assert plane.take_revoked() == [anna.session.session_id]
    with pytest.raises(InvalidCredentials):
        await plane.logged_in()
    await plane.logged_in(password=new)
    with pytest.raises(UserNotFound):
        await plane.accounts.admin.set_password(NOBODY, new)
    with pytest.raises(InvalidOperation):
        await plane.accounts.admin.set_password(anna.user.user_id, Secret("short"))


async def test_operator_disables_a_user_with_all_he_has(plane: Plane) -> None:
    anna = await plane.registered()
    bot = await plane.accounts.admin.issue_bot_token(anna.user.user_id, "builder")
    assert await plane.accounts.admin.disable_user(anna.user.user_id) == 2
    revoked = plane.take_revoked()
    assert {anna.session.session_id, bot.session.session_id} <= set(revoked)
    for token in (anna.tokens.access_token, bot.token):
        with pytest.raises(Unauthorized) as refused:
            await plane.accounts.authenticator.authenticate(token.reveal(), device_id=None)
        assert refused.value.reason is AuthFailure.TOKEN_REVOKED
    with pytest.raises(Forbidden):
        await plane.accounts.admin.issue_bot_token(anna.user.user_id, "again")
    enabled = await plane.accounts.admin.enable_user(anna.user.user_id)
    assert enabled.disabled_at_ms is None
    with pytest.raises(UserNotFound):
        await plane.accounts.admin.disable_user(NOBODY)


async def test_bot_token_is_long_lived_and_bound_to_no_device(plane: Plane) -> None:
    anna = await plane.registered()
    bot = await plane.accounts.admin.issue_bot_token(anna.user.user_id, "builder")
    assert bot.expires_at_ms == plane.clock.wall_ms() + 365 * DAY_MS
    assert (bot.session.kind, bot.session.label) == (SessionKind.BOT, "builder")
    assert "did" not in decoded_part(bot.token.reveal(), 1)
    assert bot.token.reveal() not in repr(bot)
    for device_id in (PHONE, None):
        identity = await plane.accounts.authenticator.authenticate(
            bot.token.reveal(), device_id=device_id
        )
        assert (identity.user_id, identity.device_id) == (anna.user.user_id, None)
    plane.clock.pass_ms(364 * DAY_MS)
    await plane.accounts.authenticator.authenticate(bot.token.reveal(), device_id=None)


async def test_bot_tokens_do_not_crowd_out_logins_and_end_one_by_one(plane: Plane) -> None:
    anna = await plane.registered()
    user_id = anna.user.user_id
    admin, service = plane.accounts.admin, plane.accounts.service
    bots = [await admin.issue_bot_token(user_id, f"bot {number}") for number in range(7)]
    assert plane.take_revoked() == []
    assert len(await service.sessions(user_id)) == 8
    assert await service.revoke_sessions(user_id, keep=None) == 1
    await plane.accounts.authenticator.authenticate(bots[0].token.reveal(), device_id=None)
    await service.revoke_session(user_id, bots[0].session.session_id)
    with pytest.raises(Unauthorized):
        await plane.accounts.authenticator.authenticate(bots[0].token.reveal(), device_id=None)


async def test_bot_token_is_refused_to_nobody_and_without_sense(plane: Plane) -> None:
    anna = await plane.registered()
    admin = plane.accounts.admin
    with pytest.raises(UserNotFound):
        await admin.issue_bot_token(NOBODY, "builder")
    with pytest.raises(InvalidOperation):
        await admin.issue_bot_token(anna.user.user_id, "")
    with pytest.raises(InvalidOperation):
        await admin.issue_bot_token(anna.user.user_id, "builder", life_ms=999)
    with pytest.raises(InvalidOperation, match="365 days at most"):
        # A key is not kept for longer than the longest token.
        await admin.issue_bot_token(anna.user.user_id, "builder", life_ms=366 * 86_400_000)
    short = await admin.issue_bot_token(anna.user.user_id, "builder", life_ms=60_000)
    assert short.expires_at_ms == plane.clock.wall_ms() + 60_000


async def test_invite_is_stored_as_a_hash_and_expires(plane: Plane) -> None:
    invite = await plane.accounts.admin.create_invite()
    assert invite.expires_at_ms == plane.clock.wall_ms() + 7 * DAY_MS
    assert invite.code.reveal() not in repr(invite)
    [(code_hash, stored)] = plane.engine._tables.accounts.invites.items()
    assert invite.code.reveal().encode() != code_hash
    assert stored.expires_at_ms == invite.expires_at_ms


async def test_housekeeping_notes_use_and_deletes_what_has_expired(plane: Plane) -> None:
    anna = await plane.registered()
    admin = plane.accounts.admin
    await admin.create_invite()
    await admin.issue_bot_token(anna.user.user_id, "builder", life_ms=60_000)
    plane.clock.pass_ms(10_000)
    token = anna.tokens.access_token.reveal()
    await plane.accounts.authenticator.authenticate(token, device_id=None)
    assert await admin.keep_house() == 0
    session = await plane.storage.session(anna.session.session_id)
    assert session is not None
    assert session.last_active_at_ms == plane.clock.wall_ms()
    plane.clock.pass_ms(8 * DAY_MS)
    assert await admin.keep_house() == 2
    assert await admin.keep_house() == 0
