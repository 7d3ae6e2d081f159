"""AK-01 to AK-06, TW-03 and TW-18: when a client acknowledges what it has stored."""

from tidewire.domain.chats import ChatType
from tidewire_conformance.checks.connecting import ROUNDING_S, SLACK_S, unavailable
from tidewire_conformance.registry import must, should
from tidewire_conformance.stage import Stage

SOON_S = 0.5
"""How much a wait that is short itself may be exceeded on the way."""


@must("AK-01", "cumulative acks")
async def acks_are_cumulative(stage: Stage) -> None:
    """Of five messages the third is lost, and the answer to a sync is held back: nothing above 2
    may be acknowledged, whatever came after. When the third has come, 5 is acknowledged.
    Acknowledgements of a connection never go back."""
    server = stage.server
    (chat,) = await stage.begin()
    server.hold("sync_response")
    for number in range(1, 6):
        server.say(chat, f"text {number}", push=number != 3)
    await stage.quiet(6 * stage.scale + 0.5)
    high = [position for position in server.acked(chat) if position > 2]
    stage.expect(not high, f"it acknowledged {high}, and the third message was missing")
    server.release("sync_response")
    server.push(chat.messages[2])
    await stage.shows_all_of(chat)
    await stage.acked(chat, 5)
    for connection in server.connections:
        positions = server.acked(chat, connection)
        stage.expect(positions == sorted(positions), f"acknowledgements went back: {positions}")


@must("AK-02", "batch, not one per message")
async def acks_are_batched(stage: Stage) -> None:
    """A hundred messages come at once; at most eleven acknowledgements may come: one for each ten,
    and one for the first. In a direct chat, and in a group."""
    server = stage.server
    group = server.truth.new_chat(ChatType.GROUP)
    (direct,) = await stage.begin()
    for chat in (direct, group):
        server.say_many(chat, 100)
    await stage.shows(direct)
    await stage.shows(group)
    if await stage.acked(direct, 100):
        await stage.until(lambda: 100 in server.acked(group), "100 was not acknowledged")
    else:
        await stage.acked(group, 100)
    for chat in (direct, group):
        acks = len(server.acked(chat))
        stage.expect(acks <= 11, f"it sent {acks} acknowledgements for 100 messages at once")


@must("AK-03", "ack only after durable local store")
async def acks_mean_stored(stage: Stage) -> None:
    """Twelve messages come at once. In the instant in which an acknowledgement arrives the client
    is killed. The next life finds no server: everything that was acknowledged is shown all the
    same."""
    server = stage.server
    (chat,) = await stage.begin()
    server.say_many(chat, 12)
    if await server.until(lambda: bool(server.acked(chat)), 6 * stage.scale + 1):
        await stage.adapter.kill()
    else:
        await stage.adapter.stop()
        await stage.until(lambda: bool(server.acked(chat)), "nothing was ever acknowledged")
    through = max(server.acked(chat))
    server.refuse = unavailable
    await stage.adapter.restart()
    shown = [message.sequence for message in await stage.adapter.messages(chat.chat_id)]
    missing = [number for number in range(1, through + 1) if number not in shown]
    stage.expect(not missing, f"{through} was acknowledged, and {missing} are not in its store")


@must("AK-04", "flush acks before clean close")
async def acks_are_flushed(stage: Stage) -> None:
    """A group's first message is acknowledged. Then two more are shown, and the user ends the
    client at once; the third is acknowledged before the connection ends."""
    server = stage.server
    (chat,) = await stage.begin(messages=1, chat_type=ChatType.GROUP)
    await server.until(lambda: 1 in server.acked(chat), 6 * stage.scale + 1)
    server.say(chat, "second")
    server.say(chat, "third")
    await stage.shows(chat)
    await stage.adapter.stop()
    await stage.until(
        lambda: 3 in server.acked(chat) or server.connection.is_over,
        "it did not end its connection",
    )
    stage.expect(3 in server.acked(chat), "it left without acknowledging what it had stored")


@must("AK-05", "keep `last_acked_sequence` per chat")
async def positions_are_per_chat(stage: Stage) -> None:
    """One chat has twelve messages, another three. Each is acknowledged up to its own end and not
    above it, also when everything is told again on a new connection."""
    server = stage.server
    long, short = await stage.begin(chats=2)
    server.say_many(long, 12)
    server.say_many(short, 3)
    await stage.shows(long)
    await stage.shows(short)
    if await stage.acked(long, 12):
        await stage.until(lambda: 3 in server.acked(short), "3 was not acknowledged")
    elif not await stage.acked(short, 3):
        await stage.cut()
        await stage.ready()
        await stage.quiet(stage.scale)
    for chat, head in ((long, 12), (short, 3)):
        wrong = [position for position in server.acked(chat) if position > head]
        stage.expect(not wrong, f"it acknowledged {wrong} in a chat that ends at {head}")


@should("AK-06", "ack every 5 s or 10 messages")
async def acks_come_in_time(stage: Stage) -> None:
    """Ten messages at once are acknowledged; one more by itself is acknowledged after 5 s."""
    server = stage.server
    (chat,) = await stage.begin()
    server.say_many(chat, 10)
    in_time_s = 5 * stage.scale + SLACK_S
    await stage.in_time(
        lambda: 10 in server.acked(chat), in_time_s, "ten were not acknowledged in time"
    )
    server.say(chat, "text 11")
    await stage.in_time(
        lambda: 11 in server.acked(chat), in_time_s, "one was not acknowledged in time"
    )


@should("TW-03", "the second tick comes at once")
async def acks_come_soon(stage: Stage) -> None:
    """Messages of a direct chat come one by one: each is acknowledged within 250 ms. The first one
    of a group is acknowledged at once, and those that follow it are gathered: one acknowledgement
    for ten of them or for 5 s."""
    server = stage.server
    group = server.truth.new_chat(ChatType.GROUP)
    (direct,) = await stage.begin()
    soon_s = 0.25 * stage.scale + SOON_S
    for number in range(1, 6):
        server.say(direct, f"text {number}")
        await stage.in_time(
            lambda number=number: number in server.acked(direct),  # type: ignore[misc]
            soon_s,
            "a message of a direct chat was not acknowledged in time",
        )
    server.say(group, "first")
    await stage.in_time(
        lambda: 1 in server.acked(group), soon_s, "the first of a group was not acknowledged"
    )
    began = server.now()
    for number in range(20):
        server.say(group, f"text {number}")
        await stage.quiet(0.02)
    await stage.shows(group)
    acks = len(server.acked(group)) - 1
    acks_max = 3 + (server.now() - began) / (5 * stage.scale)
    stage.expect(acks <= acks_max, f"it sent {acks} acknowledgements for 20 messages of a group")


@should("TW-18", "tell dropped positions again")
async def dropped_positions_are_told_again(stage: Stage) -> None:
    """A message is read, and the server says that it has dropped one-way frames, but not
    which. The client tells that the message was read once more, when the second is
    over that it was asked to wait, and not again and again."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    await stage.adapter.read(chat.chat_id)
    await stage.hears("read", chat)
    server.error(None, "RATE_LIMITED", retry_after_seconds=1)
    told_at = server.now()
    # What was on its way when the error came has to be over.
    await server.connection.barrier(stage.patience_s)
    before = len(server.of("read", chat=chat))
    await stage.until(
        lambda: len(server.of("read", chat=chat)) > before,
        "what may have been dropped was not told again",
    )
    waited = server.of("read", chat=chat)[before].at - told_at
    stage.expect(waited >= 1 - ROUNDING_S, f"it was to wait 1 s, and waited {waited:.3f} s")
    await stage.quiet(1.5)
    times = len(server.of("read", chat=chat)) - before
    stage.expect(times == 1, f"it told the same {times} times")
