"""Logging in and out over REST: each success beside its refusals."""

import uuid

import pytest

from tests.api.stage import API, PASSWORD, Person, Stage, build_stage, code_of, fields_of
from tidewire.accounts.options import AccountOptions, Registration

DEVICE = "00000001-0000-4000-8000-000000000000"
OTHER_DEVICE = "00000002-0000-4000-8000-000000000000"


def registration(**changed: object) -> dict[str, object]:
    return {"username": "anna", "password": PASSWORD, "device_id": DEVICE, **changed}


async def test_register_makes_an_account_and_refuses_its_name_to_the_next(stage: Stage) -> None:
    answer = await stage.client.post(
        f"{API}/auth/register", json=registration(display_name="Anna", unknown="ignored")
    )
    assert answer.status_code == 201
    opened = answer.json()["data"]
    assert set(opened) == {"user", "session", "tokens", "is_new_user"}
    assert opened["is_new_user"] is True
    assert opened["user"]["username"] == "anna"
    assert opened["user"]["display_name"] == "Anna"
    assert set(opened["session"]) == {"session_id", "device_id", "created_at", "expires_at"}
    assert opened["tokens"]["token_type"] == "Bearer"
    assert opened["tokens"]["expires_in"] == 3600
    assert answer.headers["cache-control"] == "no-store"
    again = await stage.client.post(f"{API}/auth/register", json=registration(username="ANNA"))
    assert (again.status_code, code_of(again)) == (409, "CONFLICT")


@pytest.mark.parametrize(
    ("changed", "field", "code"),
    [
        ({"username": "an na"}, "username", "INVALID_VALUE"),
        ({"username": ""}, "username", "TOO_SHORT"),
        ({"password": "short"}, "password", "TOO_SHORT"),
        ({"password": 12345678}, "password", "INVALID_TYPE"),
        ({"device_id": "phone"}, "device_id", "TOO_SHORT"),
        ({"device_id": "x" * 36}, "device_id", "INVALID_VALUE"),
        ({"display_name": " Anna"}, "display_name", "INVALID_VALUE"),
        ({"display_name": "A" * 65}, "display_name", "TOO_LONG"),
    ],
)
async def test_register_names_the_field_that_is_wrong(
    stage: Stage, changed: dict[str, object], field: str, code: str
) -> None:
    answer = await stage.client.post(f"{API}/auth/register", json=registration(**changed))
    assert answer.status_code == 400
    assert fields_of(answer) == [(field, code)]
    assert PASSWORD not in answer.text


async def test_register_is_refused_where_it_is_closed() -> None:
    closed = build_stage(accounts=AccountOptions(registration=Registration.CLOSED))
    answer = await closed.client.post(f"{API}/auth/register", json=registration())
    assert (answer.status_code, code_of(answer)) == (403, "FORBIDDEN")
    await closed.close()


async def test_login_opens_a_session_and_refuses_a_wrong_password(stage: Stage) -> None:
    anna = await stage.person("anna")
    good = registration(device_id=OTHER_DEVICE)
    answer = await stage.client.post(f"{API}/auth/login", json=good)
    assert answer.status_code == 200
    assert answer.json()["data"]["is_new_user"] is False
    assert answer.json()["data"]["user"]["user_id"] == anna.user_id
    wrong = await stage.client.post(f"{API}/auth/login", json={**good, "password": "wrong one"})
    assert (wrong.status_code, code_of(wrong)) == (401, "INVALID_CREDENTIALS")
    nobody = await stage.client.post(f"{API}/auth/login", json={**good, "username": "nobody"})
    assert nobody.json()["error"]["message"] == wrong.json()["error"]["message"]
    other = await stage.client.post(
        f"{API}/auth/login", json=good, headers={"X-Device-ID": str(uuid.uuid4())}
    )
    assert (other.status_code, code_of(other)) == (401, "DEVICE_MISMATCH")


async def test_login_is_throttled_with_a_time_to_come_back(stage: Stage) -> None:
    await stage.person("anna")
    wrong = registration(password="wrong one")
    answers = [await stage.client.post(f"{API}/auth/login", json=wrong) for _ in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert code_of(answers[-1]) == "RATE_LIMITED"
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_refresh_rotates_both_tokens_and_refuses_other_devices(stage: Stage) -> None:
    anna = await stage.person("anna")
    body, device = {"refresh_token": anna.refresh_token}, {"X-Device-ID": anna.device_id}
    stolen = await stage.client.post(
        f"{API}/auth/refresh", json=body, headers={"X-Device-ID": DEVICE}
    )
    assert (stolen.status_code, code_of(stolen)) == (401, "DEVICE_MISMATCH")
    nameless = await stage.client.post(f"{API}/auth/refresh", json=body)
    assert fields_of(nameless) == [("device_id", "REQUIRED")]
    stage.clock.pass_ms(1000)
    answer = await stage.client.post(f"{API}/auth/refresh", json=body, headers=device)
    assert answer.status_code == 200
    tokens = answer.json()["data"]["tokens"]
    assert tokens["refresh_token"] != anna.refresh_token
    assert tokens["access_token"] != anna.access_token
    named = await stage.client.post(
        f"{API}/auth/refresh",
        json={"refresh_token": tokens["refresh_token"], "device_id": anna.device_id},
    )
    assert named.status_code == 200
    bad = await stage.client.post(
        f"{API}/auth/refresh", json={"refresh_token": "none"}, headers=device
    )
    assert (bad.status_code, code_of(bad)) == (401, "INVALID_REFRESH_TOKEN")


async def test_logout_ends_the_session_at_once(stage: Stage) -> None:
    anna = await stage.person("anna")
    answer = await anna.post("/auth/logout", {"refresh_token": anna.refresh_token})
    assert (answer.status_code, answer.content) == (204, b"")
    assert stage.revoked == [anna.session_id]
    after = await anna.get("/users/me")
    assert (after.status_code, code_of(after)) == (401, "UNAUTHORIZED")
    assert after.json()["error"]["details"]["reason"] == "token_revoked"


async def test_logout_needs_no_body_but_a_token(stage: Stage) -> None:
    anna = await stage.person("anna")
    without = await stage.client.post(f"{API}/auth/logout")
    assert (without.status_code, code_of(without)) == (401, "UNAUTHORIZED")
    assert without.headers["www-authenticate"] == "Bearer"
    assert (await anna.post("/auth/logout")).status_code == 204


# Changing one's password.


def new_password(current: str = PASSWORD, new: str = "another password") -> dict[str, str]:
    return {"current_password": current, "new_password": new}


async def test_password_is_changed_and_all_other_logins_end(stage: Stage) -> None:
    anna = await stage.person("anna")
    other = Person(**vars(anna))
    stage.clock.pass_ms(1000)
    other.device_id = "00000001-0000-4000-8000-000000000000"
    await stage.log_in_again(other)

    answer = await anna.post("/auth/password", new_password())
    assert (answer.status_code, answer.json()) == (200, {"data": {"revoked_count": 1}})
    assert stage.revoked == [other.session_id]
    assert (await anna.get("/users/me")).status_code == 200
    assert (await other.get("/users/me")).status_code == 401
    for password, status in ((PASSWORD, 401), ("another password", 200)):
        body = {"username": "anna", "password": password, "device_id": anna.device_id}
        assert (await stage.client.post(f"{API}/auth/login", json=body)).status_code == status


async def test_password_is_not_changed_without_the_current_one(stage: Stage) -> None:
    anna = await stage.person("anna")
    answer = await anna.post("/auth/password", new_password("guessed"))
    assert (answer.status_code, code_of(answer)) == (401, "INVALID_CREDENTIALS")
    assert (await anna.get("/users/me")).status_code == 200
    assert (await anna.post("/auth/password", new_password())).status_code == 200


async def test_password_that_is_none_is_refused(stage: Stage) -> None:
    anna = await stage.person("anna")
    answer = await anna.post("/auth/password", new_password(new="short"))
    assert fields_of(answer)[0][0] == "new_password"


async def test_guesses_at_the_current_password_are_limited_as_logins_are(stage: Stage) -> None:
    anna = await stage.person("anna")
    codes = [
        code_of(await anna.post("/auth/password", new_password(f"guess {n}"))) for n in range(12)
    ]
    assert codes == ["INVALID_CREDENTIALS"] * 10 + ["RATE_LIMITED"] * 2
