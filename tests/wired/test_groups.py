"""Groups and direct chats through a whole server: what members are told, and what they are not.

Slow: a whole server and real sockets.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chatting import Account, Phone, eventually, new_key
from tests.wired.site import WiredSite, wired

pytestmark = pytest.mark.slow


async def entry_of(phone: Phone, chat_id: str) -> dict[str, Any]:
    """What a digest of this moment says of a chat."""
    digest = await phone.ask("digest_request", {})
    [entry] = [one for one in digest["payload"]["chats"] if one["chat_id"] == chat_id]
    found: dict[str, Any] = entry
    return found


async def refused_send(phone: Phone, chat_id: str) -> str:
    payload = {"chat_id": chat_id, "client_message_id": new_key(), "content": "late"}
    code: str = (await phone.ask("send_message", payload))["payload"]["code"]
    return code


def trail(data_dir: Path) -> list[str]:
    lines = (data_dir / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["action"] for line in lines]


async def test_group_is_handed_over_and_closed(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann, ben, cem = await site.people("ann", "ben", "cem")
        chat_id = await site.group(ann, ben, cem)
        async with site.phone(ann) as one, site.phone(ben) as other:
            body = {"user_id": ben.user_id}
            await site.done("POST", f"/chats/{chat_id}/transfer", body, by=ann)
            for phone in (one, other):
                await phone.get("chat_update", user_id=ben.user_id, role="owner")
                await phone.get("chat_update", user_id=ann.user_id, role="admin")
            await site.done("POST", f"/chats/{chat_id}/close", by=ben)
            for account, phone in ((ann, one), (ben, other)):
                told = await phone.get("chat_update", change="member_removed", is_closed=True)
                assert told["payload"]["user_id"] == account.user_id
                assert await refused_send(phone, chat_id) == "NOT_A_MEMBER"
                digest = await phone.ask("digest_request", {})
                assert digest["payload"]["chats"] == []
    assert [action for action in trail(tmp_path) if action.startswith("group.")] == [
        "group.created",
        "group.handed_over",
        "group.closed",
    ]


async def test_block_moves_no_number_that_the_blocked_person_sees(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ben) as phone:
            await phone.say(chat_id, "hello")
            before = await entry_of(phone, chat_id)
            view = await site.done("GET", f"/chats/{chat_id}", by=ben)
            listed = await site.call("GET", "/api/v1/chats", by=ben)
            await site.done("PUT", f"/users/{ben.user_id}/block", by=ann)
            assert await refused_send(phone, chat_id) == "FORBIDDEN"
            assert await entry_of(phone, chat_id) == before
            assert await site.done("GET", f"/chats/{chat_id}", by=ben) == view
            assert (await site.call("GET", "/api/v1/chats", by=ben)).json() == listed.json()
            await phone.caught_up()
            assert phone.all_of("chat_update", chat_id) == []


async def test_hidden_chat_comes_back_on_every_device(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann, ben = await site.people("ann", "ben")
        laptop = await site.login(ann)
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as phone, site.phone(laptop) as other:
            await site.done("POST", f"/chats/{chat_id}/hide", by=ann)
            for device in (phone, other):
                assert (await entry_of(device, chat_id))["is_hidden"] is True
            async with site.phone(ben) as writer:
                await writer.say(chat_id, "hello")
            for device in (phone, other):
                assert "is_hidden" not in await entry_of(device, chat_id)


async def add_all(site: WiredSite, chat_id: str, by: Account, people: list[Account]) -> list[int]:
    path = f"/api/v1/chats/{chat_id}/members"
    return [
        (await site.call("POST", path, {"user_id": one.user_id}, by=by)).status_code
        for one in people
    ]


async def test_strangers_are_bounded_as_it_is_set(tmp_path: Path) -> None:
    async with wired(tmp_path, chats__strangers_per_hour=3) as site:
        ann, ben, *others = await site.people("ann", "ben", "cem", "dan", "eve", "fay")
        chat_id = await site.group(ann, ben)
        assert await add_all(site, chat_id, ann, others) == [201, 201, 429, 429]
        # Another account has a bound of its own, over groups and direct chats together.
        own = await site.group(others[3], others[2])
        await site.direct(others[3], ann)
        assert await add_all(site, own, others[3], [ben, others[0]]) == [201, 429]


async def test_person_who_left_for_good_is_told_of_no_new_message(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.group(ann, ben)
        async with site.phone(ann) as one, site.phone(ben) as other:
            body = {"do_not_add_again": True}
            await site.done("POST", f"/chats/{chat_id}/leave", body, by=ben)
            await one.get("chat_update", change="member_removed", user_id=ben.user_id)
            assert await add_all(site, chat_id, ann, [ben]) == [403]
            await one.say(chat_id, "without Ben")
            await other.caught_up()
            assert other.pushed(chat_id) == []
            await site.done("DELETE", f"/users/me/refused-groups/{chat_id}", by=ben)
            assert await add_all(site, chat_id, ann, [ben]) == [201]
            await one.say(chat_id, "with Ben")
            await eventually(lambda: other.pushed(chat_id) == ["with Ben"], "Ben is back")
