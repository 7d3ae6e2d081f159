"""What the memory engine does with a message that is damaged, of which it has none by itself."""

from pathlib import Path

from msgspec.structs import replace

from tests.support.engines import MemoryHarness
from tests.support.world import World
from tidewire.domain.errors import Forbidden, TargetNotFound


async def test_damaged_message_can_be_deleted_and_nothing_else(tmp_path: Path) -> None:
    engine = MemoryHarness(tmp_path)
    await engine.open()
    world = World(engine)
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna, "secret")
    record = engine._tables.chats[chat]
    record.messages[0] = replace(record.messages[0], content="", is_damaged=True)
    assert isinstance(await world.refusal(world.edit(chat, anna, 1)), TargetNotFound)
    assert isinstance(await world.refusal(world.reaction(chat, ben, 1)), TargetNotFound)
    assert isinstance(await world.refusal(world.deletion(chat, ben, 1)), Forbidden)
    answer = await world.store(world.deletion(chat, anna, 1))
    [found, _] = await world.messages(ben, chat)
    assert (found.is_damaged, found.deleted_by, found.sequence) == (False, answer.sequence, 1)
    await engine.close()
