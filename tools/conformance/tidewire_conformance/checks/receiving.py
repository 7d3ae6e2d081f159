"""MR-01 to MR-05: how a client handles what it receives."""

from tidewire_conformance.connection import Heard
from tidewire_conformance.registry import must, should
from tidewire_conformance.stage import Stage
from tidewire_conformance.truth import BEGAN_AT_MS


@must("MR-01", "order by sequence")
async def order_is_the_sequence(stage: Stage) -> None:
    """Messages come one after another, but each says that it was made before the last one, as the
    clocks of several servers do; they are shown by their sequences."""
    server = stage.server
    (chat,) = await stage.begin()
    for number in range(5):
        at_ms = BEGAN_AT_MS - number * 60_000
        server.push(server.truth.append(chat, f"text {number}", created_at_ms=at_ms))
    await stage.shows(chat)


@must("MR-02", "dedup by (chat, sequence)")
async def duplicates_are_dropped(stage: Stage) -> None:
    """Pushes come twice, at once and later; an own message is acked twice and pushed as well; pages
    begin below what was asked for, and a push overtakes the page that has it too. Each message is
    shown once, also in the next life."""
    server = stage.server
    (chat,) = await stage.begin()
    first = server.say(chat, "first")
    server.push(first)
    second = server.say(chat, "second")
    for message in (first, second, second):
        server.push(message)

    def ack_twice(heard: Heard) -> None:
        message = server.store(heard)
        server.answer(heard, message)
        server.answer(heard, message)
        server.push(message)

    def page_from_the_start(heard: Heard) -> None:
        server.push(chat.messages[-1])
        heard.payload["last_acked_sequence"] = 0
        server.answer_page(heard)

    server.rules["send_message"] = ack_twice
    server.rules["sync_request"] = page_from_the_start
    await stage.adapter.send(chat.chat_id, "own")
    await stage.shows(chat, ["first", "second", "own"])
    server.say(chat, "third", push=False)
    await stage.cut()
    await stage.shows(chat)
    await stage.ready()
    await stage.shows(chat)
    await stage.adapter.kill()
    await stage.adapter.restart()
    await stage.shows(chat)


@must("MR-03", "gaps never block")
async def holes_in_the_numbers_mean_nothing(stage: Stage) -> None:
    """The server skips numbers, as the chain of `prev_sequence` says; what comes after a hole is
    shown at once, whether it was pushed or fetched, and an own message behind a hole as well."""
    server = stage.server
    (chat,) = await stage.begin()
    server.say(chat, "one", skip=3)
    server.say(chat, "two")
    server.say(chat, "three", skip=40)
    await stage.shows(chat)
    chat.counter += 7
    await stage.adapter.send(chat.chat_id, "own")
    await stage.shows(chat, ["one", "two", "three", "own"])
    server.say(chat, "four", skip=1000, push=False)
    server.say(chat, "five", skip=5, push=False)
    await stage.cut()
    await stage.shows(chat)


@must("MR-04", "arrival order ≠ sequence order")
async def arrival_is_not_order(stage: Stage) -> None:
    """Pushes arrive as 4, 2, 3, then 7, 6, 5, while syncs are answered as ever; all of them are
    shown, by their sequences."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    for order in ((2, 0, 1), (2, 1, 0)):
        messages = [server.say(chat, f"text {chat.head + 1}", push=False) for _ in range(3)]
        for index in order:
            server.push(messages[index])
        await stage.shows(chat)


@should("MR-05", "sync when a gap is seen")
async def gaps_are_fetched(stage: Stage) -> None:
    """One push is lost, and the next one tells of it by its `prev_sequence`; the client asks for
    what is missing, from where it was, on the same connection."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    connection = server.connection
    server.say(chat, "lost", push=False)
    server.say(chat, "seen")
    asked = await stage.hears("sync_request", chat, connection=connection)
    cursor = asked.payload["last_acked_sequence"]
    stage.expect(cursor == 1, f"it asked from {cursor}, and has everything up to 1")
    await stage.shows_all_of(chat)
