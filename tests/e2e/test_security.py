"""What outsiders, thieves and forgers get from a real server: nothing. Slow: real processes."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.chatting import PASSWORD, PATIENCE_S, Account, Frame, Site, new_key
from tidewire.accounts.login_limits import ADDRESS_INTERVAL_MS

pytestmark = pytest.mark.slow

Claims = dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(
        tmp_path_factory.mktemp("security"),
        server__header_timeout_ms=5_000,
        server__keep_alive_ms=1_000,
    ) as site:
        yield site
        assert site.complaints() == []


async def refused(site: Site, headers: dict[str, str], url: str | None = None) -> tuple[int, Frame]:
    """Status and body of an upgrade that has to be refused."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url or site.socket_url, additional_headers=headers, proxy=None):
            raise AssertionError("the upgrade was accepted")
    body = caught.value.response.body
    assert body is not None
    return caught.value.response.status_code, json.loads(bytes(body))


def without_request_id(answer: httpx.Response) -> tuple[int, object]:
    body = answer.json() if answer.content else None
    if body is not None:
        body.get("error", {}).pop("request_id", None)
    return answer.status_code, body


# Outsiders.


def missing_like(chat_id: str) -> str:
    """An id of the same form that belongs to no chat."""
    last = "0" if chat_id[-1] != "0" else "1"
    return chat_id[:-1] + last


def endpoints(chat_id: str, user_id: str, message_id: str) -> list[tuple[str, str, object]]:
    chat = f"/api/v1/chats/{chat_id}"
    member = f"{chat}/members/{user_id}"
    message = {"client_message_id": new_key(), "content": "let me in"}
    position = {"last_acked_sequence": 1}
    return [
        ("GET", chat, None),
        ("PATCH", chat, {"name": "mine"}),
        ("POST", f"{chat}/members", {"user_id": user_id}),
        ("DELETE", member, None),
        ("PATCH", member, {"role": "admin"}),
        ("POST", f"{chat}/leave", None),
        ("POST", f"{chat}/mute", {"duration_hours": 1}),
        ("POST", f"{chat}/unmute", None),
        ("GET", f"{chat}/messages", None),
        ("GET", f"{chat}/messages?after_sequence=0&direction=forward", None),
        ("GET", f"{chat}/messages/around/1", None),
        ("GET", f"{chat}/messages/{message_id}", None),
        ("POST", f"{chat}/messages", message),
        ("GET", f"{chat}/delivery-status", None),
        ("GET", f"{chat}/delivery-status?for_sequence=1", None),
        ("PATCH", f"{chat}/delivery-state", position),
        ("PATCH", f"{chat}/delivery-state", {"last_acked_sequence": 1_000}),
        ("PATCH", f"/api/v1/delivery-state/{chat_id}", position),
        ("GET", f"/api/v1/delivery-state?chat_ids={chat_id}", None),
    ]


async def test_outsider_cannot_tell_a_chat_from_none_over_rest(site: Site) -> None:
    ann, bob, eve = await site.people("ann", "bob", "eve")
    chats = [await site.direct(ann, bob), await site.group(ann, bob)]
    for chat_id in chats:
        async with site.phone(ann) as phone:
            message_id = (await phone.say(chat_id, "secret"))["message_id"]
        real = endpoints(chat_id, bob.user_id, message_id)
        none = endpoints(missing_like(chat_id), bob.user_id, message_id)
        for (method, path, body), (_, missing, _) in zip(real, none, strict=True):
            existing = await site.call(method, path, body, by=eve)
            absent = await site.call(method, missing, body, by=eve)
            told = f"{method} {path}: {existing.text} {absent.text}"
            assert without_request_id(existing) == without_request_id(absent), told
            assert existing.status_code == 403, told
            assert existing.json()["error"]["code"] == "NOT_A_MEMBER", told
            assert "secret" not in existing.text
        # And nothing came of it.
        status = await site.call("GET", f"/api/v1/chats/{chat_id}/delivery-status", by=ann)
        assert status.json()["member_count"] == 2


async def test_outsider_cannot_tell_a_chat_from_none_over_frames(site: Site) -> None:
    ann, bob, eve = await site.people("ann", "bob", "eve")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as member, site.phone(eve) as outsider:
        await member.say(chat_id, "secret")
        answers: dict[str, list[Frame]] = {"real": [], "missing": []}
        for name, wanted in (("real", chat_id), ("missing", missing_like(chat_id))):
            message = {"chat_id": wanted, "client_message_id": new_key(), "content": "hello"}
            sync = {"chat_id": wanted, "last_acked_sequence": 0}
            ahead = {"chat_id": wanted, "last_acked_sequence": 1_000}
            for kind, payload in (
                ("send_message", message),
                ("sync_request", sync),
                ("sync_request", ahead),
            ):
                answer = await outsider.ask(kind, payload)
                answers[name].append({"type": answer["type"], "payload": answer["payload"]})
            for kind, payload in (
                ("ack", {"chat_id": wanted, "last_acked_sequence": 1}),
                ("ack", {"chat_id": wanted, "last_acked_sequence": 1_000}),
                ("read", {"chat_id": wanted, "last_read_sequence": 1}),
                ("typing_start", {"chat_id": wanted}),
                ("typing_stop", {"chat_id": wanted}),
            ):
                await outsider.post(kind, payload)
            # A read after them is answered when they have been looked at.
            await outsider.ask("sync_request", sync)
            await outsider.caught_up()
            assert outsider.inbox == []
        assert answers["real"] == answers["missing"]
        assert {one["payload"]["code"] for one in answers["real"]} == {"NOT_A_MEMBER"}
        await member.caught_up()
        assert member.all_of("typing_indicator") == []
        assert member.shown[chat_id].get("others_delivered", 0) == 0


# Sessions that have ended.


async def is_shut_out(site: Site, account: Account) -> None:
    rest = await site.call("GET", "/api/v1/users/me", by=account)
    assert rest.status_code == 401
    status, body = await refused(site, account.headers)
    assert (status, body["error"]) == (401, "token_revoked")
    body = {"refresh_token": account.refresh_token, "device_id": account.device_id}
    refresh = await site.call("POST", "/api/v1/auth/refresh", body)
    assert refresh.status_code == 401
    assert refresh.json()["error"]["code"] == "INVALID_REFRESH_TOKEN"


async def test_revoked_session_loses_socket_and_tokens_at_once(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    stolen = await site.login(ann)
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as own, site.phone(stolen) as thief, site.phone(bob) as other:
        await site.done("DELETE", f"/sessions/{stolen.session_id}", by=ann)
        # The answer to the revocation is there: from now on nothing reaches the thief.
        await other.say(chat_id, "after the revocation")
        closing = await thief.get("connection_closing")
        assert closing["payload"]["reason"] == "session_revoked"
        assert await thief.closed() == 1008
        assert thief.pushed(chat_id) == []
        await own.get("message", content="after the revocation")
    await is_shut_out(site, stolen)
    assert (await site.call("GET", "/api/v1/users/me", by=ann)).status_code == 200


async def test_logout_and_the_end_of_all_other_sessions(site: Site) -> None:
    ann = await site.person("ann")
    second, third = await site.login(ann), await site.login(ann)
    async with site.phone(second) as phone, site.phone(third) as other:
        await site.done("POST", "/auth/logout", {}, by=second)
        assert await phone.closed() == 1008
        ended = await site.done("DELETE", "/sessions", by=ann)
        assert ended["revoked_count"] == 1
        assert await other.closed() == 1008
    await is_shut_out(site, second)
    await is_shut_out(site, third)


async def test_nobody_ends_somebody_elses_session(site: Site) -> None:
    ann, eve = await site.people("ann", "eve")
    real = await site.call("DELETE", f"/api/v1/sessions/{ann.session_id}", by=eve)
    missing = missing_like(ann.session_id)
    absent = await site.call("DELETE", f"/api/v1/sessions/{missing}", by=eve)
    assert without_request_id(real) == without_request_id(absent)
    assert real.status_code == 404
    assert (await site.call("GET", "/api/v1/users/me", by=ann)).status_code == 200


async def test_revocation_survives_a_kill(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        ann = await site.person("ann")
        stolen = await site.login(ann)
        await site.done("DELETE", f"/sessions/{stolen.session_id}", by=ann)
        await site.restart()
        await is_shut_out(site, stolen)
        assert site.complaints() == []


# Forged tokens.


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(claims: Claims, key: bytes, *, alg: str = "HS256", signs: bool = True) -> str:
    signed = f"{part({'alg': alg, 'typ': 'JWT'})}.{part(claims)}"
    mac = hmac.new(key, signed.encode(), hashlib.sha256).digest() if signs else b""
    return f"{signed}.{part(mac)}"


def claims_of(token: str) -> Claims:
    payload = token.split(".")[1]
    claims: Claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


async def test_forged_tokens_are_refused_everywhere(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    key = (site.data_dir / "secrets" / "token.key").read_text().strip().encode()
    claims = claims_of(ann.token)
    head, payload, signature = ann.token.split(".")
    # The forger knows his trade: with the right key and claims he gets in.
    genuine = forged(claims, key)
    assert (await ask_as(site, ann, genuine)) == 200
    now = int(time.time())
    tokens = {
        "none": forged(claims, key, alg="none", signs=False),
        "None": forged(claims, key, alg="None", signs=False),
        "none, signed": forged(claims, key, alg="none"),
        "no signature": f"{head}.{payload}.",
        "RS256 with the secret": forged(claims, key, alg="RS256"),
        "HS512 by name": forged(claims, key, alg="HS512"),
        "another key": forged(claims, b"k" * 64),
        "empty key": forged(claims, b""),
        "another audience": forged({**claims, "aud": "somebody else"}, key),
        "no audience": forged({k: v for k, v in claims.items() if k != "aud"}, key),
        "another issuer": forged({**claims, "iss": "somebody else"}, key),
        "another user": f"{head}.{part({**claims, 'sub': bob.user_id})}.{signature}",
        "another user, signed": forged({**claims, "sub": bob.user_id}, key),
        "expired": forged({**claims, "exp": now - 60}, key),
        "never expires": forged({k: v for k, v in claims.items() if k != "exp"}, key),
        "from the future": forged(
            {**claims, "iat": now + 2 * 86_400, "exp": now + 3 * 86_400}, key
        ),
        "no session": forged({k: v for k, v in claims.items() if k != "sid"}, key),
        "unknown session": forged({**claims, "sid": missing_like(claims["sid"])}, key),
        "not JSON": f"{head}.{part(b'not json')}.{signature}",
        "rubbish": "rubbish",
        "too long": "a" * 9_000,
    }
    statuses = {name: await ask_as(site, ann, token) for name, token in tokens.items()}
    assert statuses == dict.fromkeys(tokens, 401)
    for name, token in tokens.items():
        headers = {**ann.headers, "Authorization": f"Bearer {token}"}
        status, body = await refused(site, headers)
        assert status in (400, 401), (name, body)
        assert body["error"] in ("invalid_token", "token_revoked", "invalid_request"), name
    log = "".join(site.log)
    assert not any(token in log for name, token in tokens.items() if name != "rubbish")
    assert key.decode() not in log


async def ask_as(site: Site, account: Account, token: str) -> int:
    headers = {**account.headers, "Authorization": f"Bearer {token}"}
    return (await site.call("GET", "/api/v1/users/me", headers=headers)).status_code


async def test_token_of_one_device_is_refused_on_another(site: Site) -> None:
    ann = await site.person("ann")
    headers = {**ann.headers, "X-Device-ID": str(uuid.uuid4())}
    status, body = await refused(site, headers)
    assert (status, body["error"]) == (401, "invalid_token")
    assert (await site.call("GET", "/api/v1/users/me", headers=headers)).status_code == 401


# Browsers and URLs.


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:1"],
)
async def test_cross_origin_upgrade_is_refused(site: Site, origin: str) -> None:
    ann = await site.person("ann")
    status, body = await refused(site, {**ann.headers, "Origin": origin})
    assert (status, body["error"]) == (400, "invalid_request")


async def test_page_of_the_server_itself_connects_with_subprotocols(site: Site) -> None:
    ann = await site.person("ann")
    async with connect(
        site.socket_url,
        origin=site.url,  # type: ignore[arg-type]
        subprotocols=["tidewire.v1", f"bearer.{ann.token}", f"device.{ann.device_id}"],  # type: ignore[list-item]
        proxy=None,
    ) as connection:
        assert connection.subprotocol == "tidewire.v1"
        first = json.loads(await asyncio.wait_for(connection.recv(), PATIENCE_S))
        assert first["type"] == "connection_established"


async def test_token_in_the_url_is_refused_and_not_logged(site: Site) -> None:
    ann = await site.person("ann")
    query = f"?token={ann.token}&device_id={ann.device_id}"
    for headers in ({}, ann.headers):
        status, body = await refused(site, headers, site.socket_url + query)
        assert (status, body["error"]) == (400, "invalid_request")
    rest = await site.call("GET", f"/api/v1/users/me{query}")
    assert rest.status_code == 401
    assert ann.token not in "".join(site.log)


# Guessing.


async def test_login_is_throttled_by_name_whatever_address_is_claimed(tmp_path: Path) -> None:
    # The account got in from this address: its budget there is apart from that of strangers.
    bursts = {"accounts__throttle__login_name_burst": 4, "accounts__throttle__login_known_burst": 4}
    with Site(tmp_path, **bursts) as site:
        ann, bob = await site.people("ann", "bob")

        async def try_as(username: str, password: str, address: str) -> httpx.Response:
            body = {"username": username, "password": password, "device_id": str(uuid.uuid4())}
            headers = {"X-Forwarded-For": address, "Forwarded": f"for={address}"}
            return await site.call("POST", "/api/v1/auth/login", body, headers=headers)

        answers = [await try_as(ann.username, f"wrong guess {n}", f"10.0.0.{n}") for n in range(8)]
        assert [one.status_code for one in answers] == [401] * 4 + [429] * 4
        assert int(answers[-1].headers["Retry-After"]) > 0
        # Even the right one has to wait, so a guesser learns nothing; others do not.
        assert (await try_as(ann.username, PASSWORD, "10.0.1.1")).status_code == 429
        assert (await try_as(bob.username, PASSWORD, "10.0.1.1")).status_code == 200
        # Nobody learns from the answer whether there is such a name.
        unknown = [await try_as("nobody-at-all", f"guess {n}", "10.0.2.1") for n in range(5)]
        assert [one.status_code for one in unknown] == [401] * 4 + [429]
        assert without_request_id(unknown[0]) == without_request_id(answers[0])
        # Who is logged in stays so.
        assert (await site.call("GET", "/api/v1/users/me", by=ann)).status_code == 200
        assert site.complaints() == []


async def test_login_is_throttled_by_address(tmp_path: Path) -> None:
    with Site(tmp_path, accounts__throttle__login_ip_burst=5) as site:
        statuses: list[int] = []
        began_s = time.monotonic()
        while 429 not in statuses:
            number = len(statuses)
            body = {"username": f"name-{number}", "password": "x", "device_id": str(uuid.uuid4())}
            headers = {"X-Forwarded-For": f"10.0.0.{number}"}
            answer = await site.call("POST", "/api/v1/auth/login", body, headers=headers)
            statuses.append(answer.status_code)
            # One more each interval: a slow machine gives time for some.
            more = (time.monotonic() - began_s) * 1000 // ADDRESS_INTERVAL_MS
            assert len(statuses) <= 5 + 1 + more
        assert statuses == [401] * (len(statuses) - 1) + [429]
        assert len(statuses) > 5


# Injection.


async def raw_answer(site: Site, request: bytes) -> bytes:
    """What a plain socket gets for these bytes, until the server has had enough of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "value",
    [
        b"x%0d%0aSet-Cookie: stolen=1",
        b"x\rSet-Cookie: stolen=1",
        b"x\nSet-Cookie: stolen=1",
        b"x\x00y",
        b"\xe2\x80\xa8x",
        b"a" * 10_000,
        b"<script>alert(1)</script>",
    ],
)
async def test_header_values_do_not_reach_the_answer(site: Site, value: bytes) -> None:
    for path in (b"/api/v1/", b"/api/v1/users/me", b"/nowhere"):
        answer = await raw_answer(
            site,
            b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: " + value
            + b"\r\nIdempotency-Key: " + value + b"\r\nConnection: close\r\n\r\n",
        )  # fmt: skip
        assert answer.startswith(b"HTTP/1.1 "), answer
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert b"set-cookie" not in head
        assert value not in answer


@pytest.mark.parametrize(
    "path",
    [
        "/../secrets/token.key",
        "/docs/../../secrets/token.key",
        "/docs/%2e%2e/%2e%2e/secrets/token.key",
        "/api/v1/chats/..%2f..%2f..%2fmetrics",
        "/api/v1/chats/%00",
        "/api/v1/chats/%0d%0aSet-Cookie:%20stolen=1",
        "/api/v1/chats/chat_1%27%20OR%20%271%27=%271",
        "/api/v1/chats/%ff%fe",
        "//evil.example/%2f..",
        "/api/v1/users/" + "a" * 5_000,
    ],
)
async def test_paths_lead_nowhere_else(site: Site, path: str) -> None:
    ann = await site.person("ann")
    key = (site.data_dir / "secrets" / "token.key").read_bytes().strip()
    token = f"Authorization: Bearer {ann.token}\r\n"
    answer = await raw_answer(
        site, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n".encode()
    )
    head = answer.partition(b"\r\n\r\n")[0]
    status = int(head.split(b" ")[1])
    assert status in (400, 403, 404), answer[:500]
    assert b"set-cookie" not in head.lower()
    assert b"location" not in head.lower()
    assert key not in answer
    assert b"gateway_connections_active" not in answer


SMUGGLED = b"GET /api/v1/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
AMBIGUOUS = (
    b"Content-Length: 5\r\nContent-Length: 50\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Name With Space: x\r\n",
    b": no name\r\n",
)


async def test_requests_that_two_servers_read_differently_are_refused(site: Site) -> None:
    begin = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\n"
    rest = b"\r\n0\r\n\r\n" + SMUGGLED
    answers = await asyncio.gather(*(raw_answer(site, begin + one + rest) for one in AMBIGUOUS))
    for lines, answer in zip(AMBIGUOUS, answers, strict=True):
        # One answer at most, and no good one: what follows is not taken for a request.
        assert answer.count(b"HTTP/1.1 ") <= 1, (lines, answer)
        assert b"HTTP/1.1 200" not in answer, (lines, answer)
