"""DeletionStore: an account that was deleted is gone for everybody, and its messages stay."""

import pytest

from tests.support.accounts import a_login, a_user, registered
from tests.support.world import World
from tidewire.domain.accounts import ExternalIdentity
from tidewire.domain.chats import CreateDirect, DirectPolicy
from tidewire.domain.errors import (
    Forbidden,
    InvalidCredentials,
    InvalidOperation,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.ids import UserId
from tidewire.domain.users import DELETED_NAME, ERASED_PREFIX, User


async def user_of(world: World, user_id: UserId) -> User:
    (user,) = await world.storage.users([user_id])
    return user


async def test_deletion_marks_the_user_and_ends_all_sessions(world: World) -> None:
    anna = await registered(world, "anna")
    commands = [a_login(world, anna), a_login(world, anna), a_login(world, anna, bot="builder")]
    for command in commands:
        await world.storage.open_session(command, sessions_max=5, now_ms=world.now())
    now_ms = world.now()
    ended = await world.storage.begin_deletion(anna, now_ms=now_ms)
    assert sorted(ended) == sorted(command.session.session_id for command in commands)
    assert await world.storage.sessions(anna, now_ms=now_ms) == []

    user = await user_of(world, anna)
    assert (user.deleted_at_ms, user.disabled_at_ms) == (now_ms, now_ms)
    assert (user.username, user.display_name) == ("anna", DELETED_NAME)
    assert user.updated_at_ms == now_ms
    credentials = await world.storage.credentials("anna")
    assert credentials is not None
    assert (credentials.password_hash, tuple(credentials.places)) == (None, ())


async def test_deletion_again_changes_nothing(world: World) -> None:
    anna = await registered(world, "anna")
    await world.storage.begin_deletion(anna, now_ms=world.now())
    user = await user_of(world, anna)
    assert await world.storage.begin_deletion(anna, now_ms=world.now()) == []
    assert await user_of(world, anna) == user
    await world.storage.finish_deletion(anna)
    assert await world.storage.begin_deletion(anna, now_ms=world.now()) == []
    assert await world.storage.pending_deletions(count_max=9) == []


async def test_deletion_of_a_disabled_user_keeps_when_that_was(world: World) -> None:
    anna = await registered(world, "anna")
    disabled_at_ms = world.now()
    await world.storage.disable_user(anna, now_ms=disabled_at_ms)
    await world.storage.begin_deletion(anna, now_ms=world.now())
    assert (await user_of(world, anna)).disabled_at_ms == disabled_at_ms


async def test_deletion_of_nobody_is_refused(world: World) -> None:
    with pytest.raises(UserNotFound):
        await world.storage.begin_deletion(world.stranger(), now_ms=world.now())


async def test_wish_that_messages_go_too_is_kept_until_the_deletion_is_finished(
    world: World,
) -> None:
    anna, ben = await registered(world, "anna"), await registered(world, "ben")
    await world.storage.begin_deletion(anna, now_ms=world.now(), erases=True)
    await world.storage.begin_deletion(ben, now_ms=world.now())
    # Again changes nothing.
    await world.storage.begin_deletion(anna, now_ms=world.now())
    pending = await world.storage.pending_deletions(count_max=9)
    assert {one.user.user_id: one.erases for one in pending} == {anna: True, ben: False}
    for _ in range(2):
        await world.storage.finish_deletion(anna)
    [left] = await world.storage.pending_deletions(count_max=9)
    assert left.user.user_id == ben


async def test_deletion_is_pending_until_it_is_finished(world: World) -> None:
    anna, ben = await registered(world, "anna"), await registered(world, "ben")
    for user_id in (anna, ben):
        await world.storage.begin_deletion(user_id, now_ms=world.now())
    pending = await world.storage.pending_deletions(count_max=9)
    assert sorted(one.user.user_id for one in pending) == sorted([anna, ben])
    assert all(one.user.deleted_at_ms is not None and not one.erases for one in pending)
    assert len(await world.storage.pending_deletions(count_max=1)) == 1
    for _ in range(2):
        await world.storage.finish_deletion(anna)
    [left] = await world.storage.pending_deletions(count_max=9)
    assert left.user.user_id == ben
    assert [user.username for user in await world.storage.list_users(after=None, count_max=9)] == [
        "anna",
        "ben",
    ]


async def test_deleted_user_cannot_come_back(world: World) -> None:
    anna = await registered(world, "anna", "hash")
    await world.storage.begin_deletion(anna, now_ms=world.now())
    with pytest.raises(Forbidden):
        await world.storage.open_session(a_login(world, anna), sessions_max=5, now_ms=world.now())
    with pytest.raises(InvalidCredentials):
        await world.storage.set_password(
            anna, "new", expected_hash="hash", keep=None, now_ms=world.now()
        )
    with pytest.raises(InvalidOperation, match="deleted"):
        await world.storage.enable_user(anna, now_ms=world.now())
    with pytest.raises(UserNotFound):
        await world.storage.set_display_name(anna, "Anna", now_ms=world.now())
    with pytest.raises(UsernameTaken):
        await registered(world, "ANNA")


async def test_deleted_user_of_an_identity_provider_is_found_as_such(world: World) -> None:
    identity = ExternalIdentity("https://login.example", "42")
    user = a_user(world, "anna")
    await world.storage.ensure_external_user(identity, user, fallback_username="u-1")
    await world.storage.begin_deletion(user.user_id, now_ms=world.now())
    again = await world.storage.ensure_external_user(
        identity, a_user(world, "anna2"), fallback_username="u-2"
    )
    assert again.user_id == user.user_id
    assert again.deleted_at_ms is not None


async def test_deleted_user_can_be_put_into_no_chat(world: World) -> None:
    owner, member, gone = await world.people(3)
    group = await world.group(owner, member)
    await world.storage.begin_deletion(gone, now_ms=world.now())
    with pytest.raises(UserNotFound):
        await world.add(owner, group, gone)
    with pytest.raises(UserNotFound):
        await world.group(owner, gone)
    with pytest.raises(UserNotFound):
        await world.direct(owner, gone)
    assert set(await world.members(owner, group)) == {owner, member}


async def test_direct_chat_with_a_deleted_user_stays(world: World) -> None:
    anna, gone = await world.people(2)
    chat_id = await world.direct(anna, gone)
    await world.send(chat_id, gone, "goodbye")
    await world.storage.begin_deletion(gone, now_ms=world.now())
    (message,) = await world.messages(anna, chat_id)
    assert (message.sender_id, message.content) == (gone, "goodbye")
    command = CreateDirect(
        chat_id=world.no_chat(), actor_id=anna, other_id=gone, policy=DirectPolicy.NOBODY
    )
    found = await world.storage.create_direct(command, now_ms=world.now())
    assert (found.chat.chat_id, found.created) == (chat_id, False)


async def test_erased_name_gives_way_to_a_pseudonym_and_is_free(world: World) -> None:
    anna = await registered(world, "Anna")
    with pytest.raises(InvalidOperation):
        await world.storage.erase_name(anna, now_ms=world.now())
    await world.storage.begin_deletion(anna, now_ms=world.now())
    user = await world.storage.erase_name(anna, now_ms=world.now())
    assert user.username == ERASED_PREFIX + anna[-26:].lower()
    assert user.display_name == DELETED_NAME
    assert await user_of(world, anna) == user
    assert await world.storage.erase_name(anna, now_ms=world.now()) == user
    assert await world.storage.user_named("anna") is None
    assert await world.storage.user_named(user.username) == user
    [pending] = await world.storage.pending_deletions(count_max=9)
    assert pending.user.user_id == anna
    other = await registered(world, "anna")
    assert (await user_of(world, other)).username == "anna"
    with pytest.raises(UserNotFound):
        await world.storage.erase_name(world.stranger(), now_ms=world.now())
