"""Deleting an account: what becomes of groups, blocks and sessions, also after a crash."""

import asyncio

import pytest

from tests.unit.accounts.parts import PASSWORD, Plane
from tidewire.accounts import deletion as deletions
from tidewire.accounts.deletion import SETTLE_MS, AccountDeletion
from tidewire.domain.accounts import Secret, external_session_id
from tidewire.domain.chats import Role
from tidewire.domain.errors import (
    InvalidCredentials,
    InvalidOperation,
    NotAMember,
    RateLimited,
    StoreUnavailable,
    TidewireError,
    Unauthorized,
    UserNotFound,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.users import DELETED_NAME


class Crew:
    """Anna, who owns groups, and others in them."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.ids: dict[str, UserId] = {}

    async def gather(self) -> None:
        self.login = await self.plane.registered("anna")
        self.ids["anna"] = self.login.user.user_id
        for name in ("ben", "cleo", "dora"):
            self.plane.clock.pass_ms(1)
            self.ids[name] = (await self.plane.registered(name)).user.user_id
        self.plane.trail.take()
        self.plane.take_revoked()

    async def group(self, owner: str, *members: str, admins: tuple[str, ...] = ()) -> ChatId:
        made = await self.plane.chats.create_group(
            self.ids[owner], "crew", [self.ids[name] for name in members[:1]]
        )
        chat_id = made.chat.chat_id
        for name in members[1:]:
            self.plane.clock.pass_ms(1)
            await self.plane.chats.add_member(self.ids[owner], chat_id, self.ids[name])
        for name in admins:
            await self.plane.chats.change_role(self.ids[owner], chat_id, self.ids[name], Role.ADMIN)
        self.plane.trail.take()
        return chat_id

    async def owner(self, reader: str, chat_id: ChatId) -> str:
        members = await self.plane.storage.members(
            self.ids[reader], chat_id, after=None, count_max=99
        )
        names = {user_id: name for name, user_id in self.ids.items()}
        assert self.ids["anna"] not in [member.user_id for member in members]
        return next(names[one.user_id] for one in members if one.role is Role.OWNER)

    async def delete(self) -> None:
        await self.plane.accounts.service.delete_account(self.ids["anna"], password=PASSWORD)


@pytest.fixture
async def crew(plane: Plane) -> Crew:
    crew = Crew(plane)
    await crew.gather()
    return crew


async def test_deleted_account_is_nobodys_any_more(crew: Crew) -> None:
    plane, anna = crew.plane, crew.login
    await crew.delete()
    assert plane.take_revoked() == [anna.session.session_id, external_session_id(anna.user)]
    with pytest.raises(Unauthorized):
        await plane.accounts.authenticator.authenticate(
            anna.tokens.access_token.reveal(), device_id=None
        )
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("anna")
    shown = await plane.accounts.people.user(anna.user.user_id)
    assert shown.display_name == DELETED_NAME
    assert (await plane.accounts.people.lookup(["anna"])).not_found == ["anna"]
    with pytest.raises(UserNotFound):
        await plane.accounts.admin.user_named("anna")


async def test_groups_pass_to_the_longest_serving_admin_then_member_or_close(crew: Crew) -> None:
    of_admins = await crew.group("anna", "ben", "cleo", "dora", admins=("dora", "cleo"))
    of_members = await crew.group("anna", "cleo", "ben")
    of_another = await crew.group("ben", "anna", "cleo")
    made = await crew.plane.chats.create_group(crew.ids["anna"], "alone", [crew.ids["ben"]])
    alone = made.chat.chat_id
    await crew.plane.chats.remove_member(crew.ids["anna"], alone, crew.ids["ben"])
    await crew.delete()
    assert await crew.owner("ben", of_admins) == "cleo"
    assert await crew.owner("ben", of_members) == "cleo"
    assert await crew.owner("cleo", of_another) == "ben"
    with pytest.raises(NotAMember):
        await crew.plane.storage.access_chat(crew.ids["anna"], alone)


async def test_direct_chat_stays_for_the_other(crew: Crew) -> None:
    chat = (await crew.plane.chats.create_direct(crew.ids["ben"], crew.ids["anna"])).chat
    await crew.delete()
    access = await crew.plane.storage.access_chat(crew.ids["ben"], chat.chat_id)
    assert access.chat.member_count == 2


async def test_blocks_are_forgotten(crew: Crew) -> None:
    chat = (await crew.plane.chats.create_direct(crew.ids["ben"], crew.ids["anna"])).chat
    for name in ("ben", "cleo"):
        await crew.plane.accounts.people.block(crew.ids["anna"], crew.ids[name])
    crew.plane.rosters.clear()
    await crew.delete()
    assert await crew.plane.accounts.people.blocked(crew.ids["anna"]) == []
    assert crew.plane.rosters == [chat.chat_id], "its roster has another version"


async def test_account_is_not_deleted_without_its_password(crew: Crew) -> None:
    delete = crew.plane.accounts.service.delete_account
    for _ in range(10):
        with pytest.raises(InvalidCredentials):
            await delete(crew.ids["anna"], password=Secret("a wrong one"))
    with pytest.raises(RateLimited):
        await delete(crew.ids["anna"], password=PASSWORD)
    assert {name for name, _ in crew.plane.trail.take()} == {"password.failed"}
    assert (await crew.plane.accounts.people.user(crew.ids["anna"])).deleted_at_ms is None


async def test_deletion_is_reported_once_with_what_follows_from_it(crew: Crew) -> None:
    await crew.group("anna", "ben")
    await crew.delete()
    records = crew.plane.trail.take()
    assert [name for name, _ in records] == [
        "account.deleted",
        "group.handed_over",
        "member.left",
    ]
    anna = crew.ids["anna"]
    assert records[0][1] == {"actor": anna, "target": anna, "count": 1}
    user, ended = await crew.plane.accounts.admin.delete_user("anna")
    assert (user.user_id, ended) == (anna, 0)
    assert crew.plane.trail.take() == []


async def test_operator_deletes_an_account_and_nobody_nobody(crew: Crew) -> None:
    _, ended = await crew.plane.accounts.admin.delete_user("anna")
    assert ended == 1
    ((name, said),) = crew.plane.trail.take()
    assert (name, said["actor"]) == ("account.deleted", "operator")
    with pytest.raises(UserNotFound):
        await crew.plane.accounts.admin.delete_user("nobody")


def interrupted(plane: Plane, groups: int) -> AccountDeletion:
    """A deletion whose process dies after so many groups."""
    left = groups

    async def depart(user_id: UserId, chat_id: ChatId) -> None:
        nonlocal left
        if not left:
            raise StoreUnavailable("the store broke off")
        left -= 1
        await plane.chats.depart(user_id, chat_id)

    whole = plane.accounts.deletion
    return AccountDeletion(
        whole._plane, depart=depart, erase=plane.erase, on_roster_changed=plane.rosters.append
    )


@pytest.mark.parametrize("groups", [0, 1, 2])
async def test_deletion_that_broke_off_goes_on_later(crew: Crew, groups: int) -> None:
    chats = [await crew.group("anna", "ben", "cleo") for _ in range(3)]
    deletion = interrupted(crew.plane, groups)
    assert await deletion.delete(crew.login.user, actor=crew.ids["anna"]) == 1
    with pytest.raises(StoreUnavailable):
        await deletion.resume()
    with pytest.raises(InvalidCredentials):
        await crew.plane.logged_in("anna")

    await crew.plane.accounts.admin.keep_house()
    assert [await crew.owner("ben", chat_id) for chat_id in chats] == ["ben"] * 3
    assert len(await crew.plane.storage.pending_deletions(count_max=9)) == 1
    crew.plane.clock.pass_ms(SETTLE_MS)
    assert await crew.plane.accounts.deletion.resume() == 1
    assert await crew.plane.storage.pending_deletions(count_max=9) == []


async def test_messages_go_too_if_that_is_asked_for_and_the_name_goes_last(crew: Crew) -> None:
    plane, anna = crew.plane, crew.ids["anna"]
    await plane.accounts.service.delete_account(anna, password=PASSWORD, erases=True)
    assert plane.erased == [anna], "at once, as far as it can"
    assert await plane.accounts.deletion.resume() == 0
    assert await plane.accounts.deletion.resume_erasures() == 0
    assert plane.erased == [anna, anna]
    assert await plane.storage.user_named("anna") is not None
    plane.clock.pass_ms(SETTLE_MS)
    assert await plane.accounts.deletion.resume() == 0, "its messages are not looked through yet"
    assert await plane.accounts.deletion.resume_erasures() == 1
    assert plane.erased == [anna] * 3
    assert await plane.storage.user_named("anna") is None
    assert await plane.storage.pending_deletions(count_max=9) == []
    assert await plane.accounts.deletion.resume_erasures() == 0


async def test_messages_stay_if_nothing_is_said_of_them(crew: Crew) -> None:
    await crew.delete()
    crew.plane.clock.pass_ms(SETTLE_MS)
    assert await crew.plane.accounts.deletion.resume_erasures() == 0
    assert await crew.plane.accounts.deletion.resume() == 1
    assert crew.plane.erased == []
    assert await crew.plane.storage.user_named("anna") is not None


@pytest.mark.parametrize("error", [StoreUnavailable("not now"), InvalidOperation("not yet")])
async def test_erasure_that_fails_is_tried_again_and_holds_up_nobody_else(
    crew: Crew, error: TidewireError
) -> None:
    """The store is gone, or of an earlier release that takes no deletions yet."""
    plane, anna = crew.plane, crew.ids["anna"]
    plane.erasing = error
    await plane.accounts.service.delete_account(anna, password=PASSWORD, erases=True)
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("anna")
    plane.clock.pass_ms(SETTLE_MS)
    assert await plane.accounts.deletion.resume_erasures() == 0
    assert await plane.storage.user_named("anna") is not None
    plane.erasing = None
    assert await plane.accounts.deletion.resume_erasures() == 1
    assert plane.erased == [anna]


async def test_deletion_looks_once_more_for_groups_that_somebody_was_adding_to(crew: Crew) -> None:
    """On a store of many processes an addition may have been decided before the mark."""
    await crew.delete()
    late = await crew.group("ben", "cleo")
    tables = crew.plane.engine._tables
    anna = crew.ids["anna"]
    user = tables.users[anna]
    tables.users[anna] = crew.login.user
    await crew.plane.chats.add_member(crew.ids["ben"], late, anna)
    tables.users[anna] = user
    crew.plane.clock.pass_ms(SETTLE_MS)
    assert await crew.plane.accounts.deletion.resume() == 1
    assert await crew.owner("ben", late) == "ben"


async def test_deletion_of_many_groups_holds_the_caller_up_for_a_while_only(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "AT_ONCE_S", 0.01)
    await crew.group("anna", "ben")

    async def depart(user_id: UserId, chat_id: ChatId) -> None:
        await asyncio.Event().wait()

    crew.plane.accounts.deletion._depart = depart
    await crew.delete()
    assert len(await crew.plane.storage.pending_deletions(count_max=9)) == 1


async def test_group_that_was_left_meanwhile_is_no_fault(crew: Crew) -> None:
    chat_id = await crew.group("ben", "anna", "cleo")

    async def depart(user_id: UserId, chat_id: ChatId) -> None:
        await crew.plane.chats.remove_member(crew.ids["ben"], chat_id, user_id)
        await crew.plane.chats.depart(user_id, chat_id)

    crew.plane.accounts.deletion._depart = depart
    await crew.delete()
    assert await crew.owner("cleo", chat_id) == "ben"
