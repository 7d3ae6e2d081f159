"""ChatStore: who may do what to whom, decided on the state that is changed (decision 0007)."""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.support.world import World
from tidewire.domain.chats import Role
from tidewire.domain.errors import (
    AlreadyAMember,
    ChatIsFull,
    Forbidden,
    InvalidOperation,
    NotAMember,
    Refused,
    UserNotFound,
)
from tidewire.domain.ids import ChatId, UserId

ACTORS: Final = ("owner", "admin", "member", "outsider")


class Team:
    """A group with somebody in every role, and people who are not in it."""

    def __init__(self, world: World, chat: ChatId, people: dict[str, UserId]) -> None:
        self.world = world
        self.chat = chat
        self.people = people

    @classmethod
    async def found(cls, world: World) -> "Team":
        names = ("owner", "admin", "admin2", "member", "member2", "outsider", "outsider2")
        people = {name: await world.person(name) for name in names}
        people["stranger"] = world.stranger()
        chat = await world.group(people["owner"], people["member"], people["member2"])
        for admin in ("admin", "admin2"):
            await world.add(people["owner"], chat, people[admin], Role.ADMIN)
        return cls(world, chat, people)

    async def state(self) -> object:
        """All that a change could change."""
        owner = self.people["owner"]
        return await self.world.chat(owner, self.chat), await self.world.members(owner, self.chat)


Act = Callable[[Team, str], Awaitable[object]]


def rename(name: str = "crew") -> Act:
    return lambda team, actor: team.world.rename(team.people[actor], team.chat, name)


def add(target: str, role: Role = Role.MEMBER, members_max: int = 50) -> Act:
    return lambda team, actor: team.world.add(
        team.people[actor], team.chat, team.people[target], role, members_max=members_max
    )


def remove(target: str) -> Act:
    return lambda team, actor: team.world.remove(team.people[actor], team.chat, team.people[target])


def change_role(target: str, role: Role) -> Act:
    return lambda team, actor: team.world.change_role(
        team.people[actor], team.chat, team.people[target], role
    )


def leave() -> Act:
    return lambda team, actor: team.world.leave(team.people[actor], team.chat)


def mute() -> Act:
    return lambda team, actor: team.world.storage.mute(team.people[actor], team.chat, 1)


YES: Final = None
# What becomes of an act by the owner, an admin, a member, an outsider.
RULES: Final[dict[str, tuple[Act, tuple[type[Refused] | None, ...]]]] = {
    "rename": (rename(), (YES, YES, Forbidden, NotAMember)),
    "add as member": (add("outsider2"), (YES, YES, Forbidden, NotAMember)),
    "add as admin": (add("outsider2", Role.ADMIN), (YES, Forbidden, Forbidden, NotAMember)),
    "add a member": (add("member2"), (AlreadyAMember, AlreadyAMember, Forbidden, NotAMember)),
    "add nobody": (add("stranger"), (UserNotFound, UserNotFound, Forbidden, NotAMember)),
    "add to a full chat": (
        add("outsider2", members_max=5),
        (ChatIsFull, ChatIsFull, Forbidden, NotAMember),
    ),
    "remove a member": (remove("member2"), (YES, YES, Forbidden, NotAMember)),
    "remove an admin": (remove("admin2"), (YES, Forbidden, Forbidden, NotAMember)),
    "remove an outsider": (
        remove("outsider2"),
        (UserNotFound, UserNotFound, Forbidden, NotAMember),
    ),
    "promote": (change_role("member2", Role.ADMIN), (YES, Forbidden, Forbidden, NotAMember)),
    "demote": (change_role("admin2", Role.MEMBER), (YES, Forbidden, Forbidden, NotAMember)),
    "promote an outsider": (
        change_role("outsider2", Role.ADMIN),
        (UserNotFound, Forbidden, Forbidden, NotAMember),
    ),
    "demote the owner": (
        change_role("owner", Role.MEMBER),
        (InvalidOperation, Forbidden, Forbidden, NotAMember),
    ),
    "leave": (leave(), (InvalidOperation, YES, YES, NotAMember)),
    "mute": (mute(), (YES, YES, YES, NotAMember)),
}


@pytest.mark.parametrize("rule", RULES)
async def test_group_permits_what_the_table_permits(world: World, rule: str) -> None:
    """The refused come first, so that each of them sees the group as it was made."""
    act, verdicts = RULES[rule]
    team = await Team.found(world)
    before = await team.state()
    world.new_commits()
    for actor, verdict in zip(ACTORS, verdicts, strict=True):
        if verdict is not None:
            with pytest.raises(verdict):
                await act(team, actor)
    assert await team.state() == before
    assert world.new_commits() == []
    permitted = [actor for actor, verdict in zip(ACTORS, verdicts, strict=True) if verdict is None]
    if permitted:
        await act(team, permitted[-1])
        assert await team.state() != before or rule == "mute"


@pytest.mark.parametrize("actor", ["owner", "admin"])
@pytest.mark.parametrize("rule", ["rename", "add as member", "remove a member"])
async def test_group_permits_owner_and_admin_alike(world: World, rule: str, actor: str) -> None:
    act, _ = RULES[rule]
    team = await Team.found(world)
    before = await team.state()
    await act(team, actor)
    assert await team.state() != before


@pytest.mark.parametrize(
    ("actor", "act"),
    [
        ("owner", remove("owner")),
        ("admin", remove("admin")),
        ("admin", remove("owner")),
        ("owner", add("outsider2", Role.OWNER)),
        ("owner", change_role("member2", Role.OWNER)),
        ("owner", rename(" padded ")),
        ("owner", rename("")),
    ],
)
async def test_group_refuses_what_nobody_may_do(world: World, actor: str, act: Act) -> None:
    team = await Team.found(world)
    before = await team.state()
    world.new_commits()
    with pytest.raises(InvalidOperation):
        await act(team, actor)
    assert await team.state() == before
    assert world.new_commits() == []


async def test_group_refuses_a_former_member_like_an_outsider(world: World) -> None:
    team = await Team.found(world)
    await leave()(team, "admin")
    await remove("member")(team, "owner")
    for act in (rename(), add("outsider2"), remove("member2"), leave(), mute()):
        for actor in ("admin", "member"):
            with pytest.raises(NotAMember):
                await act(team, actor)


async def test_group_refuses_the_demoted_at_once(world: World) -> None:
    team = await Team.found(world)
    await change_role("admin", Role.MEMBER)(team, "owner")
    for act in (rename(), add("outsider2"), remove("member2")):
        with pytest.raises(Forbidden):
            await act(team, "admin")


async def test_same_name_and_same_role_again_still_need_the_right(world: World) -> None:
    team = await Team.found(world)
    with pytest.raises(Forbidden):
        await rename("team")(team, "member")
    with pytest.raises(Forbidden):
        await change_role("member2", Role.MEMBER)(team, "admin")


async def test_direct_chat_never_changes(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.direct(anna, ben)
    before = await world.chat(anna, chat), await world.members(anna, chat)
    world.new_commits()
    for act in (
        lambda: world.rename(anna, chat, "us"),
        lambda: world.add(anna, chat, cleo),
        lambda: world.remove(anna, chat, ben),
        lambda: world.leave(anna, chat),
        lambda: world.change_role(anna, chat, ben, Role.ADMIN),
    ):
        with pytest.raises(InvalidOperation):
            await act()
    with pytest.raises(NotAMember):
        await world.remove(cleo, chat, ben)
    assert (await world.chat(anna, chat), await world.members(anna, chat)) == before
    assert world.new_commits() == []


async def test_changes_answer_a_chat_that_does_not_exist_like_one_of_others(world: World) -> None:
    anna, ben = await world.people(2)
    nowhere = world.no_chat()
    for act in (
        lambda: world.rename(anna, nowhere, "x"),
        lambda: world.add(anna, nowhere, ben),
        lambda: world.remove(anna, nowhere, ben),
        lambda: world.remove(anna, nowhere, anna),
        lambda: world.leave(anna, nowhere),
        lambda: world.change_role(anna, nowhere, ben, Role.ADMIN),
    ):
        with pytest.raises(NotAMember):
            await act()
