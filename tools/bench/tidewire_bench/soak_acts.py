"""What happens in a long mixed run: talk, coming and going, REST, membership, slowness, vandals."""

import asyncio
import secrets
import uuid
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from time import perf_counter
from typing import Final

from tidewire_bench.changes import Page, differences, folded, readable, view_in
from tidewire_bench.client import Lost
from tidewire_bench.frames import CONTENT, message_key
from tidewire_bench.mixed_client import MixedClient
from tidewire_bench.scene import Scene
from tidewire_bench.vandals import Vandal

RATE_PER_S: Final = 300.0
"""How many messages a second, pairs and groups together."""
CHANGES_SHARE: Final = 0.25
"""Which share of them changes a message, if one is known: edits, deletions, reactions, replies."""
DONE_AS: Final = {
    "edit_message": "edits",
    "delete_message": "deletions",
    "react": "reactions",
    "send_message": "replies",
}
STAY_S: Final = 20.0
AWAY_S_MAX: Final = 3.0
SLOW_TEXT: Final = "slow " * 800
"""4000 bytes."""
SLOW_MESSAGES: Final = 300
_STEP_S: Final = 0.02
_TICK_S: Final = 1.0
_BEAT_S: Final = 20.0
_WAIT_S_MAX: Final = 20.0


def acts(scene: Scene) -> list[Coroutine[object, object, None]]:
    """All acts; each ends by itself soon after the scene is over."""
    return [
        _talk(scene),
        _tick(scene),
        *(_come_and_go(scene, client) for client in (*scene.talkers, *scene.visitors)),
        scene.every(0.1, lambda: _ask(scene)),
        scene.every(0.5, lambda: _post(scene)),
        scene.every(3.0, lambda: _log_in(scene)),
        _doors(scene),
        scene.every(6.0, lambda: _short_group(scene)),
        scene.every(12.0, lambda: _slow(scene)),
        *(scene.every_until_cut(1.5, lambda: _break(scene)) for _ in range(3)),
        scene.every_until_cut(4.0, lambda: _half_open(scene)),
        scene.every_until_cut(10.0, lambda: _mute(scene)),
    ]


async def _talk(scene: Scene) -> None:
    """Send at the rate; what could not be sent for a while is not sent later."""
    owed, last_s, chance = 0.0, perf_counter(), scene.chance
    while await scene.pause(_STEP_S):
        now_s = perf_counter()
        owed = min(owed + RATE_PER_S * (now_s - last_s), RATE_PER_S / 4)
        last_s = now_s
        for _ in range(2 * int(owed)):
            client = chance.choice(scene.talkers)
            talks = scene.talks[client.number]
            chat_id = talks[0] if chance.random() < 0.7 else chance.choice(talks)
            if owed >= 1 and client.can_say(chat_id):
                kind = client.change(chat_id, chance) if chance.random() < CHANGES_SHARE else ""
                if kind:
                    scene.done[DONE_AS[kind]] += 1
                else:
                    client.say(chat_id)
                owed -= 1


async def _tick(scene: Scene) -> None:
    """Send acks that are due by time, reads, typing and heartbeats; check for missing messages."""
    chance, count = scene.chance, 0
    while await scene.pause(_TICK_S):
        count += 1
        for client in scene.clients:
            client.acknowledge_rest()
            client.check_gaps()
            if count % _BEAT_S == client.number % _BEAT_S:
                client.beat()
            if client.readers and chance.random() < 0.5:
                chat_id = chance.choice(list(client.readers))
                client.acknowledge(chat_id, is_read=True)
                client.tell(chance.choice(("typing_start", "typing_stop")), chat_id)


async def _come_and_go(scene: Scene, client: MixedClient) -> None:
    chance = scene.chance
    while not scene.is_over.is_set():
        await scene.bring(client)
        stay = asyncio.ensure_future(scene.pause(chance.expovariate(1 / STAY_S)))
        ended = asyncio.ensure_future(client.ended())
        await asyncio.wait((stay, ended), return_when=asyncio.FIRST_COMPLETED)
        stay.cancel()
        ended.cancel()
        if scene.is_over.is_set():
            return
        if client.transport is not None:
            is_clean = chance.random() < 0.5
            scene.done["left with a close" if is_clean else "dropped the socket"] += 1
            await _let_go(client, is_clean=is_clean)
        await scene.pause(chance.uniform(0.05, AWAY_S_MAX))


async def _let_go(client: MixedClient, *, is_clean: bool) -> None:
    if is_clean:
        client.leave()
    else:
        client.drop()
    try:
        await asyncio.wait_for(client.ended(), _WAIT_S_MAX)
    except TimeoutError:
        client.outcome.faults.add(f"{client.name} closed, but the server did not")
        client.drop()
        await client.ended()


async def _ask(scene: Scene) -> None:
    """Send a request for something that an app reads."""
    client = scene.chance.choice(scene.talkers)
    chat_id = scene.chance.choice(scene.talks[client.number])
    paths = (
        f"/chats/{chat_id}/messages?limit=50",
        f"/chats/{chat_id}/messages?limit=50",
        f"/chats/{chat_id}/messages?limit=20&after_sequence=0",
        f"/chats/{chat_id}/delivery-status",
        f"/chats/{chat_id}",
        "/chats",
        "/delivery-state",
        "/users/me",
        "/sessions",
    )
    path = scene.chance.choice(paths)
    deleted = scene.book.deletions.of(chat_id)
    data = await scene.call("GET", path, by=client)
    scene.done["REST reads"] += 1
    if "/messages" in path:
        _check_deleted(scene, path, data, deleted)
        if path == paths[0]:
            scene.remembered[chat_id] = client, data
    elif path == "/chats":
        listed = [one for one in data or () if one["chat_id"] == chat_id]
        last = [one["last_message"] for one in listed if one.get("last_message")]
        page = [{"sequence": one["sequence"], "content": one["content_preview"]} for one in last]
        _check_deleted(scene, path, page, deleted)


def _check_deleted(scene: Scene, path: str, page: Page | None, deleted: Iterable[int]) -> None:
    for sequence in readable(page or (), deleted):
        scene.outcome.faults.add(f"GET {path} showed {sequence} after its deletion")


async def agree(scene: Scene) -> None:
    """When all is quiet: an earlier page, with the entries since then, must give what its reader
    and one other member are shown now."""
    for chat_id, (client, page) in scene.remembered.items():
        stale = view_in(page or ())
        if not stale or chat_id not in client.readers:
            continue
        path, last, entries = f"/chats/{chat_id}/messages", max(one["sequence"] for one in page), []
        while more := await scene.call("GET", f"{path}?limit=100&after_sequence={last}", by=client):
            entries += more
            last = more[-1]["sequence"]
        until = max(stale) + 1
        now = await scene.call("GET", f"{path}?limit=50&before_sequence={until}", by=client)
        fresh = view_in(now or ())
        for sequence in differences(folded(stale, entries, client.person.user_id), fresh):
            scene.outcome.faults.add(f"{client.name} sees {sequence} of {chat_id} as it was")
        for other in scene.clients:
            if other is not client and chat_id in other.readers:
                seen = await scene.call("GET", f"{path}?limit=50&before_sequence={until}", by=other)
                for sequence in differences(view_in(seen or ()), fresh):
                    told = f"{other.name} and {client.name} see {sequence} of {chat_id} differently"
                    scene.outcome.faults.add(told)
                break
        scene.done["views compared"] += len(fresh)


async def _post(scene: Scene) -> None:
    """The host says something to the open house over REST."""
    number = scene.done["messages over REST"]
    key = message_key(scene.host.number, number)
    path = f"/chats/{scene.open_house}/messages"
    body = {"client_message_id": key, "content": CONTENT}
    answer = await scene.call("POST", path, body, by=scene.host)
    if answer is not None:
        scene.done["messages over REST"] += 1
        scene.book.acked_count += 1
        chat = scene.book.chats[scene.open_house]
        chat.promise(scene.host.number, key, answer["sequence"])


async def _log_in(scene: Scene) -> None:
    """The same person on another device, for a moment."""
    client = scene.chance.choice(scene.talkers)
    device_id = str(uuid.uuid4())
    body = {
        "username": client.person.username,
        "password": client.person.password,
        "device_id": device_id,
    }
    answer = await scene.call("POST", "/auth/login", body)
    if answer is None:
        return
    token = answer["tokens"]["access_token"]
    there = replace(client.person, token=token, device_id=device_id)
    await scene.call("GET", "/chats", by=there)
    await scene.call("POST", "/auth/logout", {}, by=there)
    scene.done["logins and logouts"] += 1


async def _doors(scene: Scene) -> None:
    """Visitors are added to the open house and removed again."""
    inside: set[int] = set()
    path = f"/chats/{scene.open_house}/members"
    while await scene.pause(scene.chance.uniform(0.5, 3.0)):
        at = scene.chance.randrange(len(scene.visitors))
        user_id = scene.visitors[at].person.user_id
        if at in inside:
            await scene.call("DELETE", f"{path}/{user_id}", by=scene.host)
            inside.remove(at)
        else:
            await scene.call("POST", path, {"user_id": user_id}, by=scene.host)
            inside.add(at)
        scene.done["members added or removed"] += 1


async def _short_group(scene: Scene) -> None:
    """A group is made, a few messages are sent in it, and all members but its owner leave."""
    members = scene.chance.sample(scene.talkers, 3)
    body = {
        "type": "group",
        "name": f"short {secrets.token_hex(4)}",
        "member_ids": [one.person.user_id for one in members],
    }
    made = await scene.call("POST", "/chats", body, by=scene.host)
    if made is None:
        return
    chat_id = made["chat_id"]
    for client in members:
        if not await _say_a_little(scene, client, chat_id):
            return
    for client in members:
        await scene.call("POST", f"/chats/{chat_id}/leave", {}, by=client)
    scene.done["groups made and left"] += 1


async def _say_a_little(scene: Scene, client: MixedClient, chat_id: str) -> bool:
    """False if the client could not, for instance because the run is over and it has left."""

    def is_told() -> bool:
        return client.is_complete and chat_id in client.readers

    def is_answered() -> bool:
        return chat_id not in client.under_way

    for _ in range(3):
        for is_so, lacks in ((is_told, "was not told of"), (is_answered, "got no ack in")):
            if not await _until(scene, is_so):
                if not scene.is_over.is_set():
                    scene.outcome.faults.add(f"{client.name} {lacks} {chat_id}")
                return False
        client.say(chat_id)
    return await _until(scene, is_answered)


async def _slow(scene: Scene) -> None:
    """A client stops reading while much is written to it, and comes back to read it."""
    slow, loud = scene.slow, scene.loud
    closed_before = await _closed_as_slow(scene)
    # A connection that has carried much data has large buffers in the kernel: begin with a new one.
    await _let_go(slow, is_clean=False)
    await scene.bring(slow)
    await scene.bring(loud)
    assert slow.transport is not None
    underlying = slow.transport.underlying_transport
    underlying.pause_reading()
    try:
        for _ in range(SLOW_MESSAGES):
            # The first may still wait for a message that was sent when the last connection ended.
            await asyncio.wait_for(loud.said(scene.loud_chat), _WAIT_S_MAX)
            loud.say(scene.loud_chat, SLOW_TEXT)
    except Lost:
        # The token of the sender has expired; the next round goes on.
        scene.done["slow consumers cut short"] += 1
    except TimeoutError:
        scene.outcome.faults.add(f"{loud.name} got no ack in {_WAIT_S_MAX} s")
    if not underlying.is_closing():
        underlying.resume_reading()
    await _in_the_end(lambda: slow.transport is None or _has_all(slow))
    scene.done["slow consumers"] += 1
    # Asked of the server: the peer may hear of it much later, see below.
    scene.done["slow consumers closed"] += await _closed_as_slow(scene) - closed_before
    # TCP sends again what the small buffer had no room for, after longer and longer pauses of up to
    # two minutes, and the end of the connection comes after it. No client waits for that: a client
    # that hears nothing hangs up.
    if not _has_all(slow):
        await _let_go(slow, is_clean=False)
    await scene.bring(slow)


async def _closed_as_slow(scene: Scene) -> int:
    return int((await scene.rest.metrics())["gateway_slow_consumer_disconnects_total"])


def _has_all(client: MixedClient) -> bool:
    return all(reader.last >= reader.chat.head for reader in client.readers.values())


async def _until(scene: Scene, is_so: Callable[[], bool]) -> bool:
    """Wait for something that another task does; False if it takes too long or the run ends."""
    end_s = perf_counter() + _WAIT_S_MAX
    while not is_so() and perf_counter() < end_s and await scene.pause(_STEP_S):
        pass
    return is_so()


async def _in_the_end(is_so: Callable[[], bool]) -> None:
    """As `_until`, but waits also after the end of the run: an act that has begun is finished."""
    end_s = perf_counter() + _WAIT_S_MAX
    while not is_so() and perf_counter() < end_s:  # noqa: ASYNC110 - another task does it
        await asyncio.sleep(_STEP_S)


async def _break(scene: Scene) -> None:
    vandal = await _vandal(scene, scene.vandal)
    _note(scene, "bad input", await scene.chance.choice(vandal.quick)())


async def _half_open(scene: Scene) -> None:
    vandal = await _vandal(scene, scene.vandal)
    _note(scene, "half-open sockets", await vandal.half_open())


async def _mute(scene: Scene) -> None:
    vandal = await _vandal(scene, scene.mute)
    _note(scene, "mute peers", await vandal.mute())


async def _vandal(scene: Scene, client: MixedClient) -> Vandal:
    assert scene.target.own is not None
    return Vandal(scene.target.own.port, await scene.fresh(client), scene.chance)


def _note(scene: Scene, kind: str, wrong: str) -> None:
    scene.done[kind] += 1
    if wrong:
        scene.outcome.faults.add(wrong)
