"""RequestStore: an Idempotency-Key is carried out once, whoever comes again (A-05)."""

import asyncio

from tests.support.world import World
from tidewire.domain.accounts import (
    RequestClaim,
    RequestClaimed,
    RequestKey,
    RequestMismatch,
    RequestPending,
    RequestReplayed,
)
from tidewire.domain.ids import UserId
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS, REQUEST_PENDING_MS_MAX

BODY = b"hash of a body"


def a_key(
    user_id: str = "user_1", endpoint: str = "POST /chats", key: str = "11111111"
) -> RequestKey:
    return RequestKey(user_id=UserId(user_id), endpoint=endpoint, key=key)


async def claim(
    world: World,
    key: RequestKey,
    body_hash: bytes = BODY,
    *,
    resource_id: str | None = None,
    now_ms: int | None = None,
) -> RequestClaim:
    return await world.storage.claim_request(
        key, body_hash, resource_id=resource_id, now_ms=world.now() if now_ms is None else now_ms
    )


async def finish(world: World, key: RequestKey) -> None:
    await world.storage.finish_request(key, http_status=201, resource_id="chat_1")


async def test_request_is_claimed_once_and_then_replayed(world: World) -> None:
    assert await claim(world, a_key(), resource_id="chat_1") == RequestClaimed("chat_1")
    assert await claim(world, a_key(), resource_id="chat_2") == RequestPending()
    await finish(world, a_key())
    for _ in range(2):
        assert await claim(world, a_key()) == RequestReplayed(201, "chat_1")


async def test_request_with_another_body_is_a_mismatch_in_every_state(world: World) -> None:
    await claim(world, a_key())
    assert await claim(world, a_key(), b"other") == RequestMismatch()
    await finish(world, a_key())
    assert await claim(world, a_key(), b"other") == RequestMismatch()
    assert await claim(world, a_key()) == RequestReplayed(201, "chat_1")


async def test_request_keys_are_of_one_user_and_one_endpoint(world: World) -> None:
    await claim(world, a_key())
    for other in (a_key(user_id="user_2"), a_key(endpoint="POST /x"), a_key(key="22222222")):
        assert await claim(world, other, b"other") == RequestClaimed(None)


async def test_request_of_many_who_come_at_once_is_claimed_by_one(world: World) -> None:
    claims = await asyncio.gather(
        *(claim(world, a_key(), resource_id=f"chat_{number}") for number in range(8))
    )
    assert [type(outcome) for outcome in claims].count(RequestClaimed) == 1
    assert claims.count(RequestPending()) == 7


async def test_request_that_was_released_is_claimed_again(world: World) -> None:
    await claim(world, a_key(), resource_id="chat_1")
    await world.storage.release_request(a_key())
    assert await claim(world, a_key(), b"other", resource_id="chat_2") == RequestClaimed("chat_2")


async def test_request_that_is_finished_is_neither_released_nor_changed(world: World) -> None:
    await claim(world, a_key())
    await finish(world, a_key())
    await world.storage.release_request(a_key())
    await world.storage.finish_request(a_key(), http_status=500, resource_id=None)
    assert await claim(world, a_key()) == RequestReplayed(201, "chat_1")


async def test_request_that_died_is_taken_over_with_its_first_resource_id(world: World) -> None:
    at_ms = world.now()
    await claim(world, a_key(), resource_id="chat_1", now_ms=at_ms)
    late_ms = at_ms + REQUEST_PENDING_MS_MAX
    early = await claim(world, a_key(), resource_id="chat_2", now_ms=late_ms - 1)
    assert early == RequestPending()
    resumed = await claim(world, a_key(), resource_id="chat_2", now_ms=late_ms)
    assert resumed == RequestClaimed("chat_1", resumed=True)
    # It is pending again, from now on.
    assert await claim(world, a_key(), now_ms=late_ms + 1) == RequestPending()


async def test_request_is_forgotten_after_a_day(world: World) -> None:
    at_ms = world.now()
    await claim(world, a_key(), now_ms=at_ms)
    await finish(world, a_key())
    last_ms = at_ms + REQUEST_KEY_LIFE_MS - 1
    assert await claim(world, a_key(), now_ms=last_ms) == RequestReplayed(201, "chat_1")
    renewed = await claim(world, a_key(), b"other", resource_id="chat_9", now_ms=last_ms + 1)
    assert renewed == RequestClaimed("chat_9")
    await world.storage.finish_request(a_key(), http_status=200, resource_id="chat_9")
    again = await claim(world, a_key(), b"other", now_ms=last_ms + 2)
    assert again == RequestReplayed(200, "chat_9")


async def test_request_that_was_never_claimed_is_not_finished(world: World) -> None:
    await finish(world, a_key())
    await world.storage.release_request(a_key())
    assert await claim(world, a_key()) == RequestClaimed(None)


async def test_requests_are_swept_when_they_have_expired(world: World) -> None:
    at_ms = world.now()
    for number in range(5):
        await claim(world, a_key(key=f"key {number}"), now_ms=at_ms)
    young = await claim(world, a_key(key="young"), now_ms=at_ms + 1)
    assert young == RequestClaimed(None)
    late_ms = at_ms + REQUEST_KEY_LIFE_MS
    swept = [await world.storage.sweep_accounts(now_ms=late_ms, count_max=3) for _ in range(3)]
    assert swept == [3, 2, 0]
    assert await claim(world, a_key(key="young"), now_ms=late_ms - 1) != young


async def test_requests_are_still_there_after_a_restart(world: World) -> None:
    await claim(world, a_key())
    await finish(world, a_key())
    await world.engine.reopen()
    assert await claim(world, a_key()) == RequestReplayed(201, "chat_1")
