"""What holds for every endpoint: ids, headers, limits, bodies, errors."""

import uuid
from typing import Any

import httpx
import pytest

from tests.api.stage import API, GENEROUS, Stage, code_of, fields_of
from tidewire.domain.errors import StoreUnavailable
from tidewire.edge.peers import TrustedProxies
from tidewire.edge.rest.options import RestOptions


async def test_request_id_is_echoed_if_it_is_a_uuid(stage: Stage) -> None:
    mine = str(uuid.uuid4())
    echoed = await stage.client.get(f"{API}/health", headers={"X-Request-ID": mine})
    assert echoed.headers["x-request-id"] == mine
    for other in ("", "mine", mine + "\t", "x" * 500):
        made = await stage.client.get(f"{API}/health", headers={"X-Request-ID": other})
        assert made.headers["x-request-id"] != other
        assert uuid.UUID(made.headers["x-request-id"]).version == 4


async def test_every_answer_has_its_headers(stage: Stage) -> None:
    anna = await stage.person("anna")
    answers = [
        await anna.get("/users/me"),
        await anna.get("/nowhere"),
        await anna.put("/chats"),
        await stage.client.get(f"{API}/users/me"),
        await stage.client.get("/healthz"),
        await stage.client.get("/elsewhere"),
        await anna.post("/chats", {}),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 405, 401, 200, 404, 400]
    for answer in answers:
        for name in ("request-id", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"):
            assert answer.headers[f"x-{name}"], answer.url
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert code_of(answers[1]) == "NOT_FOUND"
    assert "POST" in answers[2].headers["allow"]


async def test_options_name_every_method_of_an_address(stage: Stage) -> None:
    for path, methods in {
        "/chats": "GET, OPTIONS, POST",
        "/users/me": "GET, OPTIONS, PATCH",
        "/users/user_x/block": "DELETE, OPTIONS, PUT",
        "/health": "GET, OPTIONS",
    }.items():
        answer = await stage.client.options(API + path)
        assert (answer.status_code, answer.headers["allow"]) == (204, methods)


async def test_limits_are_per_user_and_kind(stage: Stage) -> None:
    anna, berta = await stage.people("anna", "berta")
    options = RestOptions(reads_per_minute=3, writes_per_minute=2, lookups_per_minute=1)
    anna.client = berta.client = stage.serve(options)
    remaining = [(await anna.get("/users/me")).headers["x-ratelimit-remaining"] for _ in range(3)]
    assert remaining == ["2", "1", "0"]
    refused = await anna.get("/users/me")
    assert (refused.status_code, code_of(refused)) == (429, "RATE_LIMITED")
    assert refused.json()["error"]["details"] == {
        "limit": 3,
        "window_seconds": 60,
        "retry_after_seconds": 20,
    }
    assert refused.headers["retry-after"] == "20"
    assert refused.headers["x-ratelimit-limit"] == "3"
    assert int(refused.headers["x-ratelimit-reset"]) == stage.clock.wall // 1000 + 60
    assert (await berta.get("/users/me")).status_code == 200
    assert (await anna.patch("/users/me", {"display_name": "A"})).status_code == 200
    assert (await anna.post("/users/lookup", {"usernames": ["berta"]})).status_code == 200
    assert (await anna.post("/users/lookup", {"usernames": ["berta"]})).status_code == 429
    stage.clock.pass_ms(20_000)
    assert (await anna.get("/users/me")).status_code == 200


async def test_lookups_have_an_hourly_limit_too(stage: Stage) -> None:
    anna = await stage.person("anna")
    anna.client = stage.serve(RestOptions(lookups_per_minute=2, lookups_per_hour=3))
    statuses = []
    for _ in range(4):
        stage.clock.pass_ms(30_000)
        answer = await anna.post("/users/lookup", {"usernames": ["berta"]})
        statuses.append(answer.status_code)
    assert statuses == [200, 200, 200, 429]


async def test_anonymous_requests_are_limited_by_address(stage: Stage) -> None:
    options = RestOptions(anonymous_per_minute=2)
    client = stage.serve(options, proxies=TrustedProxies(("127.0.0.0/8",)))

    async def ask(address: str) -> httpx.Response:
        return await client.get(f"{API}/", headers={"X-Forwarded-For": address})

    assert [(await ask("192.0.2.1")).status_code for _ in range(3)] == [200, 200, 429]
    assert (await ask("192.0.2.2")).status_code == 200
    # Whoever guesses tokens is counted, too.
    guesses = [
        (await client.get(f"{API}/users/me", headers={"Authorization": "Bearer x"})).status_code
        for _ in range(3)
    ]
    assert guesses == [401, 401, 429]
    # Probes are not.
    assert [(await client.get("/healthz")).status_code for _ in range(5)] == [200] * 5


async def test_body_is_bounded(stage: Stage) -> None:
    anna = await stage.person("anna")
    large = b'{"display_name": "' + b"x" * 65_536 + b'"}'
    refused = await anna.call("PATCH", "/users/me", content=large)
    assert (refused.status_code, code_of(refused)) == (413, "PAYLOAD_TOO_LARGE")
    details = refused.json()["error"]["details"]
    assert details == {"max_bytes": 65_536, "received_bytes": len(large)}

    async def pieces() -> Any:
        for _ in range(20):
            yield b" " * 4096

    streamed = await anna.call("PATCH", "/users/me", content=pieces())
    assert (streamed.status_code, code_of(streamed)) == (413, "PAYLOAD_TOO_LARGE")
    anna.client = stage.serve(RestOptions(**GENEROUS, body_bytes_max=30))
    assert (await anna.patch("/users/me", {"display_name": "x" * 20})).status_code == 413
    assert (await anna.patch("/users/me", {"display_name": "x"})).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"display_name": "\xff"}',
        b'{"display_name": "\xed\xa0\x80"}',
        b'{"display_name": "\\ud800"}',
        b'{"display_name": "a"} trailing',
        b"[" * 60_000,
        b'{"display_name":' + b"[" * 5_000,
    ],
)
async def test_body_that_is_no_json_is_refused(stage: Stage, body: bytes) -> None:
    anna = await stage.person("anna")
    answer = await anna.call("PATCH", "/users/me", content=body)
    assert answer.status_code == 400
    assert code_of(answer) in ("BAD_REQUEST", "VALIDATION_ERROR")
    assert "Traceback" not in answer.text


async def test_body_of_the_wrong_type_names_the_field(stage: Stage) -> None:
    anna = await stage.person("anna")
    wrongs: tuple[Any, ...] = (5, None, [], {}, True)
    for wrong in wrongs:
        answer = await anna.patch("/users/me", {"display_name": wrong})
        assert fields_of(answer) == [("display_name", "INVALID_TYPE")]
    assert fields_of(await anna.call("PATCH", "/users/me", content=b"[]")) == [
        ("body", "INVALID_TYPE")
    ]


async def test_fault_of_ours_tells_nothing_but_its_id(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    anna = await stage.person("anna")

    class Broken:
        async def user(self, user_id: str) -> None:
            raise RuntimeError("the secret place is /var/lib/tidewire")

    anna.client = stage.serve(people=Broken())
    answer = await anna.get("/users/me")
    assert (answer.status_code, code_of(answer)) == (500, "INTERNAL_ERROR")
    assert "secret place" not in answer.text
    assert "details" not in answer.json()["error"]
    (record,) = [each for each in caplog.records if each.message == "request failed unexpectedly"]
    assert record.__dict__["request_id"] == answer.headers["x-request-id"]
    assert record.exc_info is not None


async def test_store_that_is_away_is_told_as_503(stage: Stage) -> None:
    anna = await stage.person("anna")

    class Away:
        async def user(self, user_id: str) -> None:
            raise StoreUnavailable("the store is away")

    anna.client = stage.serve(people=Away())
    answer = await anna.get("/users/me")
    assert (answer.status_code, code_of(answer)) == (503, "SERVICE_UNAVAILABLE")
    assert int(answer.headers["retry-after"]) > 0


async def test_refusals_are_logged_without_tokens_and_text(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    anna = await stage.person("anna")
    body = {"client_message_id": str(uuid.uuid4()), "content": "very private"}
    await anna.post("/chats/chat_nowhere/messages?note=hidden", body)
    (record,) = [each for each in caplog.records if each.message == "request refused"]
    assert record.__dict__["code"] == "NOT_A_MEMBER"
    assert record.__dict__["route"] == f"POST {API}/chats/chat_nowhere/messages"
    assert anna.access_token not in caplog.text
    assert "very private" not in caplog.text


async def test_other_origins_are_served_only_if_they_are_named(stage: Stage) -> None:
    origin = {"Origin": "https://app.example"}
    plain = await stage.client.get(f"{API}/health", headers=origin)
    assert "access-control-allow-origin" not in plain.headers
    open_client = stage.serve(RestOptions(cors_origins=("https://app.example",)))
    allowed = await open_client.get(f"{API}/health", headers=origin)
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    preflight = await open_client.options(
        f"{API}/chats",
        headers={
            **origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
    )
    assert preflight.status_code == 204
    other = await open_client.get(f"{API}/health", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers


def test_options_refuse_what_is_impossible() -> None:
    with pytest.raises(ValueError, match="reads_per_minute is at least 1"):
        RestOptions(reads_per_minute=0)


async def test_refusals_are_counted_by_code(stage: Stage) -> None:
    anna = await stage.person("anna")
    await stage.client.get(f"{API}/users/me")
    await anna.get("/chats/chat_nowhere")
    wrong = {"username": "anna", "password": "not hers at all", "device_id": anna.device_id}
    statuses = [
        (await stage.client.post(f"{API}/auth/login", json=wrong)).status_code for _ in range(11)
    ]
    assert statuses == [401] * 10 + [429]
    assert stage.services.counters.errors_sent_by_code == {
        "UNAUTHORIZED": 1,
        "NOT_A_MEMBER": 1,
        "INVALID_CREDENTIALS": 10,
        "RATE_LIMITED": 1,
    }
