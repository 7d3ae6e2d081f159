"""A browser that was away for a hundred thousand messages catches up.

Goal: nothing is lost, doubled or out of order, each own message has the tick that the server's
numbers give it, and the server knows that all of it arrived. Method: a page of Chromium knows the
chat and is closed; the messages are put into the server's store while that is stopped; the page
opens again. Slow: it is a lot.
"""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.chatting import Site
from tests.support.filling import fill
from tests.support.ports import free_port
from tests.web.tabs import Tabs, until

MANY = 100_000
CATCH_UP_S_MAX = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_hundred_thousand_messages_are_caught_up(drivers: Path, tmp_path: Path) -> None:
    # A page belongs to its address: a server that starts again has to have the same.
    with Site(tmp_path / "site", server__port=free_port()) as site:
        async with Tabs(site.url, drivers / "tabs") as tabs:
            ann, bob = await site.people("ann", "bob")
            tab = await (await tabs.blank()).open(ann.username)
            chat_id = await tab.do("direct", bob.username)
            await tab.do("send", chat_id, "ann was here")
            await tab.do("flush")
            await tab.do("close")

            await asyncio.to_thread(site.kill)
            # Ann writes, too, on another device.
            texts = [f"number {number}" for number in range(1, MANY + 1)]
            await fill(site.data_dir, chat_id, [bob.user_id, bob.user_id, ann.user_id], texts)
            await asyncio.to_thread(site.start)
            async with site.phone(bob) as theirs:
                # Bob has some of it, and has read less.
                await theirs.ack(chat_id, MANY // 2)
                await theirs.read(chat_id, MANY // 4)
                async with site.phone(ann) as mine:
                    told = await mine.numbers(
                        chat_id, others_delivered=MANY // 2, others_read=MANY // 4
                    )

                async with asyncio.timeout(CATCH_UP_S_MAX):
                    await tab.open()
                    await tab.do("ready")
                assert await tab.texts(chat_id) == ["ann was here", *texts]

                # The server knows, and says so to the other side.
                numbers = await theirs.numbers(chat_id, others_delivered=MANY + 1)
                assert numbers["others_delivered"] == numbers["head"] == MANY + 1
            own = [1, *range(4, MANY + 2, 3)]

            async def is_told() -> bool:
                shown = await tab.do("numbers", chat_id)
                return all(
                    shown[name] == told[other]
                    for name, other in (
                        ("othersDelivered", "others_delivered"),
                        ("othersRead", "others_read"),
                        ("lastSequence", "head"),
                    )
                )

            await until(is_told, "the page has the server's numbers")
            assert await tab.do("own", chat_id) == [tick_of(one, told) for one in own]
            assert (await tab.do("state"))["faults"] == []
            assert site.complaints() == []


def tick_of(sequence: int, numbers: dict[str, int]) -> str:
    if sequence <= numbers["others_read"]:
        return "read"
    return "delivered" if sequence <= numbers["others_delivered"] else "sent"
