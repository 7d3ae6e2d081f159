"""The list of a user's chats: its order, what it shows, and that paging misses nothing (A-03)."""

from tests.support.world import PLENTY, World
from tidewire.domain.chat_list import ChatListCursor, ChatListItem, LastMessage
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_MAX


async def listed(world: World, reader: UserId, *, since_ms: int = 0) -> list[ChatListItem]:
    page = await world.storage.chat_list(
        reader, cursor=None, count_max=PLENTY, active_since_ms=since_ms
    )
    assert page.next is None
    return list(page.items)


async def listed_ids(world: World, reader: UserId, *, since_ms: int = 0) -> list[ChatId]:
    return [item.chat.chat_id for item in await listed(world, reader, since_ms=since_ms)]


async def test_chat_list_has_the_newest_activity_first(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    first = await world.group(anna, ben)
    second = await world.direct(anna, cleo)
    third = await world.group(ben, anna)
    await world.group(ben, cleo)
    assert await listed_ids(world, anna) == [third, second, first]
    await world.send(first, ben)
    assert await listed_ids(world, anna) == [first, third, second]
    await world.send(second, anna)
    assert await listed_ids(world, anna) == [second, first, third]


async def test_chat_list_puts_a_group_on_top_for_one_who_just_joined(world: World) -> None:
    anna, ben = await world.people(2)
    group = await world.group(anna)
    await world.send(group, anna)
    other = await world.direct(ben, anna)
    member = await world.add(anna, group, ben)
    items = await listed(world, ben)
    assert [item.chat.chat_id for item in items] == [group, other]
    assert items[0].activity_at_ms == member.joined_at_ms
    assert await listed_ids(world, anna) == [other, group]


async def test_chat_list_shows_each_chat_as_it_is(world: World) -> None:
    anna, ben = await world.people(2)
    direct = await world.direct(anna, ben)
    group = await world.group(ben, anna)
    await world.send_many(direct, ben, 3)
    long_text = "ä" * 99 + "öü"
    sent = await world.send(direct, ben, long_text)
    await world.ack(anna, direct, 3)
    await world.read(anna, direct, 2)
    [direct_item, group_item] = await listed(world, anna)
    access = await world.storage.access_chat(anna, direct)
    assert (direct_item.chat, direct_item.me) == (access.chat, access.me)
    assert direct_item.activity_at_ms == sent.created_at_ms
    assert direct_item.last_message == LastMessage(
        sent.message_id, sent.sequence, ben, "ä" * 99 + "ö", sent.created_at_ms
    )
    assert direct_item.other is not None
    assert direct_item.other.user_id == ben
    assert direct_item.positions == Positions(3, 2)
    assert (direct_item.unread, direct_item.undelivered) == (2, 1)
    assert (group_item.last_message, group_item.other) == (None, None)
    assert (group_item.unread, group_item.undelivered) == (0, 0)
    assert group_item.chat.chat_id == group


async def test_chat_list_counts_messages_of_others_up_to_the_bound(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    await world.send_many(chat, ben, UNREAD_MAX + 7)
    [item] = await listed(world, anna)
    assert (item.unread, item.undelivered) == (UNREAD_MAX, UNREAD_MAX)
    [item] = await listed(world, ben)
    assert item.unread == (await world.entry(ben, chat)).unread


async def test_chat_list_has_current_memberships_only(world: World) -> None:
    anna, ben = await world.people(2)
    group = await world.group(anna, ben)
    await world.leave(ben, group)
    assert await listed_ids(world, ben) == []
    assert await listed_ids(world, world.stranger()) == []


async def test_chat_list_leaves_out_what_is_older_than_asked(world: World) -> None:
    anna, ben = await world.people(2)
    old, new = await world.group(anna, ben), await world.group(anna, ben)
    since_ms = world.now()
    assert await listed_ids(world, anna, since_ms=since_ms) == []
    await world.send(new, ben)
    assert await listed_ids(world, anna, since_ms=since_ms) == [new]
    assert await listed_ids(world, anna) == [new, old]


async def test_chat_list_pages_show_every_chat_once(world: World) -> None:
    anna, ben = await world.people(2)
    chats = [await world.group(anna, ben) for _ in range(7)]
    for chat in (chats[2], chats[5]):
        await world.send(chat, ben)
    expected = await listed_ids(world, anna)
    for size in (1, 2, 3, 7, 8):
        assert await paged(world, anna, size) == expected


async def test_chat_list_pages_miss_nothing_that_moves_meanwhile(world: World) -> None:
    """After each page, chats that were and that were not shown yet get messages."""
    anna, ben = await world.people(2)
    chats = [await world.group(anna, ben) for _ in range(8)]
    for chat in chats[::2]:
        await world.send(chat, ben)
    before = await listed_ids(world, anna)
    shown: list[ChatId] = []
    cursor: ChatListCursor | None = None
    while True:
        page = await world.storage.chat_list(anna, cursor=cursor, count_max=2)
        shown += [item.chat.chat_id for item in page.items]
        if page.next is None:
            break
        cursor = page.next
        for chat in (before[0], before[-1], before[len(shown)]):
            await world.send(chat, ben)
        await world.group(anna, ben, name="made meanwhile")
    assert shown == before


async def test_chat_list_page_shows_what_is_new_in_an_old_place(world: World) -> None:
    anna, ben = await world.people(2)
    chats = [await world.group(anna, ben) for _ in range(3)]
    first = await world.storage.chat_list(anna, cursor=None, count_max=1)
    sent = await world.send(chats[0], ben, "new")
    rest = await world.storage.chat_list(anna, cursor=first.next, count_max=5)
    assert [item.chat.chat_id for item in rest.items] == [chats[1], chats[0]]
    last = rest.items[-1].last_message
    assert last is not None
    assert (last.preview, last.sequence) == ("new", sent.sequence)
    assert rest.items[-1].activity_at_ms < sent.created_at_ms


async def paged(world: World, reader: UserId, size: int) -> list[ChatId]:
    shown: list[ChatId] = []
    cursor: ChatListCursor | None = None
    while True:
        page = await world.storage.chat_list(reader, cursor=cursor, count_max=size)
        assert len(page.items) == size or page.next is None
        shown += [item.chat.chat_id for item in page.items]
        if page.next is None:
            return shown
        cursor = page.next
