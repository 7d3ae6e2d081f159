"""Members of groups over REST."""

from tests.api.stage import Stage, build_stage, code_of, fields_of
from tidewire.chats.options import ChatOptions


async def test_member_is_added_once(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    answer = await anna.post(f"/chats/{chat_id}/members", {"user_id": carl.user_id})
    assert answer.status_code == 201
    assert answer.json()["data"] == {
        "chat_id": chat_id,
        "user_id": carl.user_id,
        "role": "member",
        "display_name": "Carl",
        "joined_at": "2030-03-17T17:46:40.000Z",
        "added_by": anna.user_id,
    }
    again = await anna.post(f"/chats/{chat_id}/members", {"user_id": carl.user_id})
    assert (again.status_code, code_of(again)) == (409, "ALREADY_A_MEMBER")
    nobody = await anna.post(f"/chats/{chat_id}/members", {"user_id": "user_nobody"})
    assert (nobody.status_code, code_of(nobody)) == (404, "USER_NOT_FOUND")
    owner = {"user_id": carl.user_id, "role": "owner"}
    assert fields_of(await anna.post(f"/chats/{chat_id}/members", owner)) == [
        ("role", "INVALID_VALUE")
    ]


async def test_member_is_added_by_those_who_may(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    refused = await berta.post(f"/chats/{chat_id}/members", {"user_id": carl.user_id})
    assert (refused.status_code, code_of(refused)) == (403, "FORBIDDEN")
    promoted = await anna.patch(f"/chats/{chat_id}/members/{berta.user_id}", {"role": "admin"})
    assert promoted.status_code == 200
    assert promoted.json()["data"]["role"] == "admin"
    assert promoted.json()["data"]["updated_by"] == anna.user_id
    admin = {"user_id": carl.user_id, "role": "admin"}
    too_high = await berta.post(f"/chats/{chat_id}/members", admin)
    assert (too_high.status_code, code_of(too_high)) == (403, "FORBIDDEN")
    added = await berta.post(f"/chats/{chat_id}/members", {"user_id": carl.user_id})
    assert added.status_code == 201


async def test_role_is_changed_by_the_owner_only(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta, carl)
    refused = await berta.patch(f"/chats/{chat_id}/members/{carl.user_id}", {"role": "admin"})
    assert (refused.status_code, code_of(refused)) == (403, "FORBIDDEN")
    own = await anna.patch(f"/chats/{chat_id}/members/{anna.user_id}", {"role": "member"})
    assert (own.status_code, code_of(own)) == (400, "INVALID_OPERATION")


async def test_removed_member_is_out_at_once(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    own = await anna.delete(f"/chats/{chat_id}/members/{anna.user_id}")
    assert (own.status_code, code_of(own)) == (400, "INVALID_OPERATION")
    removed = await anna.delete(f"/chats/{chat_id}/members/{berta.user_id}")
    assert (removed.status_code, removed.content) == (204, b"")
    gone = await berta.get(f"/chats/{chat_id}/messages")
    assert (gone.status_code, code_of(gone)) == (403, "NOT_A_MEMBER")
    again = await anna.delete(f"/chats/{chat_id}/members/{berta.user_id}")
    assert (again.status_code, code_of(again)) == (404, "USER_NOT_FOUND")


async def test_leaving_is_for_all_but_the_owner(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    refused = await anna.post(f"/chats/{chat_id}/leave")
    assert (refused.status_code, code_of(refused)) == (400, "INVALID_OPERATION")
    assert (await berta.post(f"/chats/{chat_id}/leave")).status_code == 204
    again = await berta.post(f"/chats/{chat_id}/leave")
    assert (again.status_code, code_of(again)) == (403, "NOT_A_MEMBER")
    direct = await stage.direct(anna, berta)
    fixed = await berta.post(f"/chats/{direct}/leave")
    assert (fixed.status_code, code_of(fixed)) == (400, "INVALID_OPERATION")


async def test_group_is_handed_over_and_then_left(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    stuck = await anna.post(f"/chats/{chat_id}/leave")
    assert (stuck.status_code, code_of(stuck)) == (400, "INVALID_OPERATION")
    assert "hand the group over" in stuck.json()["error"]["message"]
    body = {"user_id": berta.user_id}
    refused = await berta.post(f"/chats/{chat_id}/transfer", body | {"user_id": anna.user_id})
    assert refused.status_code == 200, "she is the owner already: nothing changes"
    own = await berta.post(f"/chats/{chat_id}/transfer", body)
    assert (own.status_code, code_of(own)) == (403, "FORBIDDEN")
    outsider = await carl.post(f"/chats/{chat_id}/transfer", body)
    assert (outsider.status_code, code_of(outsider)) == (403, "NOT_A_MEMBER")
    nobody = await anna.post(f"/chats/{chat_id}/transfer", {"user_id": carl.user_id})
    assert (nobody.status_code, code_of(nobody)) == (404, "USER_NOT_FOUND")
    for _ in range(2):
        done = await anna.post(f"/chats/{chat_id}/transfer", body)
        assert done.status_code == 200
        data = done.json()["data"]
        assert (data["user_id"], data["role"]) == (berta.user_id, "owner")
    assert (await anna.post(f"/chats/{chat_id}/leave")).status_code == 204
    view = (await berta.get(f"/chats/{chat_id}")).json()["data"]
    assert [(one["user_id"], one["role"]) for one in view["members"]] == [(berta.user_id, "owner")]


async def test_closed_group_is_gone_for_all(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    refused = await berta.post(f"/chats/{chat_id}/close")
    assert (refused.status_code, code_of(refused)) == (403, "FORBIDDEN")
    assert (await anna.post(f"/chats/{chat_id}/close")).status_code == 204
    for person in (anna, berta):
        gone = await person.get(f"/chats/{chat_id}")
        assert (gone.status_code, code_of(gone)) == (403, "NOT_A_MEMBER")
        assert (await person.get("/chats")).json()["data"] == []
    again = await anna.post(f"/chats/{chat_id}/close")
    assert (again.status_code, code_of(again)) == (403, "NOT_A_MEMBER")


async def test_block_holds_in_groups_and_looks_like_any_refusal_to_be_added(stage: Stage) -> None:
    anna, berta, carl, dora = await stage.people("anna", "berta", "carl", "dora")
    chat_id = await stage.group(anna, berta, dora)
    assert (await carl.put(f"/users/{anna.user_id}/block")).status_code == 204
    left = await berta.post(f"/chats/{chat_id}/leave", {"do_not_add_again": True})
    assert left.status_code == 204
    answers = [
        await anna.post(f"/chats/{chat_id}/members", {"user_id": user_id})
        for user_id in (berta.user_id, carl.user_id)
    ]
    group = {"type": "group", "name": "New", "member_ids": [dora.user_id, carl.user_id]}
    answers.append(await anna.post("/chats", group))
    assert [(one.status_code, code_of(one)) for one in answers] == [(403, "FORBIDDEN")] * 3
    assert len({one.json()["error"]["message"] for one in answers}) == 1
    listed = await berta.get("/users/me/refused-groups")
    assert listed.json()["data"] == [{"chat_id": chat_id}]
    for _ in range(2):
        undone = await berta.delete(f"/users/me/refused-groups/{chat_id}")
        assert (undone.status_code, undone.content) == (204, b"")
    assert (await berta.get("/users/me/refused-groups")).json()["data"] == []
    back = await anna.post(f"/chats/{chat_id}/members", {"user_id": berta.user_id})
    assert back.status_code == 201


async def test_refused_groups_come_in_pages(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chats = sorted([await stage.group(anna, berta) for _ in range(3)])
    for chat_id in chats:
        await berta.post(f"/chats/{chat_id}/leave", {"do_not_add_again": True})
    found: list[str] = []
    cursor = None
    for _ in range(2):
        query = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = (await berta.get("/users/me/refused-groups", **query)).json()
        found += [one["chat_id"] for one in page["data"]]
        cursor = page["pagination"].get("next_cursor")
    assert (found, cursor) == (chats, None)


async def test_strangers_are_added_at_a_bounded_rate() -> None:
    """One account put 199 strangers into 61 groups in 1.4 s (A12)."""
    stage = build_stage(chats=ChatOptions(strangers_per_hour=2))
    try:
        anna, berta, carl, dora = await stage.people("anna", "berta", "carl", "dora")
        chat_id = await stage.group(anna, berta, carl)
        refused = await anna.post(f"/chats/{chat_id}/members", {"user_id": dora.user_id})
        assert (refused.status_code, code_of(refused)) == (429, "RATE_LIMITED")
        assert refused.json()["error"]["details"]["retry_after_seconds"] == 1800
        stage.clock.pass_ms(1_800_000)
        added = await anna.post(f"/chats/{chat_id}/members", {"user_id": dora.user_id})
        assert added.status_code == 201
    finally:
        await stage.close()
