"""Delivered and read positions over REST."""

from tests.api.stage import Stage, code_of, fields_of
from tidewire.wire.timestamps import format_time_ms


async def test_positions_move_forward_only(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    for text in ("one", "two", "three"):
        await anna.send(chat_id, text)
    stage.clock.pass_ms(5000)
    moved = await berta.patch(f"/chats/{chat_id}/delivery-state", {"last_acked_sequence": 2})
    assert moved.status_code == 200
    record = moved.json()
    assert record == {
        "chat_id": chat_id,
        "user_id": berta.user_id,
        "last_acked_sequence": 2,
        "last_read_sequence": 0,
        "updated_at": "2030-03-17T17:46:45.000Z",
    }
    stage.clock.pass_ms(5000)
    lower = await berta.patch(f"/chats/{chat_id}/delivery-state", {"last_acked_sequence": 1})
    assert (lower.status_code, lower.json()) == (200, record)
    read = await berta.patch(f"/delivery-state/{chat_id}", {"last_read_sequence": 3})
    assert read.status_code == 200
    assert read.json()["data"]["last_acked_sequence"] == 3
    assert read.json()["data"]["last_read_sequence"] == 3


async def test_positions_above_the_head_are_refused(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chat_id = await stage.group(anna, berta)
    await anna.send(chat_id, "one")
    for path in (f"/chats/{chat_id}/delivery-state", f"/delivery-state/{chat_id}"):
        above = await berta.patch(path, {"last_acked_sequence": 2})
        assert (above.status_code, code_of(above)) == (422, "INVALID_SEQUENCE")
        assert fields_of(await berta.patch(path, {"last_acked_sequence": 0})) == [
            ("last_acked_sequence", "TOO_SMALL")
        ]
        assert fields_of(await berta.patch(path, {})) == [("last_acked_sequence", "REQUIRED")]
        assert fields_of(await berta.patch(path, {"last_acked_sequence": "1"})) == [
            ("last_acked_sequence", "INVALID_TYPE")
        ]


async def test_states_are_listed_for_all_or_some_chats(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    chats = sorted([await stage.group(anna, berta) for _ in range(3)])
    joined_ms = stage.clock.wall
    await anna.send(chats[0], "one")
    listed = (await berta.get("/delivery-state")).json()
    assert [state["chat_id"] for state in listed["data"]] == chats
    assert listed["data"][0] == {
        "chat_id": chats[0],
        "last_acked_sequence": 0,
        "last_read_sequence": 0,
        "current_sequence": 1,
        "unread_count": 1,
        "mentions_unread_count": 0,
        "updated_at": format_time_ms(joined_ms),
    }
    stage.clock.pass_ms(7_000)
    await berta.patch(f"/chats/{chats[0]}/delivery-state", {"last_acked_sequence": 1})
    (moved,) = (await berta.get("/delivery-state", chat_ids=chats[0])).json()["data"]
    assert moved["updated_at"] == format_time_ms(joined_ms + 7_000)
    first = (await berta.get("/delivery-state", limit=2)).json()
    cursor = first["pagination"]["next_cursor"]
    second = (await berta.get("/delivery-state", cursor=cursor)).json()
    assert [state["chat_id"] for state in first["data"] + second["data"]] == chats
    for wanted in (f"{chats[2]},{chats[0]}", [chats[2], chats[0]]):
        some = (await berta.get("/delivery-state", chat_ids=wanted)).json()
        assert [state["chat_id"] for state in some["data"]] == [chats[2], chats[0]]
    too_many = await berta.get("/delivery-state", chat_ids=",".join(["x"] * 51))
    assert fields_of(too_many) == [("chat_ids", "TOO_LONG")]


async def test_delivery_status_has_the_shape_of_the_adr(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta, carl)
    await anna.send(chat_id, "one")
    await anna.send(chat_id, "two")
    await berta.patch(f"/chats/{chat_id}/delivery-state", {"last_read_sequence": 1})
    status = (await anna.get(f"/chats/{chat_id}/delivery-status", for_sequence=1)).json()
    assert set(status) == {
        "chat_id",
        "chat_type",
        "member_count",
        "delivery_summary",
        "members",
        "pagination",
    }
    assert (status["chat_type"], status["member_count"]) == ("group", 3)
    assert status["delivery_summary"] == {
        "sequence": 1,
        "delivered_count": 1,
        "read_count": 1,
        "pending_count": 1,
        "all_delivered": False,
    }
    assert status["pagination"] == {"has_more": False, "next_cursor": None}
    by_name = {member["display_name"]: member for member in status["members"]}
    assert by_name["Berta"]["last_acked_sequence"] == 1
    assert by_name["Berta"]["user_id"] == berta.user_id
    assert by_name["Carl"]["last_acked_sequence"] == 0
    latest = (await anna.get(f"/chats/{chat_id}/delivery-status")).json()
    assert latest["delivery_summary"]["sequence"] == 2
    assert latest["delivery_summary"]["pending_count"] == 2
    above = await anna.get(f"/chats/{chat_id}/delivery-status", for_sequence=3)
    assert (above.status_code, code_of(above)) == (422, "INVALID_SEQUENCE")


async def test_delivery_status_does_not_wait_for_a_joiner(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    await anna.send(chat_id, "one")
    await berta.patch(f"/chats/{chat_id}/delivery-state", {"last_acked_sequence": 1})
    await anna.post(f"/chats/{chat_id}/members", {"user_id": carl.user_id})
    summary = (await anna.get(f"/chats/{chat_id}/delivery-status")).json()["delivery_summary"]
    assert (summary["delivered_count"], summary["pending_count"]) == (1, 0)
    assert summary["all_delivered"] is True
