"""Chats over REST."""

import pytest

from tests.api.stage import Stage, build_stage, code_of, fields_of
from tidewire.chats.options import ChatOptions


async def test_group_is_created_with_its_members(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    body = {"type": "group", "name": "Crew", "member_ids": [berta.user_id, carl.user_id]}
    answer = await anna.post("/chats", body)
    assert answer.status_code == 201
    assert "x-idempotent-replay" not in answer.headers
    chat = answer.json()["data"]
    assert (chat["type"], chat["name"], chat["member_count"]) == ("group", "Crew", 3)
    assert chat["created_by"] == anna.user_id
    assert {(each["display_name"], each["role"]) for each in chat["members"]} == {
        ("Anna", "owner"),
        ("Berta", "member"),
        ("Carl", "member"),
    }
    unknown = await anna.post("/chats", {**body, "member_ids": ["user_01ARZ3NDEKTSV4RRFFQ69G5FAV"]})
    assert (unknown.status_code, code_of(unknown)) == (404, "USER_NOT_FOUND")


async def test_direct_chat_is_found_the_second_time(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    first = await anna.post("/chats", {"type": "direct", "member_ids": [berta.user_id]})
    assert first.status_code == 201
    second = await berta.post("/chats", {"type": "direct", "member_ids": [anna.user_id]})
    assert second.status_code == 200
    assert second.headers["x-idempotent-replay"] == "true"
    assert second.json()["data"]["chat_id"] == first.json()["data"]["chat_id"]


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"type": "group", "member_ids": ["user_x"]}, "name", "REQUIRED"),
        ({"type": "group", "name": "x" * 129, "member_ids": ["user_x"]}, "name", "TOO_LONG"),
        ({"type": "group", "name": " x", "member_ids": ["user_x"]}, "name", "INVALID_VALUE"),
        ({"type": "group", "name": "x", "member_ids": []}, "member_ids", "TOO_SHORT"),
        ({"type": "group", "name": "x", "member_ids": ["a", "a"]}, "member_ids", "INVALID_VALUE"),
        ({"type": "group", "name": "x", "member_ids": [1]}, "member_ids[0]", "INVALID_TYPE"),
        ({"type": "direct", "member_ids": ["a", "b"]}, "member_ids", "TOO_LONG"),
        ({"type": "direct", "name": "x", "member_ids": ["a"]}, "name", "INVALID_VALUE"),
        ({"type": "channel", "member_ids": ["a"]}, "type", "INVALID_VALUE"),
    ],
)
async def test_create_names_the_field_that_is_wrong(
    stage: Stage, body: dict[str, object], field: str, code: str
) -> None:
    anna = await stage.person("anna")
    answer = await anna.post("/chats", body)
    assert answer.status_code == 400
    assert fields_of(answer) == [(field, code)]
    assert fields_of(
        await anna.post("/chats", {"type": "direct", "member_ids": [anna.user_id]})
    ) == [("member_ids", "INVALID_VALUE")]


async def test_group_is_full_at_its_bound() -> None:
    small = build_stage(chats=ChatOptions(group_members_max=2))
    anna, berta, carl = await small.people("anna", "berta", "carl")
    body = {"type": "group", "name": "Crew", "member_ids": [berta.user_id, carl.user_id]}
    full = await anna.post("/chats", body)
    assert (full.status_code, code_of(full)) == (400, "CHAT_FULL")
    await small.close()


async def test_chat_is_shown_with_members_and_own_place(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    await anna.send(chat_id, "hello")
    chat = (await berta.get(f"/chats/{chat_id}")).json()["data"]
    assert chat["current_sequence"] == 1
    assert len(chat["members"]) == 2
    assert chat["my_membership"]["role"] == "member"
    assert chat["my_membership"]["last_acked_sequence"] == 0
    own = (await anna.get(f"/chats/{chat_id}")).json()["data"]["my_membership"]
    assert (own["role"], own["last_acked_sequence"]) == ("owner", 1)


async def test_rename_is_for_owner_and_admin(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    answer = await anna.patch(f"/chats/{chat_id}", {"name": "Team"})
    assert (answer.status_code, answer.json()["data"]["name"]) == (200, "Team")
    assert "members" not in answer.json()["data"]
    refused = await berta.patch(f"/chats/{chat_id}", {"name": "Mine"})
    assert (refused.status_code, code_of(refused)) == (403, "FORBIDDEN")
    direct = await stage.direct(anna, berta)
    fixed = await anna.patch(f"/chats/{direct}", {"name": "Us"})
    assert (fixed.status_code, code_of(fixed)) == (400, "INVALID_OPERATION")


async def test_mute_has_an_end_or_none(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    hours = await anna.post(f"/chats/{chat_id}/mute", {"duration_hours": 1})
    assert hours.json()["data"] == {
        "chat_id": chat_id,
        "muted_until": "2030-03-17T18:46:40.000Z",
    }
    for body in ({"duration_hours": None}, {}, None):
        forever = await anna.post(f"/chats/{chat_id}/mute", body)
        assert forever.json()["data"]["muted_until"].startswith("9999-12-31")
    assert fields_of(await anna.post(f"/chats/{chat_id}/mute", {"duration_hours": 8761})) == [
        ("duration_hours", "TOO_LARGE")
    ]
    undone = await anna.post(f"/chats/{chat_id}/unmute")
    assert undone.json()["data"] == {"chat_id": chat_id, "muted_until": None}


async def test_list_pages_keep_their_order_while_chats_move(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chats = []
    for number in range(5):
        stage.clock.pass_ms(1000)
        chats.append(await stage.group(anna, berta, name=f"Crew {number}"))
    stage.clock.pass_ms(1000)
    first = (await anna.get("/chats", limit=2)).json()
    assert [each["chat_id"] for each in first["data"]] == [chats[4], chats[3]]
    stage.clock.pass_ms(1000)
    await berta.send(chats[0], "to the top")
    seen = [each["chat_id"] for each in first["data"]]
    cursor = first["pagination"]["next_cursor"]
    while cursor is not None:
        page = (await anna.get("/chats", limit=2, cursor=cursor)).json()
        seen += [each["chat_id"] for each in page["data"]]
        cursor = page["pagination"]["next_cursor"]
        assert page["pagination"]["has_more"] is (cursor is not None)
    assert seen == chats[::-1]


async def test_list_shows_last_message_counts_and_the_other_one(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.direct(anna, berta)
    await berta.send(chat_id, "x" * 150)
    (entry,) = (await anna.get("/chats")).json()["data"]
    assert entry["other_member"] == {"user_id": berta.user_id, "display_name": "Berta"}
    assert entry["last_message"]["content_preview"] == "x" * 100
    assert (entry["pending_ack_count"], entry["unread_count"]) == (1, 1)
    (own,) = (await berta.get("/chats")).json()["data"]
    assert (own["pending_ack_count"], own["unread_count"]) == (0, 0)


async def test_list_leaves_out_what_is_older(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    await stage.group(anna, berta, name="old")
    stage.clock.pass_ms(10_000)
    recent = await stage.group(anna, berta, name="new")
    found = (await anna.get("/chats", updated_since="2030-03-17T17:46:50.000Z")).json()["data"]
    assert [each["chat_id"] for each in found] == [recent]
    assert fields_of(await anna.get("/chats", updated_since="yesterday")) == [
        ("updated_since", "INVALID_VALUE")
    ]
    assert fields_of(await anna.get("/chats", cursor="nonsense")) == [("cursor", "INVALID_VALUE")]
    assert fields_of(await anna.get("/chats", limit=101)) == [("limit", "TOO_LARGE")]


async def test_hidden_chat_is_listed_as_such_until_the_next_message(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    body = {"type": "direct", "member_ids": [berta.user_id]}
    chat_id = (await anna.post("/chats", body)).json()["data"]["chat_id"]

    async def listed() -> list[bool]:
        entries = (await anna.get("/chats")).json()["data"]
        return [entry.get("is_hidden", False) for entry in entries]

    assert await listed() == [False]
    assert (await anna.post(f"/chats/{chat_id}/hide")).status_code == 204
    assert await listed() == [True]
    await berta.send(chat_id, "hello")
    assert await listed() == [False]
    await anna.post(f"/chats/{chat_id}/hide")
    assert (await anna.post(f"/chats/{chat_id}/unhide")).status_code == 204
    assert await listed() == [False]
    await anna.post(f"/chats/{chat_id}/hide")
    assert (await anna.post("/chats", body)).status_code == 200
    assert await listed() == [False]
    group = await stage.group(anna, berta)
    refused = await anna.post(f"/chats/{group}/hide")
    assert (refused.status_code, code_of(refused)) == (400, "INVALID_OPERATION")
