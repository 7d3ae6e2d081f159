"""What one connection sends to one chat is stored in that order, over refusals too (B1)."""

import uuid
from pathlib import Path

import pytest

from tests.e2e.chatting import Frame, Phone
from tests.wired.site import HandClock, WiredSite, wired
from tidewire.gateway.options import GatewayOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clock")]

DEFAULTS = {
    f"gateway__{name}": getattr(GatewayOptions(), name)
    for name in (
        "send_chat_rate_per_second",
        "send_chat_burst",
        "send_user_rate_per_second",
        "send_user_burst",
    )
}


def message(chat_id: str, number: int, **more: object) -> Frame:
    key = str(uuid.UUID(int=(4 << 76) | (8 << 60) | number))
    return {"chat_id": chat_id, "content": str(number), "client_message_id": key, **more}


async def answers(phone: Phone, count: int) -> dict[int, Frame]:
    """What became of the sends, by their request ids."""
    found: dict[int, Frame] = {}

    def look() -> bool:
        found.update({int(one["request_id"]): one for one in phone.inbox if "request_id" in one})
        return len(found) >= count

    await phone.until(look)
    phone.inbox[:] = [one for one in phone.inbox if "request_id" not in one]
    return found


def refusals(answered: dict[int, Frame]) -> list[int]:
    return sorted(number for number, one in answered.items() if one["type"] == "error")


async def stored(site: WiredSite, phone: Phone, chat_id: str) -> list[int]:
    return [int(one["content"]) for one in await phone.sync(chat_id)]


async def test_limit_does_not_let_later_sends_overtake(
    tmp_path: Path, clock: type[HandClock]
) -> None:
    """45 sends, 50 ms apart, at the default limits. Before, number 39 was refused, and 40, 41 and
    43 were stored."""
    async with wired(tmp_path, **DEFAULTS) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as phone:
            for number in range(45):
                await phone.post("send_message", message(chat_id, number), str(number))
                await phone.caught_up()
                clock.now_ms += 50
            answered = await answers(phone, 45)
            refused = refusals(answered)
            assert refused, "the limit was never reached"
            first = refused[0]
            assert refused == list(range(first, 45))
            assert await stored(site, phone, chat_id) == list(range(first))
            opener = message(chat_id, first)["client_message_id"]
            for number in refused:
                payload = answered[number]["payload"]
                assert payload["code"] == "RATE_LIMITED"
                assert payload["details"]["retry_after_seconds"] >= 1
                assert payload["details"].get("after") == (None if number == first else opener)
            # Sent again in order, with pauses that the limit takes, they are all stored.
            for number in refused:
                clock.now_ms += 110
                await phone.post("send_message", message(chat_id, number), str(number))
                await phone.caught_up()
            assert refusals(await answers(phone, len(refused))) == []
            assert await stored(site, phone, chat_id) == list(range(45))


async def test_sends_behind_a_refused_one_cost_no_tokens_and_are_no_offences(
    tmp_path: Path, clock: type[HandClock]
) -> None:
    limits = {**DEFAULTS, "gateway__send_chat_burst": 2, "gateway__throttled_frames_max": 3}
    async with wired(tmp_path, **limits) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id, other = await site.direct(ann, ben), await site.group(ann, ben)
        async with site.phone(ann) as phone:
            for number in range(50):
                await phone.post("send_message", message(chat_id, number), str(number))
            assert refusals(await answers(phone, 50)) == list(range(2, 50))
            # The line of the other chat is open, and so is this one for a message that is first.
            await phone.say(other, "hello")
            clock.now_ms += 150
            first = message(chat_id, 50, is_first=True)
            assert (await phone.ask("send_message", first))["type"] == "send_message_ack"
            assert await stored(site, phone, chat_id) == [0, 1, 50]


async def test_store_that_fails_takes_later_sends_along_until_the_first_comes_again(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as phone:
            site.break_store("append_nowait")
            await phone.post("send_message", message(chat_id, 0), "0")
            assert refusals(await answers(phone, 1)) == [0]
            site.mend_store("append_nowait")
            await phone.post("send_message", message(chat_id, 1), "1")
            refused = (await answers(phone, 1))[1]["payload"]
            assert refused["code"] == "SERVICE_UNAVAILABLE"
            assert refused["details"]["after"] == message(chat_id, 0)["client_message_id"]
            # A refusal for good closes nothing; over REST there is no line.
            over_rest = {
                "content": "3",
                "client_message_id": message(chat_id, 3)["client_message_id"],
            }
            await site.done("POST", f"/chats/{chat_id}/messages", over_rest, by=ann)
            for number in (0, 1):
                await phone.post("send_message", message(chat_id, number), str(number))
            assert refusals(await answers(phone, 2)) == []
            await phone.post("send_message", message(chat_id, 4, content_type="text/html"), "4")
            await phone.post("send_message", message(chat_id, 5), "5")
            assert refusals(await answers(phone, 2)) == [4]
            assert await stored(site, phone, chat_id) == [3, 0, 1, 5]


async def test_new_connection_begins_a_new_line(tmp_path: Path) -> None:
    async with wired(tmp_path) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as phone:
            site.break_store("append_nowait")
            await phone.post("send_message", message(chat_id, 0), "0")
            await answers(phone, 1)
        site.mend_store("append_nowait")
        async with site.phone(ann) as phone:
            await phone.say(chat_id, "1")
            assert await stored(site, phone, chat_id) == [1]
