"""What two parts of a server share, and what one tells the other: as bootstrap ties them together.

Each of these was broken once on purpose, in `runtime/bootstrap.py` or beside it, and no test saw it
(E4, E5, E12). Slow: a whole server and real sockets.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.e2e.chatting import Frame, Phone, new_key
from tests.wired.site import wired
from tidewire.domain.resync import ResyncReason

pytestmark = pytest.mark.slow

BURST = 5
STRICT = {"gateway__send_chat_burst": BURST, "gateway__send_chat_rate_per_second": 1}


def message(chat_id: str) -> Frame:
    return {"chat_id": chat_id, "content": "hello", "client_message_id": new_key()}


async def spend(phone: Phone, chat_id: str, count: int) -> None:
    for _ in range(count):
        await phone.say(chat_id, "hello")


@pytest.mark.usefixtures("clock")
async def test_two_sockets_of_one_user_share_one_burst(tmp_path: Path) -> None:
    async with wired(tmp_path, **STRICT) as site:
        ann, ben = await site.people("ann", "ben")
        laptop = await site.login(ann)
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as one, site.phone(laptop) as other, site.phone(ben) as third:
            await spend(one, chat_id, BURST - 1)
            await spend(other, chat_id, 1)
            for phone in (one, other):
                answer = await phone.ask("send_message", message(chat_id))
                assert answer["payload"].get("code") == "RATE_LIMITED"
            # Another user has a burst of their own.
            await spend(third, chat_id, BURST)


@pytest.mark.usefixtures("clock")
async def test_rest_and_sockets_share_one_limiter(tmp_path: Path) -> None:
    async with wired(tmp_path, **STRICT) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        path = f"/api/v1/chats/{chat_id}/messages"
        async with site.phone(ann) as phone:
            await spend(phone, chat_id, BURST)
            answer = await site.call("POST", path, message(chat_id), by=ann)
            assert answer.status_code == 429
        for _ in range(BURST):
            assert (await site.call("POST", path, message(chat_id), by=ben)).is_success
        async with site.phone(ben) as phone:
            refused = await phone.ask("send_message", message(chat_id))
            assert refused["payload"]["code"] == "RATE_LIMITED"


async def test_block_reaches_the_fanout_at_once(tmp_path: Path) -> None:
    """The members of the chat are remembered when the block comes."""
    async with wired(tmp_path, gateway__typing_interval_ms=1) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as one, site.phone(ben) as other:

            async def is_typing_seen() -> bool:
                await one.post("typing_start", {"chat_id": chat_id})
                await one.post("typing_stop", {"chat_id": chat_id})
                await one.caught_up()
                await other.caught_up()
                seen = bool(other.all_of("typing_indicator", chat_id))
                other.inbox.clear()
                return seen

            assert await is_typing_seen()
            await site.done("PUT", f"/users/{ann.user_id}/block", by=ben)
            assert not await is_typing_seen()
            await site.done("DELETE", f"/users/{ann.user_id}/block", by=ben)
            await one.post("typing_start", {"chat_id": chat_id})
            await other.get("typing_indicator", chat_id=chat_id)


async def test_first_ack_of_a_connection_heals_a_status_that_was_lost(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as author:
            sequence = (await author.say(chat_id, "hello"))["sequence"]
            async with site.phone(ben) as reader:
                await reader.ack(chat_id, sequence)
                await author.get("status_update", others_delivered=sequence)
            # As if that had been lost: the same again moves nothing, and is told all the same.
            async with site.phone(ben) as reader:
                await reader.ack(chat_id, sequence)
                await author.get("status_update", others_delivered=sequence)


async def test_revoked_session_closes_its_socket(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann = await site.person("ann")
        laptop = await site.login(ann)
        async with site.phone(ann) as one, site.phone(laptop) as other:
            await site.done("DELETE", f"/sessions/{laptop.session_id}", by=ann)
            assert await other.closed() == 1008
            await one.caught_up()


async def test_resync_before_the_digest_returns_is_not_lost(tmp_path: Path) -> None:
    """A connection has its route before its digest is read: what is pushed meanwhile waits, and so
    does the word that a push was lost."""
    async with wired(tmp_path) as site:
        ann = await site.person("ann")
        is_asked, may_answer = asyncio.Event(), asyncio.Event()
        store: Any = site.server.planes.store
        digest = store.digest

        async def slow_digest(*positional: object, **named: object) -> object:
            is_asked.set()
            await may_answer.wait()
            return await digest(*positional, **named)

        store.digest = slow_digest
        async with connect(site.socket_url, additional_headers=ann.headers, proxy=None) as socket:
            phone = Phone(socket)
            phone.listen()
            await is_asked.wait()
            site.server.planes.hub.resync(None, ResyncReason.PUSHES_LOST)
            may_answer.set()
            await phone.get("resync", reason="pushes_lost")
            assert [frame["type"] for frame in phone.inbox] == [
                "connection_established",
                "chat_digest",
            ]
            await phone.end()


async def test_server_brings_its_own_page(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        answer = await site.call("GET", "/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert (await site.call("GET", "/nothing")).status_code == 404
