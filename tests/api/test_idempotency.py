"""Idempotency-Key on POST /chats and POST /chats/{id}/members (A-05)."""

from typing import Any

import pytest

from tests.api.stage import Stage, code_of, fields_of
from tidewire.domain.accounts import RequestKey
from tidewire.domain.errors import StoreUnavailable

KEY = "0d9f6c52-3b77-4d0f-8f0a-6a1c8e25b9d3"
OTHER_KEY = "1d9f6c52-3b77-4d0f-8f0a-6a1c8e25b9d3"


async def test_same_key_and_body_makes_one_chat(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    body = {"type": "group", "name": "Crew", "member_ids": [berta.user_id]}
    first = await anna.post("/chats", body, key=KEY)
    assert first.status_code == 201
    assert "x-idempotent-replay" not in first.headers
    again = await anna.post("/chats", {**body, "unknown": "ignored"}, key=KEY.upper())
    assert again.status_code == 200
    assert again.headers["x-idempotent-replay"] == "true"
    assert again.json() == first.json()
    assert len((await anna.get("/chats")).json()["data"]) == 1
    other = await anna.post("/chats", body, key=OTHER_KEY)
    assert other.status_code == 201
    assert other.json()["data"]["chat_id"] != first.json()["data"]["chat_id"]


async def test_same_key_and_other_body_is_refused(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    body = {"type": "group", "name": "Crew", "member_ids": [berta.user_id]}
    await anna.post("/chats", body, key=KEY)
    other = await anna.post("/chats", {**body, "name": "Other"}, key=KEY)
    assert (other.status_code, code_of(other)) == (409, "IDEMPOTENCY_KEY_REUSED")
    somebody_elses = {"type": "group", "name": "Other", "member_ids": [anna.user_id]}
    assert (await berta.post("/chats", somebody_elses, key=KEY)).status_code == 201
    assert fields_of(await anna.post("/chats", body, key="not a uuid")) == [
        ("Idempotency-Key", "INVALID_VALUE")
    ]


async def test_key_is_free_again_after_a_refusal_and_after_a_day(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    body = {"type": "group", "name": "Crew", "member_ids": ["user_nobody"]}
    assert (await anna.post("/chats", body, key=KEY)).status_code == 404
    good = {**body, "member_ids": [berta.user_id]}
    assert (await anna.post("/chats", good, key=KEY)).status_code == 201
    stage.clock.pass_ms(24 * 3_600_000 + 1)
    await stage.log_in_again(anna)
    assert (await anna.post("/chats", {**good, "name": "Later"}, key=KEY)).status_code == 201


async def test_request_in_progress_is_told_to_wait(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    body = {"type": "group", "name": "Crew", "member_ids": [berta.user_id]}

    class Broken:
        """Creates the group, and loses the answer."""

        def __getattr__(self, name: str) -> Any:
            return getattr(stage.services.chats, name)

        async def create_group(self, *arguments: Any, **named: Any) -> None:
            await stage.services.chats.create_group(*arguments, **named)
            raise StoreUnavailable("the answer was lost")

    anna.client = stage.serve(chats=Broken())
    lost = await anna.post("/chats", body, key=KEY)
    assert (lost.status_code, code_of(lost)) == (503, "SERVICE_UNAVAILABLE")
    assert int(lost.headers["retry-after"]) > 0
    anna.client = stage.serve()
    pending = await anna.post("/chats", body, key=KEY)
    assert (pending.status_code, code_of(pending)) == (409, "CONFLICT")
    assert int(pending.headers["retry-after"]) > 0
    stage.clock.pass_ms(60_001)
    resumed = await anna.post("/chats", body, key=KEY)
    assert resumed.status_code == 201
    assert len((await anna.get("/chats")).json()["data"]) == 1


async def test_same_key_adds_a_member_once(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id, other_chat = await stage.group(anna, berta), await stage.group(anna, berta)
    body = {"user_id": carl.user_id}
    first = await anna.post(f"/chats/{chat_id}/members", body, key=KEY)
    assert first.status_code == 201
    again = await anna.post(f"/chats/{chat_id}/members", body, key=KEY)
    assert again.status_code == 200
    assert again.headers["x-idempotent-replay"] == "true"
    assert again.json() == first.json()
    elsewhere = await anna.post(f"/chats/{other_chat}/members", body, key=KEY)
    assert (elsewhere.status_code, code_of(elsewhere)) == (409, "IDEMPOTENCY_KEY_REUSED")
    await anna.delete(f"/chats/{chat_id}/members/{carl.user_id}")
    gone = await anna.post(f"/chats/{chat_id}/members", body, key=KEY)
    assert (gone.status_code, code_of(gone)) == (404, "USER_NOT_FOUND")


@pytest.mark.parametrize("added_by_anna", [True, False])
async def test_adding_that_died_on_the_way_is_resumed(stage: Stage, *, added_by_anna: bool) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    await anna.patch(f"/chats/{chat_id}/members/{berta.user_id}", {"role": "admin"})
    body = {"user_id": carl.user_id}

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(stage.services.chats, name)

        async def add_member(self, *arguments: Any) -> None:
            actor = arguments[0] if added_by_anna else berta.user_id
            await stage.services.chats.add_member(actor, *arguments[1:])
            raise StoreUnavailable("the answer was lost")

    anna.client = stage.serve(chats=Broken())
    assert (await anna.post(f"/chats/{chat_id}/members", body, key=KEY)).status_code == 503
    anna.client = stage.serve()
    stage.clock.pass_ms(60_001)
    resumed = await anna.post(f"/chats/{chat_id}/members", body, key=KEY)
    if added_by_anna:
        assert resumed.status_code == 201
        assert resumed.json()["data"]["added_by"] == anna.user_id
    else:
        assert (resumed.status_code, code_of(resumed)) == (409, "ALREADY_A_MEMBER")


async def test_outsider_leaves_no_trace_of_a_key(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    refused = await carl.post(f"/chats/{chat_id}/members", {"user_id": anna.user_id}, key=KEY)
    assert code_of(refused) == "NOT_A_MEMBER"
    key = RequestKey(user_id=carl.user_id, endpoint="POST /chats/members", key=KEY)
    claim = await stage.store.claim_request(
        key, b"anything", resource_id=None, now_ms=stage.clock.wall
    )
    assert type(claim).__name__ == "RequestClaimed"
