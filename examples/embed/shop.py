"""A small shop whose customers chat with its people about their order, inside the shop's own page.

The shop has its own accounts and its own login. Tidewire trusts the tokens that it signs, and shows
the chat as `<tidewire-chat>`. Standard library only; README.md beside this file says how to run it.

    SHOP_SECRET=… python examples/embed/shop.py --port 9000 --chat http://127.0.0.1:8080
"""

import argparse
import base64
import hashlib
import hmac
import html
import json
import os
import secrets
import time
import urllib.request
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

HERE = Path(__file__).resolve().parent
ISSUER = "https://shop.example"
AUDIENCE = "tidewire"
TOKEN_SECONDS = 600
ORDER = "Order 1042: one teapot"

NAMES = {"ann": "Ann Lee", "sara": "Sara (the shop)", "shop": "The shop"}
"""Customers and staff by user name; `shop` is the shop's backend itself."""
PEOPLE = ("ann", "sara")
"""Who talks about the order."""


def hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)


class Shop:
    """Accounts, logins, and the one order."""

    def __init__(self, chat_url: str, secret: bytes) -> None:
        self.chat_url = chat_url.rstrip("/")
        self._secret = secret
        self._salt = secrets.token_bytes(16)
        self._passwords = {name: hashed(f"{name} likes tea", self._salt) for name in PEOPLE}
        self._logins: dict[str, str] = {}
        self._chat_id: str | None = None

    def log_in(self, username: str, password: str) -> str | None:
        """A new session, or None."""
        given = hashed(password, self._salt)
        if not hmac.compare_digest(self._passwords.get(username, b""), given):
            return None
        session = secrets.token_urlsafe(24)
        self._logins[session] = username
        return session

    def log_out(self, session: str) -> None:
        self._logins.pop(session, None)

    def user_of(self, session: str) -> str | None:
        return self._logins.get(session)

    def token_of(self, username: str) -> str:
        """What Tidewire takes as this person: a JWT, signed with the secret that both know."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": f"shop-{username}",
            "preferred_username": f"shop.{username}",
            "name": NAMES[username],
            "iat": now,
            "exp": now + TOKEN_SECONDS,
        }
        head = _encoded(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
        signed = f"{head}.{_encoded(json.dumps(claims).encode())}"
        return f"{signed}.{_encoded(hmac.digest(self._secret, signed.encode(), 'sha256'))}"

    def chat_of_order(self) -> str:
        """The chat about the order, made by the shop's backend when it is first looked at."""
        if self._chat_id is None:
            # A person is known to Tidewire from the first token on.
            ids = [self._ask("GET", "/users/me", name)["user_id"] for name in PEOPLE]
            body = {"type": "group", "name": ORDER, "member_ids": ids}
            self._chat_id = str(self._ask("POST", "/chats", "shop", body)["chat_id"])
        return self._chat_id

    def _ask(self, method: str, path: str, username: str, body: object = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.chat_url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token_of(username)}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


class Handler(BaseHTTPRequestHandler):
    """The shop's pages."""

    shop: Shop

    def do_GET(self) -> None:
        user = self.shop.user_of(self._session())
        if self.path == "/chat-token":
            if user is None:
                self._send(401, "text/plain", "log in first")
            else:
                self._send(200, "text/plain", self.shop.token_of(user))
        elif self.path in ("/shop.js", "/shop.css"):
            kind = "text/javascript" if self.path.endswith("js") else "text/css"
            self._send(200, kind, (HERE / self.path[1:]).read_text(encoding="utf-8"))
        elif self.path != "/":
            self._send(404, "text/plain", "there is nothing here")
        elif user is None:
            self._send(200, "text/html", (HERE / "login.html").read_text(encoding="utf-8"))
        else:
            page = (HERE / "order.html").read_text(encoding="utf-8")
            values = {
                "name": NAMES[user],
                "order": ORDER,
                "server": self.shop.chat_url,
                "chat": self.shop.chat_of_order(),
            }
            for name, value in values.items():
                page = page.replace(f"{{{name}}}", html.escape(value))
            self._send(200, "text/html", page)

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 10_000)).decode()
        if self.path == "/login":
            form = parse_qs(body)
            session = self.shop.log_in(form.get("user", [""])[0], form.get("password", [""])[0])
            self._go_home(session or "")
        elif self.path == "/logout":
            self.shop.log_out(self._session())
            self._go_home("")
        else:
            self._send(404, "text/plain", "there is nothing here")

    def _session(self) -> str:
        cookie = SimpleCookie(self.headers.get("Cookie", ""))
        return cookie["session"].value if "session" in cookie else ""

    def _go_home(self, session: str) -> None:
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"session={session}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        chat = self.shop.chat_url
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        # All that the widget needs of a page: its script, and its server.
        self.send_header(
            "Content-Security-Policy",
            f"default-src 'none'; style-src 'self'; script-src 'self' {chat};"
            f" connect-src 'self' {chat} {chat.replace('http', 'ws', 1)}; form-action 'self'",
        )
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A shop with a chat in its page.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--chat", default="http://127.0.0.1:8080", help="where Tidewire is")
    options = parser.parse_args()
    Handler.shop = Shop(options.chat, os.environ["SHOP_SECRET"].encode())
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(f"The shop is open: http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
