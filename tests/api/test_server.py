"""The server itself: capabilities, probes, metrics, and its own description."""

import asyncio
import re
from collections.abc import Iterator
from threading import Event
from typing import Any

import msgspec
import pytest

from tests.api.stage import API, Stage, build_stage, code_of
from tidewire.accounts.options import AccountOptions, Registration
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import ErrorCode, StoreUnavailable
from tidewire.edge.peers import Insiders, TrustedProxies
from tidewire.edge.rest import accounts, app, chats, messages, server, shell, writing
from tidewire.edge.rest.app import endpoints_of, rest_description
from tidewire.edge.rest.options import RestOptions
from tidewire.edge.rest.server import DOCUMENTATION_PATH
from tidewire.wire.error_table import ERROR_TABLE
from tidewire.wire.rest_requests import REQUEST_BODIES


async def test_capabilities_are_public(stage: Stage) -> None:
    for path in (API, f"{API}/"):
        answer = await stage.client.get(path)
        assert answer.status_code == 200
        shown = answer.json()["data"]
        assert shown["api_version"] == "v1"
        assert shown["capabilities"]["max_message_size_bytes"] == 4096
        assert shown["capabilities"]["max_chat_members"] == 1000
        assert shown["capabilities"]["websocket_protocol_version"] == 1
        assert (await stage.client.get(shown["documentation_url"])).status_code == 200


@pytest.mark.parametrize(
    ("client_ip", "headers", "is_told"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("192.0.2.7", {}, False),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}, False),
    ],
)
async def test_server_without_accounts_says_so_on_its_own_machine(
    stage: Stage, client_ip: str, headers: dict[str, str], is_told: bool
) -> None:
    async def said() -> tuple[str, bool]:
        shown = (await client.get(API, headers=headers)).json()["data"]
        return shown["registration"], shown["is_without_accounts"]

    client = stage.serve(client_ip=client_ip)
    assert await said() == ("open", is_told)
    await stage.person("anna")
    assert await said() == ("open", False)


@pytest.mark.parametrize("registration", [Registration.INVITE, Registration.CLOSED])
async def test_server_that_takes_no_strangers_does_not_invite_to_sign_up(
    registration: Registration,
) -> None:
    stage = build_stage(accounts=AccountOptions(registration=registration))
    shown = (await stage.serve(client_ip="127.0.0.1").get(API)).json()["data"]
    assert (shown["registration"], shown["is_without_accounts"]) == (registration, False)
    await stage.close()


async def test_probes_and_metrics(stage: Stage) -> None:
    health = await stage.client.get(f"{API}/health")
    assert health.json()["data"] == {"status": "ok", "timestamp": "2030-03-17T17:46:40.000Z"}
    assert (await stage.client.get("/healthz")).json() == {"status": "ok"}
    assert (await stage.client.get("/readyz")).status_code == 200
    stage.readiness = StoreUnavailable("the store is away")
    away = await stage.client.get("/readyz")
    assert (away.status_code, code_of(away)) == (503, "SERVICE_UNAVAILABLE")
    assert (await stage.client.get("/healthz")).status_code == 200
    metrics = await stage.client.get("/metrics")
    assert metrics.text == "tidewire_up 1\n"
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_openapi_document_is_whole(stage: Stage) -> None:
    answer = await stage.client.get(f"{API}/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert document["openapi"].startswith("3.1.")
    assert "bearer" in document["components"]["securitySchemes"]
    modules = (accounts, chats, messages, server, writing)
    expected = {
        (method.lower(), re.sub(r":\w+}", "}", f"{API}{path}").rstrip("/"))
        for module in modules
        for handler in endpoints_of(module)
        if handler.resolve_include_in_schema()
        for path in handler.paths
        for method in handler.http_methods
    }
    described = {(method, path) for path, item in document["paths"].items() for method in item}
    assert described == expected
    references = set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', answer.text))
    assert references <= set(document["components"]["schemas"])
    assert not any("tidewire." in name for name in document["components"]["schemas"])
    operations = [each for item in document["paths"].values() for each in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    tags = {tag["name"] for tag in document["tags"]}
    for operation in operations:
        assert operation["description"]
        assert set(operation["tags"]) <= tags
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}


async def test_openapi_document_can_be_had_without_a_server(stage: Stage) -> None:
    answer = await stage.client.get(f"{API}/openapi.json")
    assert answer.content == rest_description()


async def test_openapi_knows_which_bodies_may_be_left_out(stage: Stage) -> None:
    paths = (await stage.described())["paths"]
    assert paths[f"{API}/chats"]["post"]["requestBody"]["required"] is True
    assert paths[f"{API}/auth/logout"]["post"]["requestBody"]["required"] is False
    assert paths[f"{API}/auth/login"]["post"]["security"] == [{}]
    assert "200" in paths[f"{API}/chats"]["post"]["responses"]


async def test_openapi_speaks_plainly_and_shows_examples(stage: Stage) -> None:
    document = await stage.described()
    operations = [each for item in document["paths"].values() for each in item.values()]
    for operation in operations:
        assert " " in operation["summary"], operation["summary"]
        assert operation["summary"].endswith(".")
        for status, response in operation["responses"].items():
            assert "document" not in response["description"].lower()
            if int(status) >= 400:
                error = response["content"]["application/json"]["example"]["error"]
                assert ERROR_TABLE[ErrorCode(error["code"])].http_status == int(status)
    assert len({operation["summary"] for operation in operations}) == len(operations)


@pytest.mark.parametrize("model", REQUEST_BODIES)
async def test_example_of_a_body_is_taken(stage: Stage, model: type[msgspec.Struct]) -> None:
    """What the page offers first, the fields that are required, is a request that works."""
    described = (await stage.described())["components"]["schemas"][model.__name__]
    fields = described["properties"]
    shown = described.get("required") or list(fields)
    body = {name: example_of(fields[name]) for name in shown}
    msgspec.json.decode(msgspec.json.encode(body), type=model)


def example_of(field: dict[str, Any]) -> object:
    if "examples" in field:
        return field["examples"][0]
    if "$ref" in field:
        return "direct"
    if "default" in field:
        return field["default"]
    return field["enum"][0]


async def test_wrong_method_is_told_as_such(stage: Stage) -> None:
    answer = await stage.client.put(f"{API}/chats")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    assert set(answer.headers["allow"].split(", ")) == {"GET", "OPTIONS", "POST"}


async def test_page_uses_nothing_from_elsewhere(stage: Stage) -> None:
    page = await stage.client.get(f"{API}/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "://" not in page.text
    linked = re.findall(r'(?:src|href)="(/api/v1/docs/[^"]+)"', page.text)
    assert len(linked) == 2
    for path in linked:
        asset = await stage.client.get(path)
        assert asset.status_code == 200
        assert "://" not in asset.text
        assert asset.headers["content-type"].split(";")[0] in ("text/css", "text/javascript")


async def test_openapi_says_what_bodies_and_headers_may_hold(stage: Stage) -> None:
    document = await stage.described()
    schemas = document["components"]["schemas"]
    member_ids = schemas["CreateChat"]["properties"]["member_ids"]
    assert member_ids["items"] == {"type": "string", "minLength": 1, "maxLength": 64}
    assert member_ids["uniqueItems"]
    assert len(schemas["CreateChat"]["anyOf"]) == len(schemas["AdvancePositions"]["anyOf"]) == 2
    assert schemas["PostMessage"]["properties"]["content"]["maxLength"] == 4096
    (header,) = document["paths"]["/api/v1/chats"]["post"]["parameters"]
    assert (header["schema"]["type"], header["schema"]["format"]) == ("string", "uuid")


@pytest.fixture
def undescribed() -> Iterator[None]:
    """As at the start of a process: the description is not made yet."""
    app._described.cache_clear()
    yield
    app._described.cache_clear()


@pytest.mark.usefixtures("undescribed")
async def test_openapi_document_is_made_once_while_others_are_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    may_end = Event()

    def count(schema: dict[str, Any]) -> bytes:
        nonlocal made
        made += 1
        assert may_end.wait(60)
        return b"{}"

    monkeypatch.setattr(app, "openapi_document", count)
    first = [asyncio.create_task(stage.client.get(f"{API}/openapi.json")) for _ in range(3)]
    try:
        for path in ("/healthz", DOCUMENTATION_PATH):
            assert (await stage.client.get(path)).status_code == 200
        assert not any(one.done() for one in first)
    finally:
        may_end.set()
    assert [(await one).content for one in first] == [b"{}"] * 3
    assert (await stage.client.get(f"{API}/openapi.json")).content == b"{}"
    assert made == 1


async def test_description_is_at_one_address_only(stage: Stage) -> None:
    """Litestar's own would be put together anew for each request."""
    answer = await stage.client.get(f"{DOCUMENTATION_PATH}/openapi.json")
    assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "headers", [{"X-Forwarded-For": "192.0.2.1"}, {"Forwarded": "for=192.0.2.1"}]
)
async def test_readiness_and_metrics_are_not_for_those_outside(
    stage: Stage, headers: dict[str, str]
) -> None:
    for path in ("/metrics", "/readyz"):
        answer = await stage.client.get(path, headers=headers)
        assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")
    assert (await stage.client.get("/healthz", headers=headers)).status_code == 200


async def test_readiness_and_metrics_are_for_those_with_the_token(stage: Stage) -> None:
    stage.serve(insiders=Insiders(TrustedProxies(["127.0.0.1"]), Secret("a-token-for-probes")))
    assert (await stage.client.get("/metrics")).status_code == 404
    headers = {"Authorization": "Bearer a-token-for-probes", "X-Forwarded-For": "192.0.2.1"}
    assert (await stage.client.get("/metrics", headers=headers)).status_code == 200
    assert (await stage.client.get("/readyz", headers=headers)).status_code == 200


async def test_probes_are_counted_by_address(stage: Stage) -> None:
    client = stage.serve(RestOptions(probes_per_minute=3))
    paths = ("/healthz", "/readyz", "/metrics", "/healthz", f"{API}/health")
    answers = [(await client.get(path)).status_code for path in paths]
    assert answers == [200, 200, 200, 429, 429]
    assert (await client.get(API)).status_code == 200


async def test_what_does_not_exist_is_counted_and_then_refused_late(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    async def pause(delay_ms: int) -> None:
        waits.append(delay_ms)

    monkeypatch.setattr(shell, "pause", pause)
    client = stage.serve(RestOptions(anonymous_per_minute=4, probes_per_minute=100))
    answers = [
        await client.get("/nothing"),
        await client.put("/healthz"),
        await client.request("OPTIONS", f"{API}/chats"),
        await client.get(f"{API}/nothing", headers={"Authorization": "Bearer x"}),
    ]
    assert [answer.status_code for answer in answers] == [404, 405, 204, 404]
    assert [int(answer.headers["x-ratelimit-remaining"]) for answer in answers] == [3, 2, 1, 0]
    assert waits == []
    refused = await client.get("/nothing")
    assert (refused.status_code, code_of(refused)) == (429, "RATE_LIMITED")
    assert refused.headers["retry-after"] == "15"
    assert refused.headers["x-request-id"] == refused.json()["error"]["request_id"]
    assert refused.json()["error"]["details"]["limit"] == 4
    assert waits == [shell.LATE_MS]
    assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "with_header"),
    [
        ("GET", "/nothing", True),
        ("DELETE", f"{API}/chats", True),
        ("OPTIONS", f"{API}/chats", True),
        ("GET", f"{API}/chats", True),
        ("GET", API, True),
        ("PUT", "/healthz", False),
        ("PUT", "/metrics", False),
    ],
    ids=["unknown", "method", "options", "private", "public", "probe", "inside"],
)
async def test_no_header_and_no_path_gets_past_a_late_refusal(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    with_header: bool,
) -> None:
    waits: list[int] = []

    async def pause(delay_ms: int) -> None:
        waits.append(delay_ms)

    monkeypatch.setattr(shell, "pause", pause)
    ann = await stage.person("ann")
    ann.client = client = stage.serve(RestOptions(anonymous_per_minute=2))
    headers = {"Authorization": "x"} if with_header else {}
    answers = [await client.request(method, path, headers=headers) for _ in range(3)]
    assert 429 not in [answer.status_code for answer in answers[:2]]
    assert (answers[2].status_code, code_of(answers[2])) == (429, "RATE_LIMITED")
    assert answers[2].headers["retry-after"] == "30"
    assert waits == [shell.LATE_MS]
    # Who shows a good token has an allowance of its own, and does not wait.
    assert (await ann.get("/chats")).status_code == 200
    assert (await client.get("/healthz")).status_code == 200
    assert waits == [shell.LATE_MS]


async def test_log_of_a_refusal_has_the_begin_of_a_long_path(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await stage.client.get("/" + "a" * 30_000)
    (record,) = [each for each in caplog.records if each.msg == "request refused"]
    assert record.route == "GET /" + "a" * 199  # type: ignore[attr-defined]
    assert record.flood_key == "127.0.0.1"  # type: ignore[attr-defined]
