"""Sessions over REST."""

from tests.api.stage import API, PASSWORD, Person, Stage, code_of

DEVICE = "00000001-0000-4000-8000-000000000000"


async def log_in(stage: Stage, person: Person, device_id: str) -> str:
    """Log in on another device; the id of that session."""
    stage.clock.pass_ms(1000)
    body = {"username": person.username, "password": PASSWORD, "device_id": device_id}
    answer = await stage.client.post(f"{API}/auth/login", json=body)
    return str(answer.json()["data"]["session"]["session_id"])


async def test_sessions_are_listed_with_the_current_one(stage: Stage) -> None:
    anna = await stage.person("anna")
    other = await log_in(stage, anna, DEVICE)
    listed = (await anna.get("/sessions")).json()
    assert [(each["session_id"], each["is_current"]) for each in listed["data"]] == [
        (anna.session_id, True),
        (other, False),
    ]
    assert listed["pagination"]["has_more"] is False


async def test_sessions_say_where_they_are_used_from(stage: Stage) -> None:
    anna = await stage.person("anna")
    (session,) = (await anna.get("/sessions")).json()["data"]
    assert (session["address"], session["client"]) == (
        "127.0.0.1",
        stage.client.headers["user-agent"],
    )
    assert session["last_active_at"] == session["created_at"]


async def test_last_use_of_a_session_is_kept_to_a_few_minutes(stage: Stage) -> None:
    anna = await stage.person("anna")

    async def last_use() -> str:
        (session,) = (await anna.get("/sessions")).json()["data"]
        return str(session["last_active_at"])

    await last_use()
    await stage.accounts.admin.keep_house()
    first = await last_use()
    stage.clock.pass_ms(60_000)
    await anna.get("/users/me")
    await stage.accounts.admin.keep_house()
    assert await last_use() == first, "not written for every request"
    stage.clock.pass_ms(240_000)
    await anna.get("/users/me")
    await stage.accounts.admin.keep_house()
    assert await last_use() > first


async def test_one_session_is_ended_and_nobody_elses(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    other = await log_in(stage, anna, DEVICE)
    foreign = await berta.delete(f"/sessions/{other}")
    assert (foreign.status_code, code_of(foreign)) == (404, "NOT_FOUND")
    assert (await anna.delete(f"/sessions/{other}")).status_code == 204
    assert stage.revoked == [other]
    again = await anna.delete(f"/sessions/{other}")
    assert (again.status_code, code_of(again)) == (404, "NOT_FOUND")


async def test_all_sessions_are_ended_with_or_without_the_current_one(stage: Stage) -> None:
    anna = await stage.person("anna")
    await log_in(stage, anna, DEVICE)
    answer = await anna.delete("/sessions")
    assert (answer.status_code, answer.json()) == (200, {"data": {"revoked_count": 1}})
    assert (await anna.get("/users/me")).status_code == 200
    answer = await anna.delete("/sessions", include_current=True)
    assert answer.json() == {"data": {"revoked_count": 1}}
    assert (await anna.get("/users/me")).status_code == 401
