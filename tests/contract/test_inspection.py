"""A store that was used in every way shows itself whole to an inspector, whatever engine it is."""

import msgspec

from tests.support.inspectors import verify_engine, violated
from tests.support.world import World
from tidewire.domain.chats import Role
from tidewire.domain.messages import MENTION_ALL
from tidewire.ops.verify import Counts


async def live(world: World) -> None:
    """People come, write, read, are thrown out and come back."""
    ann, bob, cleo, dave = await world.people(4)
    direct = await world.direct(ann, bob)
    await world.send_many(direct, ann, 3)
    await world.read(bob, direct, 2)
    group = await world.group(ann, bob, cleo)
    head = await world.send_many(group, bob, 5)
    await world.ack(cleo, group, head)
    await world.add(ann, group, dave, Role.ADMIN)
    await world.send(group, dave, "thanks")
    await world.remove(ann, group, cleo)
    await world.leave(bob, group)
    await world.send(group, ann)
    await world.add(ann, group, cleo)
    key = world.key()
    await world.send(group, cleo, "once", key=key)
    await world.send(group, cleo, "once", key=key)
    await world.storage.block(ann, bob, now_ms=1)
    await world.storage.block(bob, ann, now_ms=1)
    await world.storage.block(ann, cleo, now_ms=1)
    await world.storage.unblock(bob, ann)
    for draft in (
        world.draft(group, ann, "look", reply_to=1, mentions=(cleo, MENTION_ALL)),
        world.draft(group, ann, "secret", mentions=(cleo,)),
        world.edit(group, ann, 9, "see"),
        world.edit(group, ann, 10, "still secret"),
        world.edit(group, ann, 9, "seen"),
        world.reaction(group, cleo, 9),
        world.reaction(group, dave, 9),
        world.reaction(group, cleo, 10),
        world.reaction(group, cleo, 9, is_on=False),
        world.deletion(group, dave, 10),
        world.reaction(group, cleo, 9, "🎉"),
    ):
        await world.store(draft)


async def test_store_in_use_violates_nothing(world: World) -> None:
    await live(world)
    report = verify_engine(world.engine)
    assert violated(report) == []
    counts = report.counts
    assert counts.changes == 11
    assert counts.kept
    assert msgspec.structs.replace(counts, changes=0, kept=0) == Counts(
        chats=2, members=5, messages=22, keys=22, message_ids=22, positions=6
    )
    assert report.epoch == world.storage.epoch


async def test_empty_store_violates_nothing(world: World) -> None:
    report = verify_engine(world.engine)
    assert violated(report) == []
    assert msgspec.structs.replace(report.counts, kept=0) == Counts()


async def test_missing_counter_is_seen(world: World) -> None:
    await live(world)
    ann, bob = await world.people(2)
    chat_id = await world.direct(ann, bob)
    await world.engine.drop_counter(chat_id)
    report = verify_engine(world.engine)
    assert violated(report) == ["counter_must_exist"]


async def test_counter_behind_its_messages_is_seen(world: World) -> None:
    ann, bob = await world.people(2)
    chat_id = await world.direct(ann, bob)
    await world.send_many(chat_id, ann, 3)
    await world.ack(bob, chat_id, 3)
    await world.engine.set_counter(chat_id, 2)
    assert violated(verify_engine(world.engine)) == [
        "sequence_monotonicity",
        "counter_lower_bound",
        "watermark_bounded_by_counter",
    ]
