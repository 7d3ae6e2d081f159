"""Messages that change on a real server, over sockets and REST: to clients that know entries and to
those that do not, and the orders in which people meet. Slow: real servers."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chatting import (
    PASSWORD,
    PATIENCE_S,
    Account,
    Frame,
    Phone,
    Site,
    chained,
    new_key,
)

pytestmark = pytest.mark.slow

OLD_CLIENT = Path(__file__).parents[1] / "support" / "tidewire_client_0_1_0.zip"
"""The client of 0.1.0 as it was released: `python` imports it from here."""
PROCESSES = 2


@pytest.fixture(scope="module", params=[1, PROCESSES], ids=["alone", "processes"])
def site(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("entries")
    with Site(directory, server__processes=request.param) as site:
        yield site
        assert site.server.process.poll() is None
        assert site.complaints() == []


async def stored(phone: Phone, kind: str, chat_id: str, **fields: Any) -> Frame:
    """Ask for an entry; what was acknowledged."""
    payload = {"chat_id": chat_id, "client_message_id": new_key(), **fields}
    answer = await phone.ask(kind, payload)
    assert answer["type"] == "send_message_ack", answer
    acked: Frame = answer["payload"]
    return acked


async def refused(phone: Phone, kind: str, chat_id: str, **fields: Any) -> Frame:
    payload = {"chat_id": chat_id, "client_message_id": new_key(), **fields}
    answer = await phone.ask(kind, payload)
    assert answer["type"] == "error", answer
    error: Frame = answer["payload"]
    return error


async def answer(phone: Phone, request_id: str) -> Frame:
    def found() -> list[Frame]:
        return [frame for frame in phone.inbox if frame.get("request_id") == request_id]

    await phone.until(lambda: bool(found()))
    return found()[0]


async def entries(phone: Phone, chat_id: str, count: int) -> list[Frame]:
    """So many pushes of a chat, in the order of arrival."""

    def found() -> list[Frame]:
        return [
            {"type": frame["type"], **frame["payload"]}
            for frame in phone.inbox
            if frame["type"] in ("message", "entry") and frame["payload"]["chat_id"] == chat_id
        ]

    await phone.until(lambda: len(found()) >= count)
    assert len(found()) == count
    return found()


def said(items: Sequence[Frame], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(item.get(name) for name in names) for item in items]


async def tell_everything(phone: Phone, chat_id: str, other: Account) -> None:
    """Entries 1 to 6: a message, a reply with a mention, an edit, two reactions, a deletion."""
    await phone.say(chat_id, "helo")
    await stored(
        phone, "send_message", chat_id, content="you?", reply_to=1, mentions=[other.user_id]
    )
    await stored(phone, "edit_message", chat_id, target=1, content="hello", base=0)
    await stored(phone, "react", chat_id, target=2, emoji="👍")
    await stored(phone, "react", chat_id, target=2, emoji="👍", is_on=False)
    await stored(phone, "delete_message", chat_id, target=1, reason="a slip")


PUSHED = [
    ("message", None, 1, None, "helo"),
    ("message", None, 2, None, "you?"),
    ("entry", "edit", 3, 1, "hello"),
    ("entry", "react", 4, 2, None),
    ("entry", "react", 5, 2, None),
    ("entry", "delete", 6, 1, None),
]
SYNCED = [
    (None, 1, None, None, True),
    (None, 2, None, "you?", None),
    ("edit", 3, 1, None, True),
    ("react", 4, 2, None, None),
    ("react", 5, 2, None, None),
    ("delete", 6, 1, None, None),
]


@pytest.mark.parametrize("features", [("entries",), ("batch", "entries")])
async def test_every_kind_is_pushed_and_synced_to_those_who_know_entries(
    site: Site, features: tuple[str, ...]
) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    async with (
        site.phone(ann, features=features) as phone,
        site.phone(ben, features=features) as other,
    ):
        await tell_everything(phone, chat, ben)
        pushed = await entries(other, chat, 6)
        assert said(pushed, "type", "kind", "sequence", "target", "content") == PUSHED
        assert chained(pushed)
        assert (pushed[1]["reply_to"], pushed[1]["mentions"]) == (1, [ben.user_id])
        assert said(pushed[3:5], "emoji", "is_on", "count") == [("👍", True, 1), ("👍", False, 0)]
        assert pushed[5]["reason"] == "a slip"
        synced = await other.sync(chat)
        assert said(synced, "kind", "sequence", "target", "content", "is_deleted") == SYNCED
        assert chained(synced)
        [digest] = (await other.ask("digest_request", {}))["payload"]["chats"]
        assert (digest["head"], digest["unread"], digest["mentions_unread"]) == (6, 1, 1)
        # Ticks know no kinds.
        await other.ack(chat, 6)
        await phone.numbers(chat, others_delivered=6)


@pytest.mark.parametrize("features", [(), ("batch",)])
async def test_old_client_gets_a_whole_chain_of_messages(
    site: Site, features: tuple[str, ...]
) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    async with (
        site.phone(ann, features=["entries"]) as phone,
        site.phone(ben, features=features) as old,
    ):
        await tell_everything(phone, chat, ben)
        pushed = await entries(old, chat, 6)
        kinds = [None, None, "edit", "react", "react", "delete"]
        texts = ["helo", "you?", "", "", "", ""]
        assert said(pushed, "type", "kind", "content") == [
            ("message", kind, text) for kind, text in zip(kinds, texts, strict=True)
        ]
        assert chained(pushed)
        synced = await old.sync(chat)
        assert said(synced, "kind", "content") == list(
            zip(kinds, ["", "you?", "", "", "", ""], strict=True)
        )
        assert chained(synced)
        for item in (*pushed, *synced):
            assert not item.keys() & {"target", "emoji", "is_on", "count", "reason"}
        await old.ack(chat, 6)
        await phone.numbers(chat, others_delivered=6)
        # It may write whatever it knows.
        await old.say(chat, "what was that?")
        assert (await phone.get("message", sequence=7))["payload"]["content"] == "what was that?"


async def test_array_of_entries_is_answered_and_pushed_in_order(site: Site) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    features = ["batch", "entries"]
    async with site.phone(ann, features=features) as phone, site.phone(ben, features=features) as b:
        await phone.say(chat, "one")
        acts: list[tuple[str, Frame]] = [
            ("edit_message", {"target": 1, "content": "two"}),
            ("react", {"target": 1, "emoji": "👍"}),
            ("react", {"target": 7, "emoji": "👍"}),
            ("send_message", {"content": "more"}),
            ("delete_message", {"target": 1}),
        ]
        frames = [
            {
                "type": kind,
                "request_id": f"r{number}",
                "payload": {"chat_id": chat, "client_message_id": new_key(), **payload},
            }
            for number, (kind, payload) in enumerate(acts)
        ]
        await phone.connection.send(json.dumps(frames))
        answers = [await answer(phone, f"r{number}") for number in range(len(acts))]
        assert [one["payload"].get("sequence") for one in answers] == [2, 3, None, 4, 5]
        assert answers[2]["payload"]["code"] == "TARGET_NOT_FOUND"
        pushed = await entries(b, chat, 5)
        assert [item.get("kind") for item in pushed] == [None, "edit", "react", None, "delete"]
        assert chained(pushed)


async def test_entries_over_rest_reach_sockets_and_pages_say_what_became_of_messages(
    site: Site,
) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    path = f"/chats/{chat}/messages"
    async with site.phone(ben, features=["entries"]) as phone:
        first = await phone.say(chat, "one")
        await site.done(
            "POST",
            f"{path}/1/reactions",
            {"client_message_id": new_key(), "emoji": "🎉"},
            by=ann,
        )
        edit = {"client_message_id": new_key(), "content": "two", "base": 0}
        await site.done("POST", f"{path}/{first['message_id']}/edits", edit, by=ben)
        pushed = await entries(phone, chat, 2)
        assert said(pushed, "kind", "count", "content") == [
            ("react", 1, None),
            ("edit", None, "two"),
        ], "what its own user did elsewhere, too"
        page = (await site.call("GET", f"/api/v1{path}", by=ann)).json()
        assert page["as_of"] == 3
        now = page["data"][-1]["now"]
        assert (now["content"], now["edited_sequence"]) == ("two", 3)
        assert [(one["emoji"], one["count"], one["is_own"]) for one in now["reactions"]] == [
            ("🎉", 1, True)
        ]
        await site.done("POST", f"{path}/1/deletion", {"client_message_id": new_key()}, by=ben)
        [listed] = await site.done("GET", "/chats", by=ann)
        assert listed["last_message"]["is_deleted"] is True
        for address in (path, f"{path}/1", f"{path}/around/1", "/chats"):
            answer = await site.call("GET", f"/api/v1{address}", by=ann)
            assert '"one"' not in answer.text
            assert '"two"' not in answer.text


async def test_reading_on_the_phone_clears_mentions_on_the_laptop(site: Site) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    laptop_of_ben = await site.login(ben)
    async with (
        site.phone(ann) as phone,
        site.phone(ben) as other,
        site.phone(laptop_of_ben) as laptop,
    ):
        await stored(phone, "send_message", chat, content="you", mentions=[ben.user_id])
        await entries(other, chat, 1)
        await other.read(chat, 1)
        status = await laptop.get("status_update", own_read=1)
        assert (status["payload"]["unread"], status["payload"]["mentions_unread"]) == (0, 0)


# Orders in which people meet.


async def test_delete_while_somebody_syncs(site: Site) -> None:
    """A reader is in the middle of its pages: what comes after the deletion's ack has no text, and
    the deletion is in the chain."""
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    async with (
        site.phone(ann, features=["entries"]) as phone,
        site.phone(ben, features=["entries"]) as other,
    ):
        for number in range(1, 21):
            await phone.say(chat, f"secret {number}")
        cursor, got = 0, list[Frame]()
        for _ in range(2):
            wish = {"chat_id": chat, "last_acked_sequence": cursor, "limit": 5}
            page = (await other.ask("sync_request", wish))["payload"]
            got += page["messages"]
            cursor = page["synced_through"]
        for target in (3, 15):
            await stored(phone, "delete_message", chat, target=target)
        got += await other.sync(chat, cursor, limit=5)
        assert chained(got)
        assert got[2]["content"] == "secret 3", "read before"
        assert (got[14].get("content"), got[14]["is_deleted"]) == (None, True)
        assert said(got[20:], "kind", "target") == [("delete", 3), ("delete", 15)]


async def test_edit_by_one_removed_meanwhile(site: Site) -> None:
    ann, ben, cleo = await site.people("ann", "ben", "cleo")
    chat = await site.group(ann, ben, cleo)
    async with (
        site.phone(ben, features=["entries"]) as phone,
        site.phone(cleo, features=["entries"]) as other,
    ):
        await phone.say(chat, "mine")
        key = new_key()
        edit = {"target": 1, "content": "still mine", "client_message_id": key}
        first = await stored(phone, "edit_message", chat, **edit)
        await site.done("DELETE", f"/chats/{chat}/members/{ben.user_id}", by=ann)
        for kind, fields in (
            ("edit_message", {"target": 1, "content": "again"}),
            ("delete_message", {"target": 1}),
            ("react", {"target": 1, "emoji": "👍"}),
        ):
            assert (await refused(phone, kind, chat, **fields))["code"] == "NOT_A_MEMBER"
        again = await stored(phone, "edit_message", chat, **edit)
        assert again == {**first, "deduplicated": True}, "what was stored before is answered"
        assert said(await other.sync(chat), "kind", "content") == [
            (None, "mine"),
            ("edit", "still mine"),
        ]


async def test_retry_of_an_edit_after_deletion(site: Site) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    async with (
        site.phone(ann, features=["entries"]) as phone,
        site.phone(ben, features=["entries"]) as other,
    ):
        await phone.say(chat, "one")
        edit = {"target": 1, "content": "two", "client_message_id": new_key()}
        first = await stored(phone, "edit_message", chat, **edit)
        await stored(phone, "delete_message", chat, target=1)
        again = await stored(phone, "edit_message", chat, **edit)
        assert again == {**first, "deduplicated": True}
        error = await refused(phone, "edit_message", chat, target=1, content="three")
        assert (error["code"], error["details"]) == ("MESSAGE_DELETED", {"deleted_sequence": 3})
        synced = await other.sync(chat)
        assert len(synced) == 3
        assert not any(item.get("content") for item in synced)


async def test_two_edits_from_two_devices(site: Site) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    second = await site.login(ann)
    async with (
        site.phone(ann, features=["entries"]) as phone,
        site.phone(second, features=["entries"]) as laptop,
    ):
        await phone.say(chat, "one")
        await stored(phone, "edit_message", chat, target=1, content="two", base=0)
        error = await refused(laptop, "edit_message", chat, target=1, content="2", base=0)
        assert error["code"] == "EDIT_CONFLICT"
        assert error["details"] == {"content": "two", "edited_sequence": 2}
        await stored(laptop, "edit_message", chat, target=1, content="2", base=2)
        entry = await phone.get("entry", kind="edit")
        assert (entry["payload"]["sequence"], entry["payload"]["content"]) == (3, "2")


async def test_mention_of_one_who_just_left(site: Site) -> None:
    ann, ben, cleo = await site.people("ann", "ben", "cleo")
    chat = await site.group(ann, ben, cleo)
    await site.done("POST", f"/chats/{chat}/leave", by=cleo)
    async with site.phone(ann) as phone:
        key = new_key()
        both = {"content": "you two", "mentions": [ben.user_id, cleo.user_id]}
        error = await refused(phone, "send_message", chat, client_message_id=key, **both)
        assert (error["code"], error["details"]) == (
            "INVALID_MENTION",
            {"user_ids": [cleo.user_id]},
        )
        without = {"content": "you two", "mentions": [ben.user_id], "client_message_id": key}
        await stored(phone, "send_message", chat, **without)


async def test_reply_to_a_tombstone(site: Site) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    async with site.phone(ann, features=["entries"]) as phone:
        await phone.say(chat, "one")
        await stored(phone, "delete_message", chat, target=1)
        await stored(phone, "send_message", chat, content="that was rude", reply_to=1)
        error = await refused(phone, "send_message", chat, content="?", reply_to=2)
        assert error["code"] == "TARGET_NOT_FOUND", "a deletion is no message"


async def test_react_unreact_react(site: Site) -> None:
    ann, ben, cleo = await site.people("ann", "ben", "cleo")
    chat = await site.group(ann, ben, cleo)
    async with AsyncExitStack() as stack:
        phones = [
            await stack.enter_async_context(site.phone(one, features=["entries"]))
            for one in (ann, ben, cleo)
        ]
        await phones[0].say(chat, "lunch?")
        turns = (*phones, *phones, phones[0])
        are_on = (True, True, False, False, True, True, True)
        for phone, is_on in zip(turns, are_on, strict=True):
            await stored(phone, "react", chat, target=1, emoji="👍", is_on=is_on)
        synced = await phones[0].sync(chat)
        assert [item["count"] for item in synced[1:]] == [1, 2, 2, 1, 1, 2, 3]


async def test_deletion_by_an_admin_is_in_the_audit_trail(site: Site) -> None:
    ann, ben = await site.people("ann", "ben")
    chat = await site.group(ann, ben)
    async with site.phone(ben) as phone, site.phone(ann) as admin:
        await phone.say(chat, "rude")
        await phone.say(chat, "sorry")
        await stored(admin, "delete_message", chat, target=1)
        await stored(phone, "delete_message", chat, target=2)

    def lines() -> list[str]:
        file = site.data_dir / "audit.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [line for line in text.splitlines() if chat in line and "message.deleted" in line]

    for _ in range(int(PATIENCE_S / 0.05)):
        if lines():
            break
        await asyncio.sleep(0.05)
    [line] = lines()
    record = json.loads(line)
    assert (record["actor"], record["target"]) == (ann.user_id, ben.user_id)
    assert (record["sequence"], record["address"]) == (1, "127.0.0.1")
    assert "rude" not in line


# A client of 0.1.0, as it was released.

SCRIPT = """
import asyncio, json, sys
import tidewire
from tidewire.client import Client

assert tidewire.__version__ == "0.1.0", tidewire.__file__
url, username, password, store, chat_id, head, text = sys.argv[1:]

async def main():
    opened = await Client.login(url, username, password, store=store)
    async with opened as me:
        chat = me.chat(chat_id)
        while chat.last_sequence < int(head):
            await asyncio.sleep(0.02)
        sent = await chat.send(text)
        await sent.stored()
        await sent.delivered()
        held = await chat.messages(limit=100)
        listed = [one.chat_id for one in await me.chats()]
        asked = await chat.history(around=4, limit=50)
        print(json.dumps({
            "held": [[one.sequence, one.text] for one in held],
            "asked": [one.sequence for one in asked],
            "is_listed": chat_id in listed,
        }))

asyncio.run(main())
"""


async def test_old_client_among_new_ones(site: Site, tmp_path: Path) -> None:
    """The SDK of 0.1.0 gets what others do live and by sync, acknowledges it, and writes."""
    ann, ben = await site.people("ann", "ben")
    chat = await site.direct(ann, ben)
    async with site.phone(ann, features=["entries"]) as phone:
        await tell_everything(phone, chat, ben)
        await phone.ack(chat, 6)
        old = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "ignore",
            "-c",
            SCRIPT,
            site.url,
            ben.username,
            PASSWORD,
            str(tmp_path / "ben.db"),
            chat,
            "6",
            "hello from 0.1.0",
            env={**os.environ, "PYTHONPATH": str(OLD_CLIENT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                message = await phone.get("message", content="hello from 0.1.0")
                assert message["payload"]["sequence"] == 7
                await phone.numbers(chat, others_delivered=6)
                # Live, while it is connected.
                await stored(phone, "react", chat, target=2, emoji="🎉")
                await stored(phone, "edit_message", chat, target=2, content="and you?")
                await phone.numbers(chat, others_delivered=9)
                await phone.ack(chat, 9)
                out, err = await old.communicate()
        finally:
            if old.returncode is None:
                old.kill()
                await old.wait()
        assert old.returncode == 0, err.decode()
        result = json.loads(out.decode().splitlines()[-1])
        texts = ["", "you?", "", "", "", "", "hello from 0.1.0", "", ""]
        assert result["held"] == [[number, text] for number, text in enumerate(texts, 1)]
        assert sorted(result["asked"]) == list(range(1, 10))
        assert result["is_listed"] is True
