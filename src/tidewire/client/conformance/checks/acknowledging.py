"""AK-01 to AK-06: when a client says what it has stored."""

from tidewire.client.conformance.checks.connecting import SLACK_S, unavailable
from tidewire.client.conformance.registry import must, should
from tidewire.client.conformance.stage import Stage


@must("AK-01", "cumulative acks")
async def acks_are_cumulative(stage: Stage) -> None:
    """Of five messages the third is lost, and the answer to a sync is held back: nothing above 2
    may be acknowledged, whatever came after. When it has come, 5 is acknowledged. Acknowledgements
    of a connection never go back."""
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
    for line in server.lines:
        positions = server.acked(chat, line)
        stage.expect(positions == sorted(positions), f"acknowledgements went back: {positions}")


@must("AK-02", "batch, not one per message")
async def acks_are_batched(stage: Stage) -> None:
    """Twenty messages come one by one, each with time for an acknowledgement after it; at most half
    as many acknowledgements may come."""
    server = stage.server
    (chat,) = await stage.begin()
    count = 20
    for number in range(1, count + 1):
        server.say(chat, f"text {number}")
        await server.until(lambda number=number: number in server.acked(chat), 0.04)  # type: ignore[misc]
    await stage.shows(chat)
    acks = len(server.acked(chat))
    stage.expect(acks <= count // 2, f"it sent {acks} acknowledgements for {count} messages")


@must("AK-03", "ack only after durable local store")
async def acks_mean_stored(stage: Stage) -> None:
    """Twelve messages come at once. In the instant in which an acknowledgement arrives the client
    is killed. The next life finds no server: everything that was acknowledged is shown all the
    same."""
    server = stage.server
    (chat,) = await stage.begin()
    for number in range(1, 13):
        server.say(chat, f"text {number}")
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
    """Three messages are shown, and the user ends the client at once; the third is acknowledged
    before the connection ends."""
    server = stage.server
    (chat,) = await stage.begin(messages=3)
    await stage.adapter.stop()
    await stage.until(
        lambda: 3 in server.acked(chat) or server.line.is_over, "it did not end its connection"
    )
    stage.expect(3 in server.acked(chat), "it left without acknowledging what it had stored")


@must("AK-05", "keep `last_acked_sequence` per chat")
async def positions_are_per_chat(stage: Stage) -> None:
    """One chat has twelve messages, another three. Each is acknowledged up to its own end and not
    above it, also when everything is told again on a new connection."""
    server = stage.server
    long, short = await stage.begin(chats=2)
    for number in range(1, 13):
        server.say(long, f"text {number}")
    for number in range(1, 4):
        server.say(short, f"text {number}")
    await stage.shows(long)
    await stage.shows(short)
    if await stage.acked(long, 12):
        await stage.until(lambda: 3 in server.acked(short), "3 was not acknowledged")
    elif not await stage.acked(short, 3):
        before = server.line.number
        server.line.cut()
        await stage.reconnected(before)
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
    for number in range(1, 11):
        server.say(chat, f"text {number}")
    in_time_s = 5 * stage.scale + SLACK_S
    await stage.in_time(
        lambda: 10 in server.acked(chat), in_time_s, "ten were not acknowledged in time"
    )
    server.say(chat, "text 11")
    await stage.in_time(
        lambda: 11 in server.acked(chat), in_time_s, "one was not acknowledged in time"
    )
