"""Names, lookups and blocks."""

import pytest

from tests.support.world import World
from tests.unit.accounts.parts import Plane
from tidewire.domain.errors import Forbidden, InvalidOperation, UserNotFound
from tidewire.domain.ids import UserId
from tidewire.domain.limits import LOOKUP_NAMES_MAX


async def test_lookup_says_who_was_found_and_who_was_not(plane: Plane) -> None:
    anna, ben = (await plane.registered("Anna")).user, (await plane.registered("ben")).user
    names = ["anna", "nobody", "BEN", "no name", "\ud800"]
    found = await plane.accounts.people.lookup(names)
    assert sorted(user.user_id for user in found.users) == sorted([anna.user_id, ben.user_id])
    assert found.not_found == ["nobody", "no name", "\ud800"]


async def test_lookup_does_not_find_the_disabled(plane: Plane) -> None:
    anna = await plane.registered("anna")
    await plane.accounts.admin.disable_user(anna.user.user_id)
    assert (await plane.accounts.people.lookup(["anna"])).not_found == ["anna"]


async def test_lookup_is_bounded(plane: Plane) -> None:
    await plane.accounts.people.lookup(["x"] * LOOKUP_NAMES_MAX)
    with pytest.raises(InvalidOperation):
        await plane.accounts.people.lookup(["x"] * (LOOKUP_NAMES_MAX + 1))


async def test_first_account_is_noticed_and_asked_for_no_more(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = plane.accounts.people
    assert not await people.has_anybody()
    await plane.registered("anna")
    assert await people.has_anybody()
    monkeypatch.setattr(plane.engine.storage, "list_users", None)
    assert await people.has_anybody()


async def test_user_is_found_by_id(plane: Plane) -> None:
    anna = (await plane.registered("anna")).user
    assert await plane.accounts.people.user(anna.user_id) == anna
    assert await plane.accounts.people.users([anna.user_id, UserId("user_none")]) == {
        anna.user_id: anna
    }
    with pytest.raises(UserNotFound):
        await plane.accounts.people.user(UserId("user_none"))


async def test_display_name_is_changed_if_it_is_one(plane: Plane) -> None:
    anna = (await plane.registered("anna")).user
    plane.clock.pass_ms(5)
    renamed = await plane.accounts.people.set_display_name(anna.user_id, "Anna ✨")
    assert (renamed.display_name, renamed.updated_at_ms) == ("Anna ✨", anna.updated_at_ms + 5)
    with pytest.raises(InvalidOperation):
        await plane.accounts.people.set_display_name(anna.user_id, " edge ")


async def test_block_tells_whoever_keeps_rosters_and_only_if_something_changed(
    plane: Plane,
) -> None:
    world = World(plane.engine)
    anna, ben, cleo = await world.people(3)
    chat = await world.direct(anna, ben)
    people = plane.accounts.people
    await people.block(anna, ben)
    await people.block(anna, ben)
    assert plane.rosters == [chat]
    assert isinstance(await world.try_send(chat, ben), Forbidden)
    await people.block(anna, cleo)
    assert plane.rosters == [chat]
    assert await people.blocked(anna) == sorted([ben, cleo])
    assert await people.blocked(anna, after=min(ben, cleo)) == [max(ben, cleo)]
    await people.unblock(anna, ben)
    await people.unblock(anna, ben)
    assert plane.rosters == [chat, chat]
    await world.send(chat, ben)
