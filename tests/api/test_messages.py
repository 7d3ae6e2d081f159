"""Messages over REST: sending, and every way of reading history."""

import uuid
from typing import Any

import pytest

from tests.api.stage import Person, Stage, code_of, fields_of
from tidewire.domain.ids import ChatId

KEY = "0d9f6c52-3b77-4d0f-8f0a-6a1c8e25b9d3"


@pytest.fixture
async def chat(stage: Stage) -> tuple[Person, Person, ChatId]:
    anna, berta = await stage.people("anna", "berta")
    return anna, berta, await stage.group(anna, berta)


async def fill(stage: Stage, person: Person, chat_id: str, count: int) -> None:
    for number in range(count):
        stage.clock.pass_ms(1000)
        await person.send(chat_id, f"message {number + 1}")


async def walk(person: Person, chat_id: str, **query: Any) -> list[int]:
    """The sequences of all pages, one after the other."""
    seen: list[int] = []
    while True:
        page = (await person.get(f"/chats/{chat_id}/messages", **query)).json()
        seen += [message["sequence"] for message in page["data"]]
        cursor = page["pagination"]["next_cursor"]
        assert page["pagination"]["has_more"] is (cursor is not None)
        if cursor is None:
            return seen
        query = {"cursor": cursor, "limit": query.get("limit", 50)}


async def test_message_is_stored_once_however_often_it_is_sent(
    chat: tuple[Person, Person, ChatId],
) -> None:
    anna, berta, chat_id = chat
    body = {"client_message_id": KEY, "content": "hello", "seen_sequence": 0}
    first = await anna.post(f"/chats/{chat_id}/messages", body)
    assert first.status_code == 201
    assert first.json()["data"]["deduplicated"] is False
    again = await anna.post(f"/chats/{chat_id}/messages", body)
    assert again.status_code == 200
    assert again.headers["x-idempotent-replay"] == "true"
    assert again.json()["data"] == {**first.json()["data"], "deduplicated": True}
    other = await anna.post(f"/chats/{chat_id}/messages", {**body, "content": "bye"})
    assert (other.status_code, code_of(other)) == (409, "IDEMPOTENCY_KEY_REUSED")
    details = other.json()["error"]["details"]
    assert details["message_id"] == first.json()["data"]["message_id"]
    assert details["created_at"] == first.json()["data"]["created_at"]
    foreign = await berta.post(f"/chats/{chat_id}/messages", body)
    assert code_of(foreign) == "IDEMPOTENCY_KEY_REUSED"
    assert "details" not in foreign.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"content": ""}, 400, "INVALID_MESSAGE"),
        ({"content": "a\x00b"}, 400, "INVALID_CONTENT"),
        ({"content": "x" * 4097}, 413, "MESSAGE_TOO_LARGE"),
        ({"content_type": "text/html"}, 415, "INVALID_CONTENT_TYPE"),
        ({"client_message_id": "1"}, 400, "INVALID_MESSAGE"),
        ({"content": 5}, 400, "VALIDATION_ERROR"),
        ({"seen_sequence": -1}, 400, "VALIDATION_ERROR"),
    ],
)
async def test_message_that_breaks_a_rule_is_refused(
    chat: tuple[Person, Person, ChatId], body: dict[str, object], status: int, code: str
) -> None:
    anna, _, chat_id = chat
    whole = {"client_message_id": str(uuid.uuid4()), "content": "x" * 4096, **body}
    answer = await anna.post(f"/chats/{chat_id}/messages", whole)
    assert (answer.status_code, code_of(answer)) == (status, code)


async def test_sending_shares_the_limit_of_every_edge(
    stage: Stage, chat: tuple[Person, Person, ChatId]
) -> None:
    anna, _, chat_id = chat
    while not stage.services.sends.take(anna.user_id, chat_id, stage.clock.monotonic):
        pass
    body = {"client_message_id": KEY, "content": "one too many"}
    refused = await anna.post(f"/chats/{chat_id}/messages", body)
    assert (refused.status_code, code_of(refused)) == (429, "RATE_LIMITED")
    assert refused.headers["retry-after"] == "1"
    stage.clock.pass_ms(1000)
    assert (await anna.post(f"/chats/{chat_id}/messages", body)).status_code == 201


async def test_history_agrees_with_what_was_acknowledged(
    chat: tuple[Person, Person, ChatId],
) -> None:
    anna, berta, chat_id = chat
    stored = await anna.send(chat_id, "größer 🦊")
    (message,) = (await berta.get(f"/chats/{chat_id}/messages")).json()["data"]
    for field in ("message_id", "chat_id", "sequence", "prev_sequence", "created_at"):
        assert message[field] == stored[field]
    assert message["content"] == "größer 🦊"
    assert message["sender"] == {"user_id": anna.user_id, "display_name": "Anna"}
    single = await berta.get(f"/chats/{chat_id}/messages/{stored['message_id']}")
    assert single.json() == {"data": message}
    missing = await berta.get(f"/chats/{chat_id}/messages/msg_nothing")
    assert (missing.status_code, code_of(missing)) == (404, "NOT_FOUND")


async def test_history_pages_have_no_repeats_and_no_holes(
    stage: Stage, chat: tuple[Person, Person, ChatId]
) -> None:
    anna, _, chat_id = chat
    await fill(stage, anna, chat_id, 7)
    assert await walk(anna, chat_id, limit=3) == [7, 6, 5, 4, 3, 2, 1]
    assert await walk(anna, chat_id, limit=3, direction="forward") == [1, 2, 3, 4, 5, 6, 7]
    assert await walk(anna, chat_id, limit=2, after_sequence=3) == [4, 5, 6, 7]
    assert await walk(anna, chat_id, limit=2, before_sequence=4) == [3, 2, 1]
    bounds = {"after_sequence": 2, "before_sequence": 6}
    assert await walk(anna, chat_id, limit=2, **bounds) == [5, 4, 3]
    assert await walk(anna, chat_id, limit=3, **bounds) == [5, 4, 3]
    assert await walk(anna, chat_id, limit=2, direction="forward", **bounds) == [3, 4, 5]
    assert await walk(anna, chat_id, limit=2, direction="backward", after_sequence=5) == [7, 6]


async def test_history_cursor_survives_new_messages_and_turns_back(
    stage: Stage, chat: tuple[Person, Person, ChatId]
) -> None:
    anna, _, chat_id = chat
    await fill(stage, anna, chat_id, 4)
    first = (await anna.get(f"/chats/{chat_id}/messages", limit=2)).json()
    await anna.send(chat_id, "meanwhile")
    cursor = first["pagination"]["next_cursor"]
    second = (await anna.get(f"/chats/{chat_id}/messages", limit=2, cursor=cursor)).json()
    assert [message["sequence"] for message in second["data"]] == [2, 1]
    newer = first["pagination"]["prev_cursor"]
    back = (await anna.get(f"/chats/{chat_id}/messages", cursor=newer)).json()
    assert [message["sequence"] for message in back["data"]] == [5]


async def test_history_refuses_what_makes_no_sense(
    stage: Stage, chat: tuple[Person, Person, ChatId]
) -> None:
    anna, berta, chat_id = chat
    await fill(stage, anna, chat_id, 3)
    path = f"/chats/{chat_id}/messages"
    cursor = (await anna.get(path, limit=1)).json()["pagination"]["next_cursor"]
    mixed = await anna.get(path, cursor=cursor, before_sequence=2)
    assert fields_of(mixed) == [("cursor", "INVALID_VALUE")]
    other = await stage.group(anna, berta)
    assert fields_of(await anna.get(f"/chats/{other}/messages", cursor=cursor)) == [
        ("cursor", "INVALID_VALUE")
    ]
    assert fields_of(await anna.get(path, limit=101)) == [("limit", "TOO_LARGE")]
    assert fields_of(await anna.get(path, direction="up")) == [("direction", "INVALID_VALUE")]
    assert fields_of(await anna.get(path, after_sequence=1 << 53)) == [
        ("after_sequence", "TOO_LARGE")
    ]
    ahead = await anna.get(path, after_sequence=4)
    assert (ahead.status_code, code_of(ahead)) == (422, "CURSOR_AHEAD")


async def test_around_shows_both_sides(stage: Stage, chat: tuple[Person, Person, ChatId]) -> None:
    anna, _, chat_id = chat
    await fill(stage, anna, chat_id, 7)
    around = (await anna.get(f"/chats/{chat_id}/messages/around/4", context=2)).json()["data"]
    assert around["target_sequence"] == 4
    assert [message["sequence"] for message in around["messages"]] == [2, 3, 4, 5, 6]
    assert (around["has_more_before"], around["has_more_after"]) == (True, True)
    whole = (await anna.get(f"/chats/{chat_id}/messages/around/1")).json()["data"]
    assert len(whole["messages"]) == 7
    assert (whole["has_more_before"], whole["has_more_after"]) == (False, False)
    above = await anna.get(f"/chats/{chat_id}/messages/around/8")
    assert (above.status_code, code_of(above)) == (422, "INVALID_SEQUENCE")
    assert (await anna.get(f"/chats/{chat_id}/messages/around/4", context=51)).status_code == 400
    assert (await anna.get(f"/chats/{chat_id}/messages/around/0")).status_code == 400


async def test_members_see_what_is_older_than_their_membership(
    stage: Stage, chat: tuple[Person, Person, ChatId]
) -> None:
    anna, _, chat_id = chat
    carl = await stage.person("carl")
    await anna.send(chat_id, "before")
    await anna.post(f"/chats/{chat_id}/members", {"user_id": carl.user_id})
    assert await walk(carl, chat_id) == [1]
