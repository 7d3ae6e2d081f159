"""The chat service: ids, bounds and times come from here; the rules themselves are the store's."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.support.engines import MemoryHarness
from tests.support.memory import MemoryStorage
from tests.support.world import World
from tidewire.chats.options import ChatOptions
from tidewire.chats.service import ChatService
from tidewire.domain.audit import AuditAction
from tidewire.domain.chats import Member, Role
from tidewire.domain.errors import (
    ChatIsFull,
    Forbidden,
    InvalidOperation,
    NotAMember,
    RateLimited,
)
from tidewire.domain.ids import CHAT_PREFIX, ChatId, SessionId, UlidSource, UserId, has_form
from tidewire.domain.limits import MUTE_HOURS_MAX

NOW_MS = 1_900_000_000_000
HOUR_MS = 3_600_000


class StandingClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    engine = MemoryHarness(tmp_path)
    await engine.open()
    yield World(engine)
    await engine.close()


@pytest.fixture
def service(world: World) -> ChatService:
    return ChatService(
        store=world.storage,
        clock=StandingClock(),
        ids=UlidSource(Random(2).getrandbits),
        options=ChatOptions(group_members_max=3),
    )


async def test_service_finds_the_chat_of_a_pair_from_either_side(
    world: World, service: ChatService
) -> None:
    ann, ben = await world.people(2)
    made = await service.create_direct(ann, ben)
    found = await service.create_direct(ben, ann)
    assert (made.created, found.created) == (True, False)
    assert made.chat == found.chat
    assert has_form(made.chat.chat_id, CHAT_PREFIX)
    assert made.chat.created_at_ms == NOW_MS


async def test_service_makes_a_group_and_finds_it_when_the_id_is_given_again(
    world: World, service: ChatService
) -> None:
    ann, ben = await world.people(2)
    made = await service.create_group(ann, "team", [ben])
    again = await service.create_group(ann, "team", [ben], chat_id=made.chat.chat_id)
    assert (made.created, again.created) == (True, False)
    other = await service.create_group(ann, "team", [ben])
    assert other.chat.chat_id != made.chat.chat_id


async def test_service_bounds_groups_by_its_option(world: World, service: ChatService) -> None:
    ann, *others = await world.people(4)
    with pytest.raises(ChatIsFull):
        await service.create_group(ann, "team", others)
    chat_id = (await service.create_group(ann, "team", others[:2])).chat.chat_id
    with pytest.raises(ChatIsFull):
        await service.add_member(ann, chat_id, others[2])


async def test_service_changes_members_roles_and_name(world: World, service: ChatService) -> None:
    ann, ben, cem = await world.people(3)
    chat_id = (await service.create_group(ann, "team", [ben])).chat.chat_id
    assert (await service.add_member(ann, chat_id, cem)).role is Role.MEMBER
    assert (await service.change_role(ann, chat_id, cem, Role.ADMIN)).role is Role.ADMIN
    assert (await service.rename(cem, chat_id, "crew")).chat.name == "crew"
    await service.remove_member(cem, chat_id, ben)
    await service.leave(cem, chat_id)
    assert [
        member.user_id
        for member in await world.storage.members(ann, chat_id, after=None, count_max=9)
    ] == [ann]
    assert (await world.storage.access_chat(ann, chat_id)).chat.member_count == 1
    with pytest.raises(NotAMember):
        await world.storage.access_chat(ben, chat_id)


@pytest.mark.parametrize("name", ["", " edge", "tab\tin it", "x" * 129])
async def test_service_refuses_names_that_are_none(
    world: World, service: ChatService, name: str
) -> None:
    ann, ben = await world.people(2)
    with pytest.raises(InvalidOperation):
        await service.create_group(ann, name, [ben])
    chat_id = (await service.create_group(ann, "team", [ben])).chat.chat_id
    with pytest.raises(InvalidOperation):
        await service.rename(ann, chat_id, name)


async def test_service_mutes_for_hours_for_good_and_not_at_all(
    world: World, service: ChatService
) -> None:
    ann, ben = await world.people(2)
    chat_id = (await service.create_direct(ann, ben)).chat.chat_id
    assert (await service.mute(ann, chat_id, 2)).muted_until_ms == NOW_MS + 2 * HOUR_MS
    for_good = (await service.mute(ann, chat_id, None)).muted_until_ms
    assert for_good is not None
    assert for_good > NOW_MS + MUTE_HOURS_MAX * HOUR_MS
    assert (await world.storage.mute(ann, chat_id, None)).muted_until_ms is None
    for hours in (0, -1, MUTE_HOURS_MAX + 1):
        with pytest.raises(InvalidOperation):
            await service.mute(ann, chat_id, hours)


async def test_owner_departs_and_the_group_passes_on(world: World, service: ChatService) -> None:
    ann, ben, cem = await world.people(3)
    group = await world.group(ann, ben, cem)
    await world.change_role(ann, group, cem, Role.ADMIN)
    await service.depart(ann, group)
    members = await world.members(ben, group)
    assert {one.user_id: one.role for one in members.values()} == {
        cem: Role.OWNER,
        ben: Role.MEMBER,
    }
    await service.depart(cem, group)
    assert (await world.members(ben, group))[ben].role is Role.OWNER
    await service.depart(ben, group)
    with pytest.raises(NotAMember):
        await service.depart(ben, group)


async def test_member_who_departs_just_leaves(world: World, service: ChatService) -> None:
    ann, ben = await world.people(2)
    group = await world.group(ann, ben)
    await service.depart(ben, group)
    assert list(await world.members(ann, group)) == [ann]


class HeirLeaves(MemoryStorage):
    """The first heir leaves just before the group is handed over."""

    has_left = False

    async def hand_over(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> Member:
        if not self.has_left:
            self.has_left = True
            await self.leave(user_id, chat_id, now_ms=now_ms)
        return await super().hand_over(actor, chat_id, user_id, now_ms=now_ms)


async def test_another_heir_is_found_when_the_first_has_left(tmp_path: Path) -> None:
    engine = MemoryHarness(tmp_path)
    await engine.open()
    world = World(engine)
    ann, ben, cem = await world.people(3)
    group = await world.group(ann, ben, cem)
    store = HeirLeaves(tables=engine._tables)
    service = ChatService(
        store=store,
        clock=StandingClock(),
        ids=UlidSource(Random(2).getrandbits),
        options=ChatOptions(),
    )
    await service.depart(ann, group)
    [(_, heir)] = (await world.members(cem, group)).items()
    assert (heir.user_id, heir.role) == (cem, Role.OWNER)
    await engine.close()


class Trail:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[tuple[str, str | None, str | None]] = []

    def record(
        self,
        action: AuditAction,
        *,
        actor: str | None,
        target: str | None = None,
        chat_id: ChatId | None = None,
        sequence: int | None = None,
        session_id: SessionId | None = None,
        command: str | None = None,
        reason: str | None = None,
        count: int | None = None,
    ) -> None:
        assert chat_id is not None
        self.records.append((action.value, actor, target))


async def test_changes_of_groups_are_noted_once_they_are_done(world: World) -> None:
    ann, ben, cem = await world.people(3)
    trail = Trail()
    service = ChatService(
        store=world.storage,
        clock=StandingClock(),
        ids=UlidSource(Random(2).getrandbits),
        options=ChatOptions(),
        trail=trail,
    )
    group = (await service.create_group(ann, "team", [ben])).chat.chat_id
    await service.create_group(ann, "team", [ben], chat_id=group)
    await service.add_member(ann, group, cem)
    await service.change_role(ann, group, cem, Role.ADMIN)
    await service.rename(cem, group, "crew")
    with pytest.raises(InvalidOperation):
        await service.leave(ann, group)
    await service.remove_member(ann, group, ben)
    await service.hand_over(ann, group, cem)
    await service.leave(ann, group)
    await service.close_group(cem, group)
    assert trail.records == [
        ("group.created", ann, None),
        ("member.added", ann, cem),
        ("role.changed", ann, cem),
        ("group.renamed", cem, None),
        ("member.removed", ann, ben),
        ("group.handed_over", ann, cem),
        ("member.left", ann, ann),
        ("group.closed", cem, None),
    ]


def service_with(world: World, **options: int) -> ChatService:
    return ChatService(
        store=world.storage,
        clock=StandingClock(),
        ids=UlidSource(Random(2).getrandbits),
        options=ChatOptions(**options),  # type: ignore[arg-type]
    )


async def test_strangers_are_bounded_however_they_are_drawn_in(world: World) -> None:
    ann, *others = await world.people(8)
    service = service_with(world, strangers_per_hour=3)
    group = (await service.create_group(ann, "team", others[:1])).chat.chat_id
    await service.add_member(ann, group, others[1])
    await service.create_direct(ann, others[2])
    for drawn_in in (
        lambda: service.create_group(ann, "team", others[3:4]),
        lambda: service.add_member(ann, group, others[3]),
        lambda: service.create_direct(ann, others[3]),
    ):
        with pytest.raises(RateLimited, match="at most 3 people") as limited:
            await drawn_in()
        assert limited.value.retry_after_ms == HOUR_MS // 3
    # People one shares a chat with cost nothing, and neither does finding a chat.
    await service.create_direct(ann, others[2])
    await service.create_direct(ann, others[1])
    await service.add_member(ann, group, others[2])
    assert "strangers" in service.share_limits()
    # An operator is not counted.
    await service.create_direct(ann, others[4], is_counted=False)


async def test_strangers_that_do_not_fit_are_not_counted(world: World) -> None:
    ann, *others = await world.people(5)
    service = service_with(world, strangers_per_hour=2)
    # More than an hour's allowance at once is never allowed.
    with pytest.raises(RateLimited, match="at most 2 people") as limited:
        await service.create_group(ann, "team", others[:3])
    assert limited.value.retry_after_ms == HOUR_MS
    await service.create_group(ann, "team", others[:1])
    with pytest.raises(RateLimited):
        await service.create_group(ann, "team", others[1:3])
    await service.create_group(ann, "team", others[1:2])


async def test_leaver_for_good_is_asked_before_being_added_again(world: World) -> None:
    ann, ben = await world.people(2)
    service = service_with(world)
    group = (await service.create_group(ann, "team", [ben])).chat.chat_id
    await service.leave(ben, group, for_good=True)
    assert await world.storage.refused_groups(ben, after=None, count_max=9) == [group]
    with pytest.raises(Forbidden):
        await service.add_member(ann, group, ben)
    await world.storage.readmit(ben, group)
    await service.add_member(ann, group, ben)
