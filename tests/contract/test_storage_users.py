"""UserStore, and what holds for the store as a whole: its epoch, its end."""

import asyncio

import pytest

from tests.support.world import World
from tidewire.domain.errors import StoreUnavailable, UsernameTaken
from tidewire.domain.ids import UserId
from tidewire.domain.users import User


def a_user(world: World, username: str, user_id: UserId | None = None) -> User:
    now_ms = world.now()
    return User(
        user_id=user_id or world.ids.user_id(now_ms),
        username=username,
        display_name=f"{username} ✨",
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


async def test_add_user_stores_the_user(world: World) -> None:
    user = a_user(world, "Anna")
    assert await world.storage.add_user(user) == user
    assert await world.storage.users([user.user_id]) == [user]


async def test_add_user_finds_the_first_one_when_tried_again(world: World) -> None:
    user = a_user(world, "anna")
    await world.storage.add_user(user)
    other = a_user(world, "other", user.user_id)
    assert await world.storage.add_user(user) == user
    assert await world.storage.add_user(other) == user
    assert await world.storage.user_named("other") is None


@pytest.mark.parametrize("username", ["anna", "ANNA", "aNNa"])
async def test_add_user_refuses_a_name_that_is_taken(world: World, username: str) -> None:
    user = a_user(world, "Anna")
    await world.storage.add_user(user)
    with pytest.raises(UsernameTaken):
        await world.storage.add_user(a_user(world, username))
    assert await world.storage.user_named("anna") == user


async def test_add_user_gives_a_name_to_one_of_those_who_ask_at_once(world: World) -> None:
    users = [a_user(world, username) for username in ("anna", "Anna", "ANNA", "anna")]
    outcomes = await asyncio.gather(
        *(world.storage.add_user(user) for user in users), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes].count(UsernameTaken) == 3
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, User)]
    assert await world.storage.user_named("anna") == winner
    assert await world.storage.users([user.user_id for user in users]) == [winner]


async def test_users_are_those_that_exist(world: World) -> None:
    users = [a_user(world, name) for name in ("anna", "ben", "cleo")]
    for user in users:
        await world.storage.add_user(user)
    wanted = [users[2].user_id, world.stranger(), users[0].user_id]
    found = await world.storage.users(wanted)
    assert sorted(found, key=lambda user: user.user_id) == [users[0], users[2]]
    assert await world.storage.users([]) == []


async def test_user_named_ignores_case(world: World) -> None:
    user = a_user(world, "Anna.B-1")
    await world.storage.add_user(user)
    for username in ("Anna.B-1", "anna.b-1", "ANNA.B-1"):
        assert await world.storage.user_named(username) == user
    assert await world.storage.user_named("Anna") is None


async def test_users_are_still_there_after_a_restart(world: World) -> None:
    user = a_user(world, "anna")
    await world.storage.add_user(user)
    await world.engine.reopen()
    assert await world.storage.user_named("anna") == user


# The store as a whole.


async def test_epoch_is_of_the_data_not_of_the_process(world: World) -> None:
    epoch = world.storage.epoch
    assert epoch
    await world.engine.reopen()
    assert world.storage.epoch == epoch


async def test_close_finishes_what_was_taken_in(world: World) -> None:
    """Every send that was answered with success is there after the store is opened again."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    sends = [asyncio.ensure_future(world.append(world.draft(chat, anna))) for _ in range(20)]
    await asyncio.sleep(0)
    await world.engine.reopen()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    stored = [outcome for outcome in outcomes if isinstance(outcome, list)]
    refused = [outcome for outcome in outcomes if not isinstance(outcome, list)]
    assert all(isinstance(outcome, StoreUnavailable) for outcome in refused)
    assert len(await world.messages(ben, chat)) == len(stored) == 20


async def test_calls_after_close_are_refused(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    storage, draft = world.storage, world.draft(chat, anna)
    await world.engine.close()
    for call in (
        storage.append([draft], now_ms=world.now()),
        storage.advance([], now_ms=world.now()),
        storage.messages_after(anna, chat, 0, count_max=1, bytes_max=1),
        storage.add_user(a_user(world, "late")),
        storage.digest(anna, after=None, count_max=1),
    ):
        with pytest.raises(StoreUnavailable):
            await call
