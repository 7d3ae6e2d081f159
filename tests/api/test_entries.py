"""Messages that change, over REST: edits, deletions, reactions, replies, mentions, and what pages
of history say of it all."""

import uuid
from typing import Any

import httpx
import msgspec
import pytest

from tests.api.stage import Person, Stage, build_stage, code_of
from tests.unit.accounts.parts import KeptTrail
from tidewire.chats.options import ChatOptions
from tidewire.domain.fold import MessageNow, fold
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.limits import (
    EMOJI_BYTES_MAX,
    REACTION_KINDS_MAX,
    REACTION_USERS_MAX,
)
from tidewire.domain.messages import Amendment, Appended, EntryKind, Message, MessageBody
from tidewire.edge.rest import writing
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService

Group = tuple[Person, Person, ChatId]


@pytest.fixture
async def group(stage: Stage) -> Group:
    anna, berta = await stage.people("anna", "berta")
    return anna, berta, await stage.group(anna, berta)


async def done(
    person: Person, chat_id: str, message: str | int, act: str, /, **body: Any
) -> httpx.Response:
    """Add an entry about a message: `edits`, `deletion` or `reactions`."""
    whole = {"client_message_id": str(uuid.uuid4()), **body}
    return await person.post(f"/chats/{chat_id}/messages/{message}/{act}", whole)


async def stored(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


async def history(person: Person, chat_id: str, **query: Any) -> dict[str, Any]:
    answer = await person.get(f"/chats/{chat_id}/messages", direction="forward", **query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


async def test_every_kind_is_an_entry_and_the_message_says_what_became_of_it(
    group: Group,
) -> None:
    anna, berta, chat_id = group
    first = await anna.send(chat_id, "helo")
    edit = await stored(await done(anna, chat_id, 1, "edits", content="hello", base=0))
    react = await stored(await done(berta, chat_id, first["message_id"], "reactions", emoji="👍"))
    assert [entry["sequence"] for entry in (edit, react)] == [2, 3]
    assert (edit["prev_sequence"], react["prev_sequence"]) == (1, 2)
    page = await history(berta, chat_id)
    assert page["as_of"] == 3
    message, edited, reacted = page["data"]
    assert "kind" not in message
    assert message["content"] == "helo", "an entry is what was said"
    assert message["now"] == {
        "content": "hello",
        "edited_sequence": 2,
        "reactions": [
            {
                "emoji": "👍",
                "count": 1,
                "sequence": 3,
                "is_own": True,
                "own_sequence": 3,
                "users": [berta.user_id],
            }
        ],
    }
    assert (edited["kind"], edited["target"], edited["content"]) == ("edit", 1, "hello")
    assert "now" not in edited
    said = ("kind", "target", "emoji", "is_on", "count")
    assert [reacted[name] for name in said] == ["react", 1, "👍", True, 1]
    assert reacted["content"] == ""
    own = (await history(anna, chat_id))["data"][0]["now"]["reactions"][0]
    assert (own["count"], own.get("is_own", False)) == (1, False)


async def test_deleted_message_has_no_text_anywhere(stage: Stage, group: Group) -> None:
    anna, berta, chat_id = group
    first = await anna.send(chat_id, "secret one")
    await stored(await done(anna, chat_id, 1, "edits", content="secret two"))
    await stored(await done(berta, chat_id, 1, "reactions", emoji="👍"))
    await stored(await done(anna, chat_id, 1, "deletion", reason="a slip"))
    path = f"/chats/{chat_id}/messages"
    for address in (path, f"{path}/around/1", f"{path}/1", f"{path}/{first['message_id']}"):
        answer = await berta.get(address)
        assert answer.status_code == 200
        assert "secret" not in answer.text
    message, edit, react, deletion = (await history(berta, chat_id))["data"]
    assert (message["is_deleted"], message["content"]) == (True, "")
    assert message["now"] == {"deleted_sequence": 4}
    assert (edit["is_deleted"], edit["content"]) == (True, "")
    assert (react["kind"], "is_deleted" in react) == ("react", False)
    assert (deletion["kind"], deletion["target"], deletion["reason"]) == ("delete", 1, "a slip")
    (entry,) = (await berta.get("/chats")).json()["data"]
    last = entry["last_message"]
    assert (last["is_deleted"], last["content_preview"]) == (True, "")
    assert "secret" not in (await berta.get("/chats")).text


async def test_list_of_chats_shows_the_last_message_as_it_is(group: Group) -> None:
    anna, berta, chat_id = group
    await anna.send(chat_id, "helo")
    await stored(await done(anna, chat_id, 1, "edits", content="hello"))
    await stored(await done(berta, chat_id, 1, "reactions", emoji="👍"))
    (entry,) = (await berta.get("/chats")).json()["data"]
    last = entry["last_message"]
    assert (last["sequence"], last["content_preview"]) == (1, "hello")
    assert (entry["current_sequence"], entry["unread_count"]) == (3, 1)
    assert "is_deleted" not in last


@pytest.mark.parametrize(
    ("act", "body", "other"),
    [
        ("edits", {"content": "hello"}, {"content": "bye"}),
        ("deletion", {"reason": "a slip"}, {"reason": "spam"}),
        ("reactions", {"emoji": "👍"}, {"emoji": "👎"}),
    ],
)
async def test_entry_is_stored_once_however_often_it_is_sent(
    group: Group, act: str, body: dict[str, Any], other: dict[str, Any]
) -> None:
    anna, _, chat_id = group
    await anna.send(chat_id, "helo")
    key = str(uuid.uuid4())
    first = await done(anna, chat_id, 1, act, client_message_id=key, **body)
    again = await done(anna, chat_id, 1, act, client_message_id=key, **body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["x-idempotent-replay"] == "true"
    assert again.json()["data"] == {**first.json()["data"], "deduplicated": True}
    reused = await done(anna, chat_id, 1, act, client_message_id=key, **other)
    assert (reused.status_code, code_of(reused)) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_edit_that_met_another_is_told_the_text(group: Group) -> None:
    anna, _, chat_id = group
    await anna.send(chat_id, "one")
    await stored(await done(anna, chat_id, 1, "edits", content="two", base=0))
    late = await done(anna, chat_id, 1, "edits", content="three", base=0)
    assert (late.status_code, code_of(late)) == (409, "EDIT_CONFLICT")
    assert late.json()["error"]["details"] == {"content": "two", "edited_sequence": 2}
    await stored(await done(anna, chat_id, 1, "edits", content="three", base=2))


async def test_what_may_not_be_done_is_refused_with_its_code(group: Group) -> None:
    anna, berta, chat_id = group
    await anna.send(chat_id, "one")
    await stored(await done(anna, chat_id, 1, "edits", content="two"))

    async def refused(person: Person, message: str | int, act: str, **body: Any) -> tuple[int, str]:
        answer = await done(person, chat_id, message, act, **body)
        return answer.status_code, code_of(answer)

    assert await refused(berta, 1, "edits", content="x") == (403, "FORBIDDEN")
    assert await refused(berta, 1, "deletion") == (403, "FORBIDDEN")
    assert await refused(anna, 9, "deletion") == (404, "TARGET_NOT_FOUND")
    assert await refused(anna, 2, "reactions", emoji="x") == (404, "TARGET_NOT_FOUND")
    assert await refused(anna, "msg_nothing", "edits", content="x") == (404, "NOT_FOUND")
    assert await refused(anna, 1 << 60, "edits", content="x") == (404, "NOT_FOUND")
    assert await refused(anna, "9" * 5000, "edits", content="x") == (404, "NOT_FOUND")
    assert await refused(anna, 0, "edits", content="x") == (404, "NOT_FOUND")
    assert await refused(anna, 1, "edits", content="") == (400, "INVALID_MESSAGE")
    assert await refused(anna, 1, "edits", content="x" * 4097) == (413, "MESSAGE_TOO_LARGE")
    assert await refused(anna, 1, "edits", content=5) == (400, "VALIDATION_ERROR")
    assert await refused(anna, 1, "deletion", reason="") == (400, "VALIDATION_ERROR")
    assert await refused(anna, 1, "deletion", reason="\x00") == (400, "INVALID_CONTENT")
    assert await refused(anna, 1, "reactions") == (400, "VALIDATION_ERROR")
    assert await refused(anna, 1, "reactions", emoji="a b") == (400, "INVALID_MESSAGE")
    assert await refused(anna, 1, "reactions", emoji="👍" * 9) == (400, "INVALID_MESSAGE")
    await stored(await done(anna, chat_id, 1, "deletion"))
    for act, body in (
        ("deletion", {}),
        ("edits", {"content": "x"}),
        ("reactions", {"emoji": "x"}),
    ):
        answer = await done(anna, chat_id, 1, act, **body)
        assert (answer.status_code, code_of(answer)) == (409, "MESSAGE_DELETED")
        assert answer.json()["error"]["details"] == {"deleted_sequence": 3}


async def test_reply_and_mentions_are_part_of_the_message(stage: Stage, group: Group) -> None:
    anna, berta, chat_id = group
    carl = await stage.person("carl")
    await anna.send(chat_id, "lunch?")
    body = {
        "client_message_id": str(uuid.uuid4()),
        "content": "yes",
        "reply_to": 1,
        "mentions": [anna.user_id],
    }
    assert (await berta.post(f"/chats/{chat_id}/messages", body)).status_code == 201
    reply = (await history(anna, chat_id))["data"][1]
    assert (reply["reply_to"], reply["mentions"]) == (1, [anna.user_id])
    (state,) = (await anna.get("/delivery-state")).json()["data"]
    assert (state["unread_count"], state["mentions_unread_count"]) == (1, 1)

    async def refused(**changes: Any) -> tuple[int, str, Any]:
        wrong = {**body, "client_message_id": str(uuid.uuid4()), **changes}
        answer = await berta.post(f"/chats/{chat_id}/messages", wrong)
        return answer.status_code, code_of(answer), answer.json()["error"].get("details")

    assert await refused(reply_to=9) == (404, "TARGET_NOT_FOUND", None)
    assert (await refused(reply_to=0))[:2] == (400, "VALIDATION_ERROR")
    assert await refused(mentions=[carl.user_id, anna.user_id]) == (
        422,
        "INVALID_MENTION",
        {"user_ids": [carl.user_id]},
    )
    assert (await refused(mentions=["@all"]))[:2] == (403, "FORBIDDEN")
    assert (await refused(mentions=[f"user_{one}" for one in range(51)]))[:2] == (
        400,
        "VALIDATION_ERROR",
    )
    assert (await refused(mentions=["a b"]))[:2] == (400, "INVALID_MESSAGE")
    everybody = {"client_message_id": str(uuid.uuid4()), "content": "all", "mentions": ["@all"]}
    assert (await anna.post(f"/chats/{chat_id}/messages", everybody)).status_code == 201


async def test_old_message_cannot_be_edited_where_a_window_is_set() -> None:
    stage = build_stage(chats=ChatOptions(edit_window_ms=60_000))
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    await anna.send(chat_id, "one")
    stage.clock.pass_ms(60_000)
    key = str(uuid.uuid4())
    body = {"client_message_id": key, "content": "two"}
    await stored(await done(anna, chat_id, 1, "edits", **body))
    stage.clock.pass_ms(1)
    late = await done(anna, chat_id, 1, "edits", content="three")
    assert (late.status_code, code_of(late)) == (403, "EDIT_TOO_LATE")
    assert (await done(anna, chat_id, 1, "edits", **body)).status_code == 200, "a retry is not"
    await stored(await done(anna, chat_id, 1, "deletion"))
    await stage.close()


async def test_reactions_are_limited_besides_all_sends(stage: Stage, group: Group) -> None:
    anna, _, chat_id = group
    await anna.send(chat_id, "one")
    stage.clock.pass_ms(60_000)
    sends, now_ms = stage.services.sends, stage.clock.monotonic
    while not sends.take_reaction(anna.user_id, ChatId("chat_other"), now_ms):
        pass
    refused = await done(anna, chat_id, 1, "reactions", emoji="👍")
    assert (refused.status_code, code_of(refused)) == (429, "RATE_LIMITED")
    await stored(await done(anna, chat_id, 1, "edits", content="two"))


async def test_deletion_by_an_admin_is_noted(stage: Stage) -> None:
    trail, services = KeptTrail(), stage.services
    stage.serve(
        ingest=IngestService(
            store=stage.store,
            clock=stage.clock,
            ids=services.ids,
            tasks=services.tasks,
            options=IngestOptions(),
            trail=trail,
        )
    )
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    await berta.send(chat_id, "rude")
    await berta.send(chat_id, "sorry")
    key = str(uuid.uuid4())
    for _ in range(2):
        await done(anna, chat_id, 1, "deletion", client_message_id=key)
    await stored(await done(berta, chat_id, 2, "deletion"))
    assert trail.take() == [
        (
            "message.deleted",
            {
                "actor": anna.user_id,
                "target": berta.user_id,
                "chat_id": chat_id,
                "sequence": 1,
            },
        )
    ]


# Pages.


async def test_view_of_a_page_and_the_entries_after_it_give_the_fresh_view(group: Group) -> None:
    """At every split point: what `now` says, with the later entries folded in, is what a page says
    at the end."""
    anna, berta, chat_id = group
    await anna.send(chat_id, "one")
    acts: list[tuple[Person, str, dict[str, Any]]] = [
        (berta, "reactions", {"emoji": "👍"}),
        (anna, "edits", {"content": "two"}),
        (anna, "reactions", {"emoji": "👍"}),
        (berta, "reactions", {"emoji": "👍", "is_on": False}),
        (berta, "reactions", {"emoji": "🎉"}),
        (anna, "edits", {"content": "three"}),
    ]
    seen: list[dict[str, Any]] = []
    for person, act, body in acts:
        seen.append((await history(berta, chat_id))["data"][0].get("now", {}))
        await stored(await done(person, chat_id, 1, act, **body))
    fresh = now_of((await history(berta, chat_id))["data"][0]["now"])
    entries = await entries_of(berta, chat_id)
    for stale in seen:
        view = now_of(stale)
        for entry in entries:
            view = fold(view, entry, berta.user_id)
        assert shown(view) == shown(fresh)


def now_of(said: dict[str, Any]) -> MessageNow:
    return msgspec.convert(said, MessageNow)


def shown(now: MessageNow) -> tuple[Any, ...]:
    reactions = [(one.emoji, one.count, one.is_own) for one in now.shown_reactions]
    return now.content, now.edited_sequence, now.deleted_sequence, reactions


async def entries_of(reader: Person, chat_id: ChatId) -> list[Message]:
    """All that is no message."""
    page = await reader.get(f"/chats/{chat_id}/messages", direction="forward")
    return [entry_of(item) for item in page.json()["data"] if "kind" in item]


def entry_of(item: dict[str, Any]) -> Message:
    amends = Amendment(
        kind=EntryKind(item["kind"]),
        target=item["target"],
        emoji=item.get("emoji"),
        is_on=item.get("is_on", True),
    )
    return Message(
        item["chat_id"],
        item["sequence"],
        item["prev_sequence"],
        item["message_id"],
        item["sender_id"],
        item["client_message_id"],
        item.get("content", ""),
        item["content_type"],
        0,
        amends=amends,
        count=item.get("count", 0),
    )


async def test_message_is_found_by_its_sequence_or_its_id(group: Group) -> None:
    anna, _, chat_id = group
    first = await anna.send(chat_id, "one")
    edit = await stored(await done(anna, chat_id, 1, "edits", content="two"))
    path = f"/chats/{chat_id}/messages"
    by_id = (await anna.get(f"{path}/{first['message_id']}")).json()
    assert by_id == (await anna.get(f"{path}/1")).json()
    assert by_id["data"]["now"] == {"content": "two", "edited_sequence": 2}
    assert (await anna.get(f"{path}/{edit['message_id']}")).json()["data"]["kind"] == "edit"
    for nothing in (3, 0, "9" * 16, "9" * 5000, "-1", "\uff11"):
        answer = await anna.get(f"{path}/{nothing}")
        assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND"), nothing


@pytest.mark.slow
async def test_page_of_changed_messages_is_bounded_in_bytes_and_nothing_is_missing(
    stage: Stage,
) -> None:
    """As large as they can be: texts and edits of control characters, twenty reactions each."""
    people = await stage.people(*(f"person{number}" for number in range(REACTION_USERS_MAX)))
    owner = people[0]
    chat_id = await stage.group(owner, *people[1:])
    kinds = ["\\" * (EMOJI_BYTES_MAX - 1) + chr(65 + kind) for kind in range(REACTION_KINDS_MAX)]
    count = 30
    targets = [
        (await send_directly(stage, owner, chat_id, "\x01" * 4096)).sequence for _ in range(count)
    ]
    for target in targets:
        await send_directly(stage, owner, chat_id, "\x02" * 4096, target=target)
    for target in targets[:3]:
        for person in people:
            for emoji in kinds:
                await send_directly(stage, person, chat_id, "", target=target, emoji=emoji)
    found: list[int] = []
    query: dict[str, Any] = {"limit": 100, "direction": "forward"}
    pages = 0
    while True:
        answer = await owner.get(f"/chats/{chat_id}/messages", **query)
        assert len(answer.content) <= 1_000_000
        page = answer.json()
        found += [item["sequence"] for item in page["data"]]
        pages += 1
        if found[-1] >= 2 * count or not page["pagination"]["has_more"]:
            break
        query = {"cursor": page["pagination"]["next_cursor"], "limit": 100}
    assert found == list(range(1, found[-1] + 1))
    assert pages > 1
    back = (await owner.get(f"/chats/{chat_id}/messages", before_sequence=count)).json()
    assert back["data"][0]["sequence"] == count - 1
    around = await owner.get(f"/chats/{chat_id}/messages/around/{count // 2}", context=50)
    assert len(around.content) <= 1_000_000
    shown_there = [item["sequence"] for item in around.json()["data"]["messages"]]
    assert count // 2 in shown_there
    assert shown_there == list(range(shown_there[0], shown_there[-1] + 1))
    assert around.json()["data"]["has_more_before"] is (shown_there[0] > 1)


async def send_directly(
    stage: Stage,
    person: Person,
    chat_id: ChatId,
    content: str,
    *,
    target: int | None = None,
    emoji: str | None = None,
) -> Appended:
    """Past the limits."""
    kind = EntryKind.EDIT if emoji is None else EntryKind.REACT
    return await stage.services.ingest.send(
        MessageBody(content=content),
        chat_id=chat_id,
        sender_id=person.user_id,
        client_message_id=ClientMessageId(str(uuid.uuid4())),
        amends=None if target is None else Amendment(kind=kind, target=target, emoji=emoji),
    )


@pytest.mark.parametrize(
    ("text", "sequence"),
    [
        ("1", 1),
        ("007", 7),
        (str((1 << 53) - 1), (1 << 53) - 1),
        (str(1 << 53), None),
        ("0", None),
        ("", None),
        ("-1", None),
        ("1.0", None),
        ("\uff11", None),
        ("msg_1", None),
        ("9" * 10_000, None),
    ],
)
def test_name_that_is_a_number_is_a_sequence(text: str, sequence: int | None) -> None:
    assert writing.sequence_named(text) == sequence
