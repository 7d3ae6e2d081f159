"""Two people, one chat, one message: the durable core without a server.

Run it:  .venv/bin/python docs/examples/first_message.py demo
The argument is a data directory; it is made if it is not there. Run it again and the chat goes on.
"""
# ruff: noqa: T201, TID251 - an example prints, and makes a client's ids itself

import asyncio
import secrets
import sys
import uuid
from pathlib import Path

from tidewire.chats.options import ChatOptions
from tidewire.chats.service import ChatService
from tidewire.domain.delivery import Advance, tick
from tidewire.domain.ids import ChatId, ClientMessageId, UlidSource, UserId
from tidewire.domain.messages import MessageBody
from tidewire.domain.users import User
from tidewire.engines.sqlite import SqliteStorage
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor


async def main(data_dir: Path) -> None:
    clock, ids, tasks = SystemClock(), UlidSource(secrets.randbits), TaskSupervisor()
    store = await SqliteStorage.open(data_dir)
    chats = ChatService(store=store, clock=clock, ids=ids, options=ChatOptions())
    ingest = IngestService(store=store, clock=clock, ids=ids, tasks=tasks, options=IngestOptions())

    alice, bob = [await person(store, ids, clock, name) for name in ("alice", "bob")]
    chat = (await chats.create_direct(alice, bob)).chat.chat_id

    # Alice sends. The answer gets lost, so her app sends the same again.
    key = ClientMessageId(str(uuid.uuid4()))
    hello = MessageBody(content="Hello Bob")
    sends = [
        await ingest.send(hello, chat_id=chat, sender_id=alice, client_message_id=key)
        for _ in range(2)
    ]
    for answer in sends:
        print(f"stored as number {answer.sequence}, seen before: {answer.deduplicated}")
    sent = sends[0]
    await show_tick(store, chat, alice, sent.sequence)

    # Bob's app asks for everything above what it has, and says how far it got.
    page = await store.messages_after(bob, chat, sent.prev_sequence, count_max=100, bytes_max=9999)
    print("bob receives:", *[message.content for message in page.messages])
    for advance in (
        Advance(user_id=bob, chat_id=chat, delivered=page.synced_through),
        Advance(user_id=bob, chat_id=chat, read=page.synced_through),
    ):
        await store.advance([advance], now_ms=clock.wall_ms())
        await show_tick(store, chat, alice, sent.sequence)

    await ingest.drain()
    await tasks.close()
    await store.close()


async def person(store: SqliteStorage, ids: UlidSource, clock: SystemClock, name: str) -> UserId:
    known = await store.user_named(name)
    if known is not None:
        return known.user_id
    now_ms = clock.wall_ms()
    user = User(
        user_id=ids.user_id(now_ms),
        username=name,
        display_name=name.capitalize(),
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )
    return (await store.add_user(user)).user_id


async def show_tick(store: SqliteStorage, chat: ChatId, author: UserId, sequence: int) -> None:
    (floors,) = await store.floors([chat])
    assert floors is not None
    mark = tick(
        sequence,
        others_delivered=floors.delivered.boundary(author, floors.head),
        others_read=floors.read.boundary(author, floors.head),
    )
    print(f"alice sees: {mark}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
