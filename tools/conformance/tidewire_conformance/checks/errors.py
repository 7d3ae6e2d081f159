"""EH-01 to EH-05: what a client does when things go wrong."""

import asyncio
from typing import Final

import msgspec

from tidewire.domain.chats import ChatType
from tidewire_conformance.checks.connecting import ROUNDING_S, unavailable
from tidewire_conformance.connection import Heard
from tidewire_conformance.registry import must, should
from tidewire_conformance.stage import Stage
from tidewire_conformance.truth import OTHER

FINAL: Final = (
    "INVALID_MESSAGE",
    "INVALID_ENCODING",
    "INVALID_CONTENT",
    "INVALID_CONTENT_TYPE",
    "MESSAGE_TOO_LARGE",
    "IDEMPOTENCY_KEY_REUSED",
    "NOT_FOUND",
)
"""A send that is answered with one of these has failed. FORBIDDEN and NOT_A_MEMBER: RS-04."""
PASSING: Final = ("RATE_LIMITED", "SERVER_BUSY", "INTERNAL_ERROR")
"""A send that is answered with one of these is sent again. SERVICE_UNAVAILABLE: EH-04."""


@must("EH-01", "handle every documented code")
async def every_code_is_handled(stage: Stage) -> None:
    """A send is answered with each code that a send can get: final ones make it failed and are not
    retried, passing ones are retried (RATE_LIMITED not before `retry_after_seconds`) and arrive. A
    sync is answered CURSOR_AHEAD, and the chat is fetched anew. Errors without a request change
    nothing. After UNAUTHORIZED the client comes back with another token."""
    server = stage.server
    chats = dict(zip(PASSING + FINAL, await stage.begin(chats=10), strict=True))
    codes = {chat.chat_id: code for code, chat in chats.items()}
    refused: dict[str, float] = {}

    def refuse_once(heard: Heard) -> bool | None:
        code = codes[heard.payload["chat_id"]]
        if code in refused:
            return False
        refused[code] = server.now()
        if code == "RATE_LIMITED":
            server.error(heard, code, retry_after_seconds=1)
        else:
            server.error(heard, code)
        return None

    server.rules["send_message"] = refuse_once
    connection = server.connection
    for code, chat in chats.items():
        await stage.adapter.send(chat.chat_id, code)
    for code in PASSING:
        await stage.until(
            lambda code=code: code in chats[code].texts,  # type: ignore[misc]
            f"a send that was answered {code} was not sent again",
        )
    for code in FINAL:
        await stage.ticked(chats[code], code, "failed")
        stage.expect(len(server.sends(code)) == 1, f"{code} was retried")
    waited = server.sends("RATE_LIMITED")[1].at - refused["RATE_LIMITED"]
    stage.expect(waited >= 1.0 - ROUNDING_S, f"it was told to wait 1 s, and waited {waited:.2f} s")
    for code in ("INVALID_SEQUENCE", "RATE_LIMITED", "INTERNAL_ERROR"):
        server.error(None, code)
    stage.expect(
        await connection.barrier(stage.patience_s), "an error without a request ended it all"
    )

    chat = chats[PASSING[0]]

    def ahead_once(heard: Heard) -> None:
        server.rules.pop("sync_request")
        server.error(heard, "CURSOR_AHEAD", head=chat.head)

    server.rules["sync_request"] = ahead_once
    server.say(chat, "missed", push=False)
    await stage.cut()
    await stage.shows_all_of(chat)
    stage.expect("sync_request" not in server.rules, "it did not sync")

    connection = server.connection
    token = server.attempts[-1].token
    server.error(None, "UNAUTHORIZED", reason="token_expired")
    connection.close(1008)
    await stage.reconnected(connection.number)
    stage.expect(server.attempts[-1].token != token, "it came back with the token that had ended")


@must("EH-02", "log unknown types, carry on")
async def unknown_types_are_ignored(stage: Stage) -> None:
    """Frames of unknown types, with and without a request_id, and known frames with unknown
    fields; the client goes on, on the same connection."""
    server = stage.server
    (chat,) = await stage.begin()
    connection = server.connection
    for extra in ({}, {"request_id": "no-request-of-yours"}):
        frame = {
            "type": "presence_changed",
            "timestamp": "2031-05-04T11:20:07.412Z",
            "payload": {"user_id": OTHER, "is_online": True},
            **extra,
        }
        connection.send_raw(msgspec.json.encode(frame))
    status = {
        "type": "status_update",
        "timestamp": "2031-05-04T11:20:07.412Z",
        "payload": {"chat_id": chat.chat_id, "others_delivered": 0, "others_read": 0, "mood": "ok"},
        "weather": "fine",
    }
    connection.send_raw(msgspec.json.encode(status))
    stage.expect(
        await connection.barrier(stage.patience_s), "an unknown frame ended the connection"
    )
    server.say(chat, "as ever")
    await stage.shows(chat)
    stage.expect(
        server.connection is connection and not connection.is_over,
        "an unknown frame ended the connection",
    )


@must("EH-03", "no client-side membership caching for authorisation")
async def the_server_decides_who_may(stage: Stage) -> None:
    """The client is told that its user was removed from a chat; meanwhile the user was taken in
    again, and the client was not told. What is sent now is for the server to refuse or to take: it
    must arrive."""
    server = stage.server
    (chat,) = await stage.begin(messages=1, chat_type=ChatType.GROUP)
    server.push_update(chat, "member_removed", 2)
    await server.connection.barrier(stage.patience_s)
    await stage.quiet(0.05)
    await stage.adapter.send(chat.chat_id, "may I?")
    await stage.until(
        lambda: bool(server.sends("may I?")), "it decided by itself that its user may not send"
    )
    await stage.ticked(chat, "may I?", "sent")


@must("EH-04", "SERVICE_UNAVAILABLE = transient, back off")
async def unavailable_means_later(stage: Stage) -> None:
    """A send is answered SERVICE_UNAVAILABLE twice, a sync once, and a request to connect gets 503
    once. Each is tried again, sends not before 1 s and 2 s less a quarter, the sync not before 1 s
    less a quarter have passed since the server's answer; nothing is shown as failed."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    refused: list[float] = []

    def refuse(heard: Heard) -> bool | None:
        if len(refused) >= 2:
            return False
        refused.append(server.now())
        server.error(heard, "SERVICE_UNAVAILABLE")
        return None

    server.rules["send_message"] = refuse
    await stage.adapter.send(chat.chat_id, "later")
    for tries, wait_s in ((2, 1.0), (3, 2.0)):
        await stage.until(
            lambda tries=tries: len(server.sends("later")) >= tries,  # type: ignore[misc]
            "it was not sent again",
        )
        stage.expect(await stage.tick(chat, "later") != "failed", "it is shown as failed")
        waited = server.sends("later")[tries - 1].at - refused[tries - 2]
        stage.expect(
            waited >= 0.75 * wait_s * stage.scale - ROUNDING_S,
            f"it waited {waited:.2f} s before try {tries}, not {wait_s * stage.scale:.2f} s",
        )
    await stage.shows(chat, ["first 1", "later"])
    refused.clear()

    def refuse_sync(heard: Heard) -> None:
        server.rules.pop("sync_request")
        refused.append(server.now())
        server.error(heard, "SERVICE_UNAVAILABLE")

    server.rules["sync_request"] = refuse_sync
    server.say(chat, "lost", push=False)
    await stage.cut()
    await stage.shows(chat)
    waited = server.of("sync_request", chat=chat)[-1].at - refused[0]
    stage.expect(waited >= 0.75 * stage.scale - ROUNDING_S, f"it asked again after {waited:.2f} s")

    connection = server.connection
    server.refuse = unavailable
    connection.cut()
    await stage.until(lambda: server.attempts[-1].was_refused, "it did not come back")
    server.refuse = lambda _: None
    await stage.reconnected(connection.number)


@should("EH-05", "measure round trips")
async def round_trips_are_measured(stage: Stage) -> None:
    """Heartbeats are answered after 150 ms; the application can tell a round trip of at least that,
    and below the interval of a second and what a busy machine adds."""
    server = stage.server
    server.heartbeat_ms = 1000
    loop = asyncio.get_running_loop()

    def answer_late(heard: Heard) -> None:
        loop.call_later(0.15, server.answer_heartbeat, heard)

    server.rules["heartbeat"] = answer_late
    (chat,) = await stage.begin()

    async def look() -> float:
        # Keep sending, so that the client does not take the connection for dead.
        server.push_status(chat, delivered=0, read=0)
        return await stage.adapter.round_trip_ms() or 0.0

    measured = await stage.eventually(look, bool, lambda _: "no round trip was measured")
    stage.expect(
        150 - 1000 * ROUNDING_S <= measured < 5_000,
        f"it measured {measured} ms, and the server took 150 ms",
    )
