"""People over REST."""

from tests.api.stage import API, PASSWORD, Stage, code_of, fields_of


async def test_me_is_shown_and_renamed(stage: Stage) -> None:
    anna = await stage.person("anna")
    stage.clock.pass_ms(1000)
    changed = await anna.patch("/users/me", {"display_name": "Änne 🦊"})
    assert changed.status_code == 200
    assert changed.json()["data"]["display_name"] == "Änne 🦊"
    shown = await anna.get("/users/me")
    assert shown.json() == changed.json()
    assert shown.json()["data"]["updated_at"] > shown.json()["data"]["created_at"]
    assert fields_of(await anna.patch("/users/me", {"display_name": "a\nb"})) == [
        ("display_name", "INVALID_VALUE")
    ]
    assert fields_of(await anna.patch("/users/me", {})) == [("display_name", "REQUIRED")]


async def test_somebody_else_is_shown_without_his_user_name(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    answer = await anna.get(f"/users/{berta.user_id}")
    assert answer.status_code == 200
    assert set(answer.json()["data"]) == {
        "user_id",
        "display_name",
        "created_at",
        "is_deleted",
    }
    for unknown in ("user_01ARZ3NDEKTSV4RRFFQ69G5FAV", "%00", "nobody at all"):
        missing = await anna.get(f"/users/{unknown}")
        assert (missing.status_code, code_of(missing)) == (404, "USER_NOT_FOUND")


async def test_lookup_finds_by_name_and_says_who_is_not_found(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    answer = await anna.post("/users/lookup", {"usernames": ["BERTA", "nobody", "a b"]})
    assert answer.status_code == 200
    assert answer.json()["data"] == {
        "users": [{"username": "berta", "user_id": berta.user_id, "display_name": "Berta"}],
        "not_found": ["nobody", "a b"],
    }
    assert fields_of(await anna.post("/users/lookup", {"usernames": []})) == [
        ("usernames", "TOO_SHORT")
    ]
    assert fields_of(await anna.post("/users/lookup", {"usernames": ["a"] * 101})) == [
        ("usernames", "TOO_LONG")
    ]


async def test_block_refuses_messages_until_it_is_undone(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.direct(anna, berta)
    for _ in range(2):
        assert (await anna.put(f"/users/{berta.user_id}/block")).status_code == 204
    body = {"client_message_id": "00000001-0000-4000-8000-000000000000", "content": "hi"}
    refused = await berta.post(f"/chats/{chat_id}/messages", body)
    assert (refused.status_code, code_of(refused)) == (403, "FORBIDDEN")
    assert (await anna.delete(f"/users/{berta.user_id}/block")).status_code == 204
    assert (await berta.post(f"/chats/{chat_id}/messages", body)).status_code == 201
    nobody = await anna.put("/users/user_01ARZ3NDEKTSV4RRFFQ69G5FAV/block")
    assert (nobody.status_code, code_of(nobody)) == (404, "USER_NOT_FOUND")
    oneself = await anna.put(f"/users/{anna.user_id}/block")
    assert (oneself.status_code, code_of(oneself)) == (400, "INVALID_OPERATION")


async def test_blocks_are_listed_page_by_page_to_oneself_only(stage: Stage) -> None:
    anna, *others = await stage.people("anna", "berta", "cora", "dora")
    assert (await anna.get("/users/me/blocks")).json() == {
        "data": [],
        "pagination": {"has_more": False, "next_cursor": None, "prev_cursor": None},
    }
    for other in others:
        await anna.put(f"/users/{other.user_id}/block")
    first = (await anna.get("/users/me/blocks", limit=2)).json()
    assert first["pagination"]["has_more"]
    cursor = first["pagination"]["next_cursor"]
    second = (await anna.get("/users/me/blocks", limit=2, cursor=cursor)).json()
    assert not second["pagination"]["has_more"]
    assert sorted(first["data"] + second["data"], key=str) == sorted(
        ({"user_id": one.user_id, "display_name": one.username.title()} for one in others), key=str
    )
    assert (await others[0].get("/users/me/blocks")).json()["data"] == []
    await anna.delete(f"/users/{others[0].user_id}/block")
    left = (await anna.get("/users/me/blocks")).json()["data"]
    assert [each["display_name"] for each in left] == ["Cora", "Dora"]
    assert fields_of(await anna.get("/users/me/blocks", limit=101)) == [("limit", "TOO_LARGE")]
    assert fields_of(await anna.get("/users/me/blocks", cursor="x")) == [
        ("cursor", "INVALID_VALUE")
    ]


async def test_account_is_deleted_and_its_messages_stay(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    group, direct = await stage.group(anna, berta), await stage.direct(anna, berta)
    for chat_id in (group, direct):
        await anna.send(chat_id, "hello")

    wrong = await anna.post("/users/me/deletion", {"password": "a wrong one"})
    assert (wrong.status_code, code_of(wrong)) == (401, "INVALID_CREDENTIALS")
    assert (await anna.post("/users/me/deletion", {"password": PASSWORD})).status_code == 204
    assert anna.session_id in stage.revoked
    assert (await anna.get("/users/me")).status_code == 401

    shown = (await berta.get(f"/users/{anna.user_id}")).json()["data"]
    assert (shown["display_name"], shown["is_deleted"]) == ("Deleted account", True)
    assert (await berta.post("/users/lookup", {"usernames": ["anna"]})).json()["data"] == {
        "users": [],
        "not_found": ["anna"],
    }
    for chat_id in (group, direct):
        (message,) = (await berta.get(f"/chats/{chat_id}/messages")).json()["data"]
        assert (message["sender_id"], message["content"]) == (anna.user_id, "hello")
    chat = (await berta.get(f"/chats/{group}")).json()["data"]
    assert [(one["user_id"], one["role"]) for one in chat["members"]] == [(berta.user_id, "owner")]
    chat = (await berta.get(f"/chats/{direct}")).json()["data"]
    assert {one["display_name"] for one in chat["members"]} == {"Berta", "Deleted account"}
    device_id = anna.device_id
    body = {"username": "anna", "password": PASSWORD, "device_id": device_id}
    taken = await stage.client.post(f"{API}/auth/register", json=body)
    assert (taken.status_code, code_of(taken)) == (409, "CONFLICT")
    refused = await stage.client.post(f"{API}/auth/login", json=body)
    assert (refused.status_code, code_of(refused)) == (401, "INVALID_CREDENTIALS")


async def test_deleted_account_takes_its_messages_along_if_that_is_asked_for(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    group, direct = await stage.group(anna, berta), await stage.direct(anna, berta)
    for chat_id in (group, direct):
        await anna.send(chat_id, "hello")
        await berta.send(chat_id, "hi")
    odd = await anna.post("/users/me/deletion", {"password": PASSWORD, "erase_messages": "yes"})
    assert odd.status_code == 400
    wish = {"password": PASSWORD, "erase_messages": True}
    assert (await anna.post("/users/me/deletion", wish)).status_code == 204
    for chat_id in (group, direct):
        entries = (await berta.get(f"/chats/{chat_id}/messages")).json()["data"]
        assert [(one["content"], one.get("kind"), one.get("is_deleted")) for one in entries] == [
            ("", "delete", None),
            ("hi", None, None),
            ("", None, True),
        ]
        assert entries[0]["target"] == entries[2]["sequence"]
