"""CL-01 to CL-08: how a client connects, stays connected and comes back."""

from contextlib import suppress
from functools import partial

from tidewire.domain.ids import is_uuid
from tidewire_conformance.adapter import SendRefused
from tidewire_conformance.connection import Connection, wall_ms
from tidewire_conformance.registry import must, should
from tidewire_conformance.sockets import Request, Response
from tidewire_conformance.stage import Stage

ROUNDING_S = 0.005
"""Clients count in milliseconds, and may cut one off at either end."""
SLACK_S = 1.0
"""How much a wait may be exceeded on the way."""
BUSY_TRIES = 3
"""How many connections are tried if clients give them up because the kit could not run."""


def unavailable(_: Request) -> Response:
    """Refuses to upgrade: come back later."""
    return Response(503, b'{"error": "service_unavailable", "message": "as the check wants it"}')


@must("CL-01", "JWT in header (subprotocol for browsers)")
async def token_in_header(stage: Stage) -> None:
    """Every request to connect, the first and those after a cut, carries a token that the server
    gave out in `Authorization: Bearer` or in the subprotocol `bearer.`, and none in its URL."""
    await stage.begin()
    await stage.cut()
    for attempt in stage.server.attempts:
        stage.expect("token" not in attempt.request.query, "its token stands in the URL")
        stage.expect(
            attempt.token in stage.server.expiries,
            "it connected without a token that the server gave out",
        )


@must("CL-02", "send `device_id`")
async def device_is_told(stage: Stage) -> None:
    """Every request to connect names the device that the token was given to, in `X-Device-ID`, the
    subprotocol `device.` or the URL; the same one after a cut and after a restart."""
    await stage.begin()
    await stage.cut()
    await stage.relive()
    for attempt in stage.server.attempts:
        stage.expect(is_uuid(attempt.device_id), f"its device is {attempt.device_id!r}, no UUID")
        stage.expect(
            attempt.device_id == stage.server.account.device_id,
            "its device is not the one of its token",
        )


@must("CL-03", "silent until `connection_established`")
async def silent_before_the_introduction(stage: Stage) -> None:
    """The socket opens and the server says nothing yet, while the user sends a text and messages
    wait to be fetched; nothing but heartbeats may be heard until the introduction."""
    server = stage.server
    server.hold("connection_established")
    chat = server.truth.new_chat()
    server.say(chat, "waiting", push=False)
    await stage.adapter.start(server.url, server.account)
    await stage.until(lambda: bool(server.connections), "it did not connect")
    await server.connection.barrier(stage.patience_s)
    # MS-07 checks whether it takes texts now.
    with suppress(SendRefused):
        await stage.adapter.send(chat.chat_id, "early")
    await stage.quiet(0.3)
    server.release("connection_established")
    await stage.shows_all_of(chat)
    early = [heard.type for heard in server.heard if heard.is_early and heard.type != "heartbeat"]
    stage.expect(not early, f"it said {early} before the server had introduced itself")


@must("CL-04", "heartbeat at given interval ±10 %")
async def heartbeats_in_time(stage: Stage) -> None:
    """The server asks for a heartbeat each second. The n-th may not come before n intervals less a
    tenth have passed since the introduction, and five come in time, on one connection."""
    server = stage.server
    interval_s = 1.0
    server.heartbeat_ms = round(interval_s * 1000)
    await stage.begin()
    count = 5
    connection = server.connection
    for tries in range(BUSY_TRIES):
        lag_s = await stage.in_time(
            partial(_has_beaten_or_ended, stage, connection, count),
            count * 1.1 * interval_s + SLACK_S,
            f"{count} heartbeats did not come in time",
        )
        is_excused = connection.is_over and lag_s >= interval_s and tries + 1 < BUSY_TRIES
        if not is_excused:
            break
        # The kit itself could not run for so long that a client may take the server for dead.
        await stage.in_time(
            partial(_is_another_introduced, stage, connection),
            stage.patience_s,
            "it did not connect again",
        )
        connection = server.connection
    beats = server.of("heartbeat", connection=connection)
    stage.expect(len(beats) >= count, "it gave the connection up")
    began = connection.introduced_at or 0.0
    for number, beat in enumerate(beats, start=1):
        earliest = began + number * (0.9 * interval_s - ROUNDING_S)
        stage.expect(
            beat.at >= earliest, f"heartbeat {number} came {earliest - beat.at:.3f} s early"
        )


def _has_beaten_or_ended(stage: Stage, connection: Connection, count: int) -> bool:
    beats = stage.server.of("heartbeat", connection=connection)
    return len(beats) >= count or connection.is_over


def _is_another_introduced(stage: Stage, connection: Connection) -> bool:
    now = stage.server.connection
    return now is not connection and now.introduced_at is not None


@must("CL-05", "on `connection_closing` stop sending, prepare reconnect")
async def stops_when_told(stage: Stage) -> None:
    """The server announces its end and keeps the connection open for a while. What the user sends
    now is not sent on it (acknowledgements may be); the client comes back after the time that it
    was told, not earlier, and sends it then."""
    server = stage.server
    (chat,) = await stage.begin()
    connection = server.connection
    delay_s = 3.0
    told_at = server.closing("server_shutdown", delay_ms=round(delay_s * 1000))
    await connection.barrier(stage.patience_s)
    await stage.quiet(0.05)
    heard_before = len(server.heard)
    await stage.adapter.send(chat.chat_id, "after the announcement")
    await stage.quiet(0.4)
    said = [one.type for one in server.heard[heard_before:] if one.type not in ("ack", "read")]
    stage.expect(not said, f"it went on with {said} on a connection that was about to end")
    connection.close(1012)
    await stage.reconnected(connection.number)
    came_at = server.attempts[-1].at
    stage.expect(came_at >= told_at + delay_s - ROUNDING_S, "it came back earlier than told")
    await stage.until(lambda: bool(server.sends("after the announcement")), "the text is lost")


@must("CL-06", "backoff 1 s → 30 s, ±25 %")
async def backs_off(stage: Stage) -> None:
    """A connection is cut, and each try after it fails. The waits before the first tries are at
    least 1 s, 2 s and 4 s less a quarter, counted from when the server dropped the last one, and
    not much longer than a quarter more. (Not seen: that waits vary, and end at 30 s.)"""
    server = stage.server
    await stage.begin()
    drops = [server.now()]
    server.connection.cut()

    def drop(_: Request) -> Response | None:
        drops.append(server.now())
        raise ConnectionAbortedError

    server.refuse = drop
    waits = [1.0 * stage.scale, 2.0 * stage.scale, 4.0 * stage.scale]
    for number, wait_s in enumerate(waits, start=1):
        await stage.in_time(
            lambda number=number: len(drops) > number,  # type: ignore[misc]
            1.25 * wait_s + SLACK_S,
            f"try {number} did not come in time",
        )
        waited = drops[number] - drops[number - 1]
        stage.expect(
            waited >= 0.75 * wait_s - ROUNDING_S,
            f"it waited {waited:.2f} s before try {number}, not {wait_s:.2f} s less a quarter",
        )


@should("CL-07", "refresh JWT early")
async def refreshes_in_time(stage: Stage) -> None:
    """The token lives for some seconds. Before it ends the client is connected with another one,
    and gets what was said meanwhile."""
    server = stage.server
    server.token_life_s = 8
    (chat,) = await stage.begin()
    first = server.attempts[-1].token
    await stage.in_time(
        lambda: server.attempts[-1].token != first,
        server.expiries[first] - wall_ms() / 1000,
        "the token ended, and there was no connection with a new one",
    )
    await stage.ready()
    server.say(chat, "with the new token")
    await stage.shows(chat)


@should("CL-08", "show connection state")
async def shows_its_state(stage: Stage) -> None:
    """The application shows `connecting` before the introduction, `syncing` until what was missed
    is here, `ready`, not `ready` without a connection, and `ready` again."""
    server = stage.server
    chat = server.truth.new_chat()
    server.say(chat, "missed", push=False)

    async def becomes(*states: str) -> None:
        await stage.eventually(
            stage.adapter.state,
            lambda state: state in states,
            lambda state: f"its state is {state}, not {' or '.join(states)}",
        )

    server.hold("connection_established", "sync_response")
    await stage.adapter.start(server.url, server.account)
    await stage.until(lambda: bool(server.connections), "it did not connect")
    await becomes("connecting")
    server.release("connection_established")
    await stage.hears("sync_request")
    await becomes("syncing")
    server.release("sync_response")
    await becomes("ready")
    server.refuse = unavailable
    server.connection.cut()
    await becomes("offline", "connecting")
    server.refuse = lambda _: None
    await becomes("ready")
