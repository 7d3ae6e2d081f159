"""Tokens that end, and tokens of another identity provider. Slow: real servers, seconds pass."""

import asyncio
import base64
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.chatting import Account, Site
from tests.e2e.test_security import claims_of, forged
from tidewire.client import Client

pytestmark = pytest.mark.slow

ISSUER = "https://id.example.org"
COOLDOWN_MS = 50
SHORT_S = 6
"""How long a token lasts that is to end: it opens a socket and sees a message before that."""


# Tokens that end.


async def test_socket_ends_with_its_token_and_a_refresh_goes_on_without_loss(
    tmp_path: Path,
) -> None:
    with Site(tmp_path) as site:
        ann, bob = await site.people("ann", "bob")
        chat_id = await site.direct(ann, bob)
        short = short_lived(site, bob)
        async with site.phone(short) as phone:
            await tell(site, ann, chat_id, "before")
            seen = (await phone.get("message"))["payload"]["sequence"]

            closing = (await phone.get("connection_closing"))["payload"]
            assert closing["reason"] == "token_expired"
            assert await phone.closed() == 1008
        await tell(site, ann, chat_id, "meanwhile")

        with pytest.raises(InvalidStatus) as caught:
            async with connect(site.socket_url, additional_headers=short.headers, proxy=None):
                raise AssertionError("an expired token was taken")
        refusal = caught.value.response
        assert refusal.status_code == 401
        assert json.loads(bytes(refusal.body or b""))["error"] == "invalid_token"

        body = {"refresh_token": bob.refresh_token, "device_id": bob.device_id}
        tokens = (await site.done("POST", "/auth/refresh", body))["tokens"]
        async with site.phone(replace(bob, token=tokens["access_token"])) as phone:
            assert phone.unread == {chat_id: 2}
            missed = await phone.sync(chat_id, seen)
            assert [message["content"] for message in missed] == ["meanwhile"]
            await tell(site, ann, chat_id, "after")
            assert (await phone.get("message"))["payload"]["content"] == "after"
        assert site.complaints() == []


def short_lived(site: Site, account: Account) -> Account:
    """The same login with a token that ends soon. Only what has to come before its end is under the
    clock: a busy machine may take seconds to register somebody."""
    key = (site.data_dir / "secrets" / "token.key").read_text().strip().encode()
    claims = claims_of(account.token)
    ends_at = int(time.time()) + SHORT_S
    return replace(account, token=forged({**claims, "exp": ends_at}, key))


async def tell(site: Site, sender: Account, chat_id: str, content: str) -> None:
    """Send over REST."""
    body = {"client_message_id": str(uuid.uuid4()), "content": content}
    await site.done("POST", f"/chats/{chat_id}/messages", body, by=sender)


# Another identity provider.


@cache
def key_of(key_id: str) -> RSAPrivateKey:
    return generate_private_key(65_537, 2048)


def public_key(key_id: str) -> dict[str, str]:
    numbers = key_of(key_id).public_key().public_numbers()
    return {"kty": "RSA", "use": "sig", "kid": key_id, "n": _b64(numbers.n), "e": _b64(numbers.e)}


def _b64(number: int) -> str:
    raw = number.to_bytes(-(-number.bit_length() // 8), "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token_of(subject: str, *, key_id: str, signed_by: str | None = None, **claims: Any) -> str:
    now = int(time.time())
    content = {
        "iss": ISSUER,
        "aud": "tidewire",
        "sub": subject,
        "iat": now,
        "exp": now + 600,
        "jti": str(uuid.uuid4()),
        "preferred_username": subject,
        "name": subject.title(),
        **claims,
    }
    key = key_of(signed_by or key_id)
    return jwt.encode(content, key, algorithm="RS256", headers={"kid": key_id})


class Provider:
    """Publishes keys on loopback, until it is taken down."""

    def __init__(self, *key_ids: str) -> None:
        self.key_ids = list(key_ids)
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                body = json.dumps({"keys": [public_key(each) for each in provider.key_ids]})
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/jwks.json"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def take_down(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


@contextmanager
def published(*key_ids: str) -> Iterator[Provider]:
    provider = Provider(*key_ids)
    try:
        yield provider
    finally:
        provider.take_down()


def federated(data_dir: Path, provider: Provider) -> Site:
    return Site(
        data_dir,
        identity__issuer=ISSUER,
        identity__jwks_url=provider.url,
        identity__keys_cooldown_ms=COOLDOWN_MS,
    )


async def me(site: Site, token: str) -> httpx.Response:
    return await site.call("GET", "/api/v1/users/me", headers={"Authorization": f"Bearer {token}"})


async def after_cooldown() -> None:
    """The keys are not asked for more often than this; nothing tells when it is over."""
    await asyncio.sleep(2 * COOLDOWN_MS / 1000)


async def test_people_of_another_provider_chat_at_first_sight(tmp_path: Path) -> None:
    with published("first") as provider, federated(tmp_path, provider) as site:
        people = {}
        for name in ("mila", "nora"):
            token = token_of(name, key_id="first")
            answer = await me(site, token)
            assert answer.status_code == 200, answer.text
            user = answer.json()["data"]
            assert (user["username"], user["display_name"]) == (name, name.title())
            assert (await me(site, token_of(name, key_id="first"))).json()["data"] == user
            people[name] = Account(
                username=name,
                user_id=user["user_id"],
                device_id=str(uuid.uuid4()),
                session_id="",
                token=token,
                refresh_token="",
            )
        chat_id = await site.direct(people["mila"], people["nora"])
        async with site.phone(people["mila"]) as mila, site.phone(people["nora"]) as nora:
            await mila.say(chat_id, "hello from elsewhere")
            assert (await nora.get("message"))["payload"]["content"] == "hello from elsewhere"
        assert provider.asked == 1
        assert site.complaints() == []


async def test_store_of_such_a_person_is_opened_again(tmp_path: Path) -> None:
    """The provider's name of a person is not the server's id, which the store has."""
    with published("first") as provider, federated(tmp_path / "data", provider) as site:
        for _ in range(2):
            token = token_of("mila", key_id="first")
            async with Client(site.url, token=token, store=tmp_path / "mila.db") as mila:
                await mila.ready()
                assert mila.user_id != "mila"


async def test_new_key_is_fetched_and_an_unknown_one_refused(tmp_path: Path) -> None:
    with published("first") as provider, federated(tmp_path, provider) as site:
        assert (await me(site, token_of("mila", key_id="first"))).status_code == 200

        provider.key_ids = ["second"]
        await after_cooldown()
        assert (await me(site, token_of("mila", key_id="second"))).status_code == 200
        assert provider.asked == 2
        # What the provider has withdrawn is no longer taken.
        assert (await me(site, token_of("mila", key_id="first"))).status_code == 401

        for token in (
            token_of("mila", key_id="nobody's"),
            token_of("mila", key_id="second", signed_by="nobody's"),
            token_of("mila", key_id="second", aud="somebody else"),
            token_of("mila", key_id="second", exp=int(time.time()) - 600),
        ):
            refused = await me(site, token)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHORIZED")
        assert site.complaints() == []


async def test_provider_that_is_down_leaves_its_keys_behind(tmp_path: Path) -> None:
    with published("first") as provider, federated(tmp_path, provider) as site:
        assert (await me(site, token_of("mila", key_id="first"))).status_code == 200
        provider.take_down()
        await after_cooldown()
        assert (await me(site, token_of("nora", key_id="first"))).status_code == 200
        assert (await me(site, token_of("mila", key_id="second"))).status_code == 401
        # Own accounts do not depend on it, and a server that never saw a key says so.
        await site.person("own")
        await site.restart()
        unknown = await me(site, token_of("mila", key_id="first"))
        assert unknown.status_code == 503
        assert int(unknown.headers["retry-after"]) >= 1
        await site.person("own")
        assert site.complaints() == []
