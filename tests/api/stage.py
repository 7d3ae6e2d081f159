"""The REST application on a memory store, with people who talk to it.

Everything is real but the clock, the randomness, the password hash (plain) and the network: httpx
calls the application directly.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import httpx

from tests.support.memory import MemoryStorage
from tidewire.accounts.assembly import Accounts, assemble_accounts
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import AccountOptions, IdentityOptions, Registration
from tidewire.chats.options import ChatOptions
from tidewire.chats.service import ChatService
from tidewire.delivery.options import DeliveryOptions
from tidewire.delivery.service import DeliveryService
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, SessionId, UlidSource, UserId
from tidewire.edge.rest.app import build_rest_app
from tidewire.edge.rest.options import RestOptions
from tidewire.edge.rest.services import RestServices
from tidewire.edge.web_files import WebFiles
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.service import send_limiter
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ops.erase import erase_messages
from tidewire.ports.event_log import CommitBus
from tidewire.runtime.supervise import TaskSupervisor

START_MS = 1_900_000_000_000
PASSWORD = "correct horse"
API = "/api/v1"

Result = TypeVar("Result")
Json = Any


class ManualClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.monotonic = 5_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def pass_ms(self, length_ms: int) -> None:
        self.wall += length_ms
        self.monotonic += length_ms


class PlainHasher:
    def hash(self, password: Secret) -> str:
        return password.reveal()

    def matches(self, stored: str, password: Secret) -> bool:
        return stored == password.reveal()

    def is_outdated(self, stored: str) -> bool:
        return False


@dataclass
class Person:
    """Somebody who is logged in, with a client that shows his token."""

    client: httpx.AsyncClient
    user_id: UserId
    session_id: SessionId
    username: str
    device_id: str
    access_token: str
    refresh_token: str

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.call("GET", path, params=query)

    async def post(self, path: str, body: Json = None, *, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.call("POST", path, json=body, headers=headers)

    async def patch(self, path: str, body: Json) -> httpx.Response:
        return await self.call("PATCH", path, json=body)

    async def put(self, path: str) -> httpx.Response:
        return await self.call("PUT", path)

    async def delete(self, path: str, **query: Any) -> httpx.Response:
        return await self.call("DELETE", path, params=query)

    async def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.access_token}", **arguments.pop("headers", {})}
        if arguments.get("json", ...) is None:
            del arguments["json"]
        return await self.client.request(method, API + path, headers=headers, **arguments)

    async def send(self, chat_id: str, content: str, *, key: str | None = None) -> Json:
        """Send a message and return what was acknowledged."""
        body = {"client_message_id": key or str(uuid.uuid4()), "content": content}
        answer = await self.post(f"/chats/{chat_id}/messages", body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["data"]


@dataclass
class Stage:
    services: RestServices
    accounts: Accounts
    clock: ManualClock
    store: MemoryStorage
    revoked: list[SessionId]
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    readiness: Exception | None = None
    client: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        self.services = replace(self.services, check_ready=self._check_ready)
        self.serve()

    async def _check_ready(self) -> None:
        if self.readiness is not None:
            raise self.readiness

    def serve(
        self,
        options: RestOptions | None = None,
        *,
        web_files: WebFiles | None = None,
        client_ip: str = "127.0.0.1",
        **changed: Any,
    ) -> httpx.AsyncClient:
        """Build the application anew, with other options or services."""
        app: Any = build_rest_app(
            replace(self.services, **changed),
            options or RestOptions(**GENEROUS),
            web_files=web_files,
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=True, client=(client_ip, 123)),
            base_url="http://tidewire.test",
        )
        self.clients.append(self.client)
        return self.client

    async def described(self) -> Json:
        """The OpenAPI document."""
        return (await self.client.get(f"{API}/openapi.json")).json()

    async def person(self, username: str) -> Person:
        """Register somebody."""
        device_id = str(uuid.uuid4())
        body = {"username": username, "password": PASSWORD, "device_id": device_id}
        answer = await self.client.post(
            f"{API}/auth/register", json={**body, "display_name": username.title()}
        )
        assert answer.status_code == 201, answer.text
        opened = answer.json()["data"]
        return Person(
            client=self.client,
            user_id=UserId(opened["user"]["user_id"]),
            session_id=SessionId(opened["session"]["session_id"]),
            username=username,
            device_id=device_id,
            access_token=opened["tokens"]["access_token"],
            refresh_token=opened["tokens"]["refresh_token"],
        )

    async def log_in_again(self, person: Person) -> None:
        """A new session on the same device, because the old one's token has expired."""
        body = {
            "username": person.username,
            "password": PASSWORD,
            "device_id": person.device_id,
        }
        opened = (await self.client.post(f"{API}/auth/login", json=body)).json()["data"]
        person.session_id = SessionId(opened["session"]["session_id"])
        person.access_token = opened["tokens"]["access_token"]

    async def people(self, *usernames: str) -> list[Person]:
        return [await self.person(username) for username in usernames]

    async def group(self, owner: Person, *others: Person, name: str = "Crew") -> ChatId:
        body = {"type": "group", "name": name, "member_ids": [each.user_id for each in others]}
        answer = await owner.post("/chats", body)
        assert answer.status_code == 201, answer.text
        return ChatId(answer.json()["data"]["chat_id"])

    async def direct(self, one: Person, other: Person) -> ChatId:
        answer = await one.post("/chats", {"type": "direct", "member_ids": [other.user_id]})
        assert answer.status_code in (200, 201), answer.text
        return ChatId(answer.json()["data"]["chat_id"])

    async def close(self) -> None:
        for client in self.clients:
            await client.aclose()
        await self.store.close()


GENEROUS: dict[str, Any] = {
    "reads_per_minute": 10_000,
    "writes_per_minute": 10_000,
    "lookups_per_minute": 1_000,
    "lookups_per_hour": 1_000,
}


def build_stage(
    *, accounts: AccountOptions | None = None, chats: ChatOptions | None = None
) -> Stage:
    clock, ids, random = ManualClock(), UlidSource(Random(8).getrandbits), Random(7)
    store, tasks, revoked = MemoryStorage(), TaskSupervisor(_fail_the_loop), list[SessionId]()

    def run_blocking(work: Callable[[], Result]) -> Awaitable[Result]:
        async def run() -> Result:
            return work()

        return run()

    def on_revoked(session_ids: Sequence[SessionId]) -> None:
        revoked.extend(session_ids)

    chat_options = chats or ChatOptions()
    chat_service = ChatService(store=store, clock=clock, ids=ids, options=chat_options)
    ingest = IngestService(
        store=store,
        clock=clock,
        ids=ids,
        tasks=tasks,
        options=IngestOptions(),
        edit_window_ms=chat_options.edit_window_ms,
    )

    async def erase(user_id: UserId) -> None:
        await erase_messages(store, ingest.send, user_id)

    assembled = assemble_accounts(
        store=store,
        keys=KeyRing.of(Secret("the server's own secret, long enough")),
        clock=clock,
        ids=ids,
        random_bytes=random.randbytes,
        run_blocking=run_blocking,
        options=accounts or AccountOptions(registration=Registration.OPEN),
        identity=IdentityOptions(),
        on_revoked=on_revoked,
        on_roster_changed=lambda _: None,
        depart=chat_service.depart,
        erase=erase,
        hasher=PlainHasher(),
    )
    services = RestServices(
        authenticator=assembled.authenticator,
        accounts=assembled.service,
        people=assembled.people,
        chats=chat_service,
        delivery=DeliveryService(
            store=store,
            clock=clock,
            tasks=tasks,
            options=DeliveryOptions(),
            publish=CommitBus(),
        ),
        ingest=ingest,
        store=store,
        sends=send_limiter(GatewayOptions()),
        tasks=tasks,
        clock=clock,
        ids=ids,
        random_bytes=random.randbytes,
        check_ready=_ready,
        metrics=_metrics,
        group_members_max=chat_options.group_members_max,
    )
    return Stage(services, assembled, clock, store, revoked)


def _fail_the_loop(name: str, error: BaseException) -> None:
    raise error


async def _ready() -> None:
    pass


def code_of(answer: httpx.Response) -> str:
    """The code of an error, whose whole shape is checked on the way."""
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "details", "request_id"}, error
    assert error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    return str(error["code"])


def fields_of(answer: httpx.Response) -> list[tuple[str, str]]:
    """Field and code of every field error."""
    assert code_of(answer) == "VALIDATION_ERROR", answer.text
    faults = answer.json()["error"]["details"]["field_errors"]
    assert all(set(fault) == {"field", "code", "message"} for fault in faults)
    return [(fault["field"], fault["code"]) for fault in faults]


async def _metrics() -> bytes:
    return b"tidewire_up 1\n"
