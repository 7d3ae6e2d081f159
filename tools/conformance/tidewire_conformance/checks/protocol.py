"""TW-02 to TW-13: what docs/protocol.md asks of a client beyond the contract's list.

The numbers are those of its section "What a client does".
"""

from tidewire.wire.features import Feature
from tidewire.wire.server_frames import ResyncFrame, ResyncPayload
from tidewire_conformance.checks.connecting import ROUNDING_S
from tidewire_conformance.connection import UNREADABLE, Heard
from tidewire_conformance.registry import must, should
from tidewire_conformance.stage import Stage


@should("TW-02", "a push may overtake the answer to an own message")
async def own_messages_are_no_gaps(stage: Stage) -> None:
    """An own message is stored, another user's after it, and the push of the later one comes right
    before the answer to the own one. The client shows both, in order, and does not sync: nothing
    was lost. One time of five is enough, because a machine may be slow for a moment."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)

    def overtaken(heard: Heard) -> None:
        message = server.store(heard)
        server.say(chat, f"after {message.content}")
        server.answer(heard, message)

    server.rules["send_message"] = overtaken
    syncs = 0
    for number in range(5):
        asked = len(server.of("sync_request", chat=chat))
        await stage.adapter.send(chat.chat_id, f"text {number}")
        await stage.until(lambda number=number: len(chat.messages) == 2 * number + 3, "not sent")  # type: ignore[misc]
        await stage.shows(chat)
        syncs += len(server.of("sync_request", chat=chat)) > asked
    stage.expect(syncs < 5, "it synced each time, and nothing was missing")


@must("TW-12", "pushes count while a sync runs")
async def pushes_during_a_sync_are_not_lost(stage: Stage) -> None:
    """A push is lost, and the client syncs. While the answer is on its way, more messages come:
    they are pushed and not in the answer, and nothing comes after them. All are shown. Then the
    same while a client that comes back syncs."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)

    def answer_late(heard: Heard) -> None:
        page = server.page_frame(heard)
        del server.rules["sync_request"]
        for number in range(3):
            server.say(chat, f"meanwhile {chat.head + number}")
        heard.connection.send_raw(page)
        heard.connection.answered(heard)

    server.rules["sync_request"] = answer_late
    server.say(chat, "lost", push=False)
    server.say(chat, "seen")
    await stage.until(lambda: "sync_request" not in server.rules, "it did not sync")
    await stage.shows(chat)
    server.rules["sync_request"] = answer_late
    server.say(chat, "missed", push=False)
    await stage.cut()
    await stage.until(lambda: "sync_request" not in server.rules, "it did not sync")
    await stage.shows(chat)


@must("TW-04", "ticks merge by maximum")
async def ticks_never_go_back(stage: Stage) -> None:
    """An own message becomes sent, delivered, read. Then older news comes late, and the digest of
    the next connection is old as well: it stays read."""
    server = stage.server
    (chat,) = await stage.begin()
    await stage.adapter.send(chat.chat_id, "seen?")
    await stage.ticked(chat, "seen?", "sent")
    server.push_status(chat, delivered=1, read=0)
    await stage.ticked(chat, "seen?", "delivered")
    server.push_status(chat, delivered=1, read=1)
    await stage.ticked(chat, "seen?", "read")
    server.push_status(chat, delivered=1, read=0)
    server.push_status(chat, delivered=0, read=0)
    await server.connection.barrier(stage.patience_s)
    await stage.quiet(0.05)
    tick = await stage.tick(chat, "seen?")
    stage.expect(tick == "read", f"a read message is shown as {tick} after older news")
    await stage.cut()
    await stage.ready()
    tick = await stage.tick(chat, "seen?")
    stage.expect(tick == "read", f"a read message is shown as {tick} after an old digest")


@must("TW-05", "obey `resync`")
async def resync_is_obeyed(stage: Stage) -> None:
    """A push is lost, and nothing after it tells of that but `resync`. The client asks for the
    digest, not before the delay has passed, and then for what is missing."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    server.say(chat, "lost", push=False)
    told_at = server.now()
    payload = ResyncPayload(reason="as the check wants it", delay_ms=200)
    server.connection.send(ResyncFrame, payload)
    waited = (await stage.hears("digest_request")).at - told_at
    stage.expect(waited >= 0.2 - ROUNDING_S, f"it was to wait 200 ms, and waited {waited:.3f} s")
    await stage.shows(chat)


@must("TW-06", "watch the epoch")
async def a_restore_is_noticed(stage: Stage) -> None:
    """The server comes back from a backup with half of its messages, another epoch and higher
    numbers, while a send is unanswered. The client shows what the server has, not what it had, and
    sends what the server has lost before it could store it."""
    server = stage.server
    (chat,) = await stage.begin(messages=4)
    server.rules["send_message"] = lambda heard: None
    await stage.adapter.send(chat.chat_id, "unanswered")
    await stage.until(lambda: bool(server.sends("unanswered")), "it was not sent")
    server.rules.clear()
    server.truth.restored(keep=2)
    server.say(chat, "after the restore", push=False)
    await stage.cut()
    await stage.shows(chat, ["first 1", "first 2", "after the restore", "unanswered"])


@must("TW-07", "reconnect after two silent intervals")
async def silence_is_noticed(stage: Stage) -> None:
    """The connection becomes half-open: the server hears nothing and says nothing, and
    neither side closes it. The client gives it up, connects anew and fetches what it missed."""
    server = stage.server
    server.heartbeat_ms = 1000
    (chat,) = await stage.begin(messages=1)
    connection = server.connection
    connection.is_deaf = True
    server.say(chat, "unheard", push=False)
    await stage.reconnected(connection.number)
    await stage.shows(chat)


@must("TW-09", "stay away when told so")
async def stays_away(stage: Stage) -> None:
    """The server ends the connection with `duplicate_connection`, in the next life with
    `session_revoked`, and in the third it announces the former and dies before it has closed. The
    client does not come back by itself."""
    server = stage.server
    server.heartbeat_ms = 1000
    await stage.begin()
    for reason, code in (
        ("duplicate_connection", 4500),
        ("session_revoked", 1008),
        ("duplicate_connection", None),
    ):
        attempts = len(server.attempts)
        connection = server.connection
        server.closing(reason)
        if code is None:
            connection.is_deaf = True
            # Two silent intervals, and then the backoff.
            await stage.quiet(2.5)
        else:
            connection.close(code)
        await stage.quiet(3 * stage.scale)
        more = len(server.attempts) - attempts
        stage.expect(not more, f"it came back {more} times after {reason}")
        if code is not None:
            await stage.relive(is_clean=True)
            await stage.ready()


@must("TW-13", "take damaged messages")
async def damaged_messages_are_taken(stage: Stage) -> None:
    """Messages come with `is_damaged` and without content, one pushed, two in a page, one of them
    without any id. The client goes on: it shows what is whole and acknowledges all of them."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    server.push(server.truth.append_damaged(chat))
    server.say(chat, "between")
    server.truth.append_damaged(chat)
    server.truth.append_damaged(chat, has_ids=False)
    server.say(chat, "after", push=False)
    await stage.cut()
    whole = [text for text in chat.texts if text]
    await stage.eventually(
        lambda: stage.texts(chat),
        lambda seen: [text for text in seen if text in whole] == whole,
        lambda seen: f"it shows {seen}, not {whole}",
    )
    await stage.acked(chat, chat.head)


@must("TW-14", "read what was offered")
async def what_was_offered_is_read(stage: Stage) -> None:
    """If the client offers arrays of frames: an answer, news of an unknown type and many messages
    come together, then one message alone; all of it counts. The client may send arrays from the
    introduction on, of 1 to 256 frames, and to no server that has not turned them on: the next one
    does not know them. A client that offers nothing is sent nothing but bare frames."""
    server = stage.server
    chats = await stage.begin(chats=3, messages=1)
    chat = chats[0]

    def answer_among_others(heard: Heard) -> None:
        server.answer(heard, server.store(heard))
        heard.connection.send_raw(b'{"type": "of_next_year", "payload": {}}')
        server.say_many(chat, 10)

    async def talk(text: str) -> None:
        server.rules["send_message"] = answer_among_others
        await stage.adapter.send(chat.chat_id, text)
        await stage.ticked(chat, text, "sent")
        del server.rules["send_message"]
        # Nothing comes after these that could show that one is missing.
        await stage.shows(chat)
        server.say(chat, f"after {text}")
        for one in chats:
            await stage.shows(one)
        connection = server.connection
        are_due = Feature.BATCH in connection.features
        stage.expect(bool(connection.arrays_sent) == are_due, "the kit did not do its part")

    await talk("as it was offered")
    server.features = ()
    for one in chats:
        server.say(one, "missed", push=False)
    await stage.cut()
    await stage.ready()
    await talk("as it was before there were features")
    await stage.acked(chat, chat.head)
    stage.expect(not server.of(UNREADABLE), "it sent an array where, or as, none may be sent")
