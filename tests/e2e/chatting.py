"""People who chat with a real server: `websockets` and `httpx`, nothing of ours. Holds no test."""

import asyncio
import json
import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.commands import EVERY_OPTION
from tests.e2e.serving import ServerProcess, serving

Frame = dict[str, Any]

PASSWORD: Final = "correct horse battery"
PATIENCE_S: Final = 30.0

ROOMY: Final[Mapping[str, int]] = {
    # All people of a test come from one address and register at once.
    "accounts.throttle.register_ip_burst": 10_000,
    "accounts.throttle.login_ip_burst": 10_000,
    "accounts.passwords.memory_kib": 64,
    "accounts.passwords.passes": 1,
    "gateway.ip_connects_per_minute": 1_000_000,
    "gateway.user_connects_per_minute": 10_000,
    "gateway.send_chat_rate_per_second": 100_000,
    "gateway.send_chat_burst": 100_000,
    "gateway.send_user_rate_per_second": 100_000,
    "gateway.send_user_burst": 100_000,
    "chats.strangers_per_hour": 1_000_000,
    "rest.anonymous_per_minute": 100_000,
    "rest.probes_per_minute": 100_000,
    "server.inbound_bytes_per_second": 100_000_000,
    "server.inbound_burst_bytes": 100_000_000,
    "server.address_http_connections_max": 2_000,
    "server.address_connections_max": 10_000,
    "rest.reads_per_minute": 100_000,
    "rest.writes_per_minute": 100_000,
    # Ticks are told as they move, or a test would wait for the interval each time.
    "fanout.status_interval_ms": 5,
}

OWN_NAMES: Final = {"own_delivered": "delivered", "own_read": "read"}
RISING: Final = ("head", "delivered", "read", "others_delivered", "others_read")
"""What never goes down, as a digest calls it."""


class HungUp(Exception):
    """The connection ended while something was expected of it."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Somebody, logged in on a device."""

    username: str
    user_id: str
    device_id: str
    session_id: str
    token: str
    refresh_token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "X-Device-ID": self.device_id}


class Phone:
    """One device on a WebSocket. What comes is kept until somebody asks for it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.inbox: list[Frame] = []
        """What nobody has asked for yet, in the order of arrival."""
        self.shown: dict[str, dict[str, int]] = defaultdict(dict)
        """The numbers of each chat as a client keeps them: merged by maximum."""
        self.unread: dict[str, int] = {}
        """As the digest or the last status update with this number said."""
        self.on_frame: Callable[[Frame], None] | None = None
        self.is_over = False
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    # Listening.

    def listen(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def end(self) -> None:
        await self.connection.close()
        if self._reading is not None:
            await self._reading

    def cut(self) -> None:
        """The network is gone, without a word."""
        self.connection.transport.abort()

    async def _read(self) -> None:
        try:
            async for text in self.connection:
                said = json.loads(text)
                for frame in said if isinstance(said, list) else [said]:
                    self._note(frame)
                    self.inbox.append(frame)
                    if self.on_frame is not None:
                        self.on_frame(frame)
                self._news.set()
        except ConnectionClosed:
            pass
        finally:
            self.is_over = True
            self._news.set()

    def _note(self, frame: Frame) -> None:
        payload = frame["payload"]
        match frame["type"]:
            case "chat_digest":
                for chat in payload["chats"]:
                    self._merge(chat)
            case "status_update":
                self._merge(payload)
            case _:
                pass

    def _merge(self, numbers: Frame) -> None:
        shown = self.shown[numbers["chat_id"]]
        for name, value in numbers.items():
            known = OWN_NAMES.get(name, name)
            if known in RISING:
                shown[known] = max(shown.get(known, 0), value)
        if "unread" in numbers:
            self.unread[numbers["chat_id"]] = numbers["unread"]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so; it is looked at after every frame."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                if self.is_over:
                    raise HungUp(self.connection.close_code, self.inbox)
                self._news.clear()
                await self._news.wait()

    def find(self, frame_type: str, **fields: object) -> Frame | None:
        for frame in self.inbox:
            if frame["type"] == frame_type and all(
                frame.get(name, frame["payload"].get(name)) == value
                for name, value in fields.items()
            ):
                return frame
        return None

    async def get(self, frame_type: str, **fields: object) -> Frame:
        """The first frame of this type with these fields; it is taken out of the inbox."""
        await self.until(lambda: self.find(frame_type, **fields) is not None)
        frame = self.find(frame_type, **fields)
        assert frame is not None
        self.inbox.remove(frame)
        return frame

    def all_of(self, frame_type: str, chat_id: str | None = None) -> list[Frame]:
        """The payloads in the inbox."""
        return [
            frame["payload"]
            for frame in self.inbox
            if frame["type"] == frame_type and chat_id in (None, frame["payload"].get("chat_id"))
        ]

    def pushed(self, chat_id: str) -> list[str]:
        """The texts that came by themselves."""
        return [message["content"] for message in self.all_of("message", chat_id)]

    async def numbers(self, chat_id: str, **at_least: int) -> dict[str, int]:
        """What this device shows of a chat, once it shows at least this."""
        await self.until(
            lambda: all(self.shown[chat_id].get(name, 0) >= n for name, n in at_least.items())
        )
        return {name: self.shown[chat_id].get(name, 0) for name in RISING}

    async def closed(self) -> int:
        """Wait for the end; how it was closed."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.is_over:
                self._news.clear()
                await self._news.wait()
        code = self.connection.close_code
        assert code is not None
        return code

    # Talking.

    async def post(self, frame_type: str, payload: Frame, request_id: str | None = None) -> None:
        frame: Frame = {"type": frame_type, "payload": payload}
        if request_id is not None:
            frame["request_id"] = request_id
        await self.connection.send(json.dumps(frame))

    async def ask(self, frame_type: str, payload: Frame) -> Frame:
        """Send a request; its answer, which may be an error."""
        request_id = str(uuid.uuid4())
        await self.post(frame_type, payload, request_id)
        await self.until(lambda: any(f.get("request_id") == request_id for f in self.inbox))
        answer = next(frame for frame in self.inbox if frame.get("request_id") == request_id)
        self.inbox.remove(answer)
        return answer

    async def say(self, chat_id: str, content: str, key: str | None = None) -> Frame:
        """Send a message and wait for its ack."""
        payload = {"chat_id": chat_id, "content": content, "client_message_id": key or new_key()}
        answer = await self.ask("send_message", payload)
        assert answer["type"] == "send_message_ack", answer
        acked: Frame = answer["payload"]
        return acked

    async def ack(self, chat_id: str, sequence: int) -> None:
        await self.post("ack", {"chat_id": chat_id, "last_acked_sequence": sequence})

    async def read(self, chat_id: str, sequence: int) -> None:
        await self.post("read", {"chat_id": chat_id, "last_read_sequence": sequence})

    async def sync(self, chat_id: str, cursor: int = 0, limit: int = 500) -> list[Frame]:
        """Everything above a cursor, page by page as the protocol says."""
        messages: list[Frame] = []
        while True:
            wish = {"chat_id": chat_id, "last_acked_sequence": cursor, "limit": limit}
            answer = await self.ask("sync_request", wish)
            assert answer["type"] == "sync_response", answer
            page = answer["payload"]
            messages += page["messages"]
            if not page["has_more"]:
                return messages
            cursor = page["next_sequence"] - 1

    async def caught_up(self) -> None:
        """Everything that the server had sent before this was asked has arrived."""
        answer = await self.ask("heartbeat", {})
        assert answer["type"] == "heartbeat_ack", answer


class Address(ABC):
    """Where a server listens, and what people do there."""

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/ws"

    # What people do over HTTP.

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        by: Account | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        sent = {**({} if by is None else by.headers), **(headers or {})}
        # Without TLS there is nothing to verify, and making a context takes longer than asking.
        async with httpx.AsyncClient(
            base_url=self.url, verify=False, timeout=PATIENCE_S, trust_env=False
        ) as client:
            return await client.request(method, path, json=body, headers=sent)

    async def done(
        self, method: str, path: str, body: object = None, *, by: Account | None = None
    ) -> Any:
        """The data of an answer that has to be a good one."""
        answer = await self.call(method, f"/api/v1{path}", body, by=by)
        assert answer.is_success, (answer.status_code, answer.text)
        return answer.json()["data"] if answer.content else None

    async def person(self, name: str) -> Account:
        """A new account, whose name begins like this."""
        return await self.named(f"{name}-{uuid.uuid4().hex[:8]}")

    async def named(self, username: str) -> Account:
        """A new account with just this name."""
        return await self._enter("/auth/register", username)

    async def people(self, *names: str) -> list[Account]:
        return [await self.person(name) for name in names]

    async def login(self, who: Account | str) -> Account:
        """The same person, by account or user name, on another device."""
        username = who if isinstance(who, str) else who.username
        return await self._enter("/auth/login", username)

    async def _enter(self, path: str, username: str) -> Account:
        device_id = str(uuid.uuid4())
        body = {"username": username, "password": PASSWORD, "device_id": device_id}
        data = await self.done("POST", path, body)
        return Account(
            username=username,
            user_id=data["user"]["user_id"],
            device_id=device_id,
            session_id=data["session"]["session_id"],
            token=data["tokens"]["access_token"],
            refresh_token=data["tokens"]["refresh_token"],
        )

    async def direct(self, one: Account, other: Account) -> str:
        body = {"type": "direct", "member_ids": [other.user_id]}
        return str((await self.done("POST", "/chats", body, by=one))["chat_id"])

    async def group(self, owner: Account, *others: Account) -> str:
        body = {"type": "group", "name": "group", "member_ids": [one.user_id for one in others]}
        return str((await self.done("POST", "/chats", body, by=owner))["chat_id"])

    async def metric(self, name: str) -> float:
        page = (await self.call("GET", "/metrics")).text
        return sum(
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        )

    # What people do over a WebSocket.

    @asynccontextmanager
    async def phone(
        self, account: Account, *, features: Sequence[str] = (), **options: Any
    ) -> AsyncIterator[Phone]:
        """A device that has connected and got its digest. It offers these features."""
        offered = {"X-Tidewire-Features": ", ".join(features)} if features else {}
        async with connect(
            self.socket_url,
            additional_headers={**account.headers, **offered},
            proxy=None,
            **options,
        ) as connection:
            phone = Phone(connection)
            phone.listen()
            try:
                await phone.get("connection_established")
                await phone.get("chat_digest", last=True)
                yield phone
            finally:
                await phone.end()


class Site(Address):
    """A server with room for a crowd of tests, that can be killed and started again."""

    always: Mapping[str, int] = ROOMY
    """Settings of all servers of this kind."""
    program: Sequence[str] = EVERY_OPTION

    def __init__(self, data_dir: Path, **settings: int | str) -> None:
        """Settings are named with `__` for the dot."""
        self.data_dir = data_dir
        named = {**self.always, **{name.replace("__", "."): v for name, v in settings.items()}}
        self._arguments = [part for n, v in named.items() for part in ("--set", f"{n}={v}")]
        self._stack = ExitStack()
        self._server: ServerProcess | None = None
        self._reader: threading.Thread | None = None
        self.log: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def server(self) -> ServerProcess:
        assert self._server is not None, "not started"
        return self._server

    @property
    def url(self) -> str:
        return self.server.url

    def start(self) -> None:
        server = self._server = self._stack.enter_context(
            serving(self.data_dir, *self._arguments, program=self.program)
        )
        # A log that nobody reads would stop the server.
        self._reader = threading.Thread(target=self._read_log, args=(server,), daemon=True)
        self._reader.start()
        if not server.is_up:
            self.kill()
            raise AssertionError("".join(self.log))

    def _read_log(self, server: ServerProcess) -> None:
        assert server.process.stderr is not None
        self.log.extend(server.process.stderr)

    def kill(self) -> None:
        """kill -9, and nothing is left of it but its data."""
        if self._server is None:
            return
        self._server.process.kill()
        self._server.process.wait()
        assert self._reader is not None
        self._reader.join(PATIENCE_S)
        self._stack.close()
        self._server = None

    async def restart(self) -> None:
        await asyncio.to_thread(self.kill)
        await asyncio.to_thread(self.start)

    def complaints(self) -> list[str]:
        """Lines of the log that say that something is wrong with the server itself."""
        return [
            line
            for line in self.log
            if not line.startswith("{") or json.loads(line).get("level") in ("error", "critical")
        ]

    def open_files(self) -> int:
        return len(self.files())

    def files(self) -> list[str]:
        """What its processes have open, sockets included, but for the store's own files: each of
        its threads opens them when it first reads, and that may be at any time."""
        found: list[Path] = []
        for pid in self.server.pids():
            found += open_files_of(pid)
        return sorted(str(one) for one in found if not one.is_relative_to(self.data_dir))

    def opened_since(self, before: list[str]) -> list[str]:
        """What is open now and was not then; of a socket also its ends and its state, in the
        kernel's numbers."""
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        sockets = {f"socket:[{words[9]}]": words[1:4] for words in map(str.split, lines)}
        opened = Counter(self.files()) - Counter(before)
        return [f"{one} {sockets.get(one, '')}" for one in opened.elements()]


class PlainSite(Site):
    """A server at its default settings."""

    always: Mapping[str, int] = {}


def open_files_of(pid: int) -> list[Path]:
    """What a process has open, but for what it closes while it is looked at."""
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(each.readlink())
    return found


def new_key() -> str:
    return str(uuid.uuid4())


async def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Wait for what no frame tells of, such as files that are closed."""
    for _ in range(int(PATIENCE_S / 0.02)):
        if is_so():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(what)


async def eventually_metric(site: Site, name: str, value: float) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await site.metric(name) != value:  # noqa: ASYNC110 - it is in another process
            await asyncio.sleep(0.05)


def texts(messages: list[Frame]) -> list[str]:
    return [message["content"] for message in messages]


def chained(messages: list[Frame], cursor: int = 0) -> bool:
    """Each message names the one before it, from the cursor on: none is missing, none is twice."""
    for message in messages:
        if message["prev_sequence"] != cursor or message["sequence"] <= cursor:
            return False
        cursor = message["sequence"]
    return True


async def send_all(phone: Phone, chat_id: str, wanted: dict[str, str]) -> None:
    """Send without waiting for acks; the request id is the message's key."""
    for key, content in wanted.items():
        payload = {"chat_id": chat_id, "client_message_id": key, "content": content}
        await phone.post("send_message", payload, key)


async def others(phone: Phone, chat_id: str, delivered: int, read: int) -> None:
    """Wait for these boundaries, and see that they are not higher."""
    numbers = await phone.numbers(chat_id, others_delivered=delivered, others_read=read)
    assert (numbers["others_delivered"], numbers["others_read"]) == (delivered, read)


async def stored(phone: Phone, chat_id: str, **positions: int) -> None:
    """Wait until the user's own positions are in the digest: a lone device is not told of them."""
    async with asyncio.timeout(PATIENCE_S):
        while any(phone.shown[chat_id].get(name, 0) < n for name, n in positions.items()):
            await phone.ask("digest_request", {})
