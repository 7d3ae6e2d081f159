"""RS-01 to RS-05: how a client gets back what it missed."""

from tidewire_conformance.connection import Heard
from tidewire_conformance.registry import must, should
from tidewire_conformance.stage import Stage


@must("RS-01", "sync all active chats after reconnect")
async def all_chats_are_synced(stage: Stage) -> None:
    """Three chats get messages while the connection is cut, and it is cut again at every point of
    the recovery: before the introduction, in the middle of the digest, when a sync arrives, in the
    middle of its page. In the end every chat is asked for and complete."""
    server = stage.server
    chats = await stage.begin(chats=3, messages=1)
    faults = ["digest", "request", "page"]

    def rule(heard: Heard) -> bool:
        fault = faults[0] if faults else None
        if fault in ("request", "page"):
            faults.pop(0)
        if fault == "request":
            heard.connection.cut()
        elif fault == "page":
            heard.connection.send_part_of(server.page_frame(heard))
        return fault in ("request", "page")

    server.rules["sync_request"] = rule
    for chat in chats:
        server.say_many(chat, 3, push=False)
    server.hold("connection_established", "chat_digest")
    server.connection.cut()
    await stage.until(lambda: len(server.connections) == 2, "it did not come back")
    server.connection.cut()
    await stage.until(lambda: len(server.connections) == 3, "it did not come back a second time")
    server.release("connection_established")
    faults.pop(0)
    server.connection.send_part_of(b'{"type": "chat_digest", "timestamp": "", "payload": {}}')
    await stage.until(lambda: len(server.connections) == 4, "it did not come back a third time")
    server.release("chat_digest")
    for chat in chats:
        await stage.shows(chat)
        asked = server.of("sync_request", chat=chat)
        stage.expect(bool(asked), "a chat was not asked for")


@must("RS-02", "cursor = local persisted `last_acked_sequence`")
async def cursors_are_local(stage: Stage) -> None:
    """The client holds 5 messages and ends. Another device of the user acknowledges 10 of 12, and
    the digest says so. The next life asks from 5: not from where the user is, nor from the
    start."""
    server = stage.server
    (chat,) = await stage.begin(messages=5)
    if not await stage.acked(chat, 5):
        await stage.adapter.kill()
    server.say_many(chat, 7, push=False)
    chat.delivered = 10
    before = server.connection.number
    await stage.adapter.restart()
    await stage.reconnected(before)
    asked = await stage.hears("sync_request", chat, connection=server.connection)
    cursor = asked.payload["last_acked_sequence"]
    stage.expect(cursor == 5, f"it asked from {cursor}, and holds 5")
    await stage.shows(chat)


@must("RS-03", "reconnect + sync after slow-consumer")
async def slow_consumers_come_back(stage: Stage) -> None:
    """The server says SLOW_CONSUMER, announces the end and closes with 1008; what it did not push
    is there after the client has come back by itself."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    connection = server.connection
    server.error(None, "SLOW_CONSUMER", buffer_bytes=1_048_576, limit_bytes=1_048_576)
    server.closing("slow_consumer")
    connection.close(1008)
    server.say_many(chat, 3, push=False)
    await stage.reconnected(connection.number)
    await stage.shows(chat)


@must("RS-04", "never retry FORBIDDEN / NOT_A_MEMBER")
async def refusals_are_final(stage: Stage) -> None:
    """A send is refused with NOT_A_MEMBER, one with FORBIDDEN, and a sync with NOT_A_MEMBER. None
    is tried again: not by time, not after a reconnect, not in the next life. The texts are shown as
    failed."""
    server = stage.server
    gone, left, blocked = await stage.begin(chats=3, messages=1)
    codes = {left.chat_id: "NOT_A_MEMBER", blocked.chat_id: "FORBIDDEN"}

    def refuse_send(heard: Heard) -> None:
        server.error(heard, codes[heard.payload["chat_id"]])
        left.is_member = False

    def refuse_sync(heard: Heard) -> None:
        gone.is_member = False
        server.error(heard, "NOT_A_MEMBER")

    server.rules.update(send_message=refuse_send, sync_request=refuse_sync)
    await stage.adapter.send(left.chat_id, "to a chat that was left")
    await stage.adapter.send(blocked.chat_id, "to one who blocks")
    await stage.ticked(left, "to a chat that was left", "failed")
    await stage.ticked(blocked, "to one who blocks", "failed")
    server.say(gone, "missed", push=False)
    await stage.cut()
    await stage.hears("sync_request", gone)
    await stage.ready()
    # Four times the longest wait after which it might ask again: its machine may be busy.
    await stage.quiet(5 * stage.scale)
    await stage.ready()
    await stage.cut()
    await stage.ready()
    await stage.relive()
    await stage.ready()
    await stage.quiet(0.1)
    sends, syncs = len(server.of("send_message")), len(server.of("sync_request", chat=gone))
    stage.expect(sends == 2, f"two texts that were refused for good were sent {sends} times")
    stage.expect(syncs == 1, f"a sync that was refused for good was asked {syncs} times")
    await stage.ticked(left, "to a chat that was left", "failed")


@should("RS-05", "parallel sync")
async def chats_are_synced_together(stage: Stage) -> None:
    """Four chats are behind after a reconnect, and no sync is answered yet; at least two are asked
    for at the same time."""
    server = stage.server
    chats = await stage.begin(chats=4, messages=1)
    server.hold("sync_response")
    for chat in chats:
        server.say(chat, "missed", push=False)
    await stage.cut()
    await stage.until(
        lambda: len(server.of("sync_request", connection=server.connection)) >= 2,
        "it asks for one chat at a time",
    )
