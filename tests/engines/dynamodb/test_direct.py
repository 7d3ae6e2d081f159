"""Requests without the vendor's library: what is sent, what is read, and which connection it takes.

The other end is a server of these tests that answers what it is told to.
"""

import asyncio
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from botocore.session import get_session

from tests.support.certificates import make_files
from tidewire import __version__
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import StoreUnavailable
from tidewire.engines.dynamodb import database as database_module
from tidewire.engines.dynamodb import direct, rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.direct import OPERATIONS, Direct
from tidewire.engines.dynamodb.errors import AnswerLost
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire_bench.dynamodb_relay import Request, header

KEY = {"chat_id": {"S": "chat_1"}}
PUT = rows.put(
    schema.MESSAGES,
    {
        "text": 'Ä \u2028 " \\ 🌊',
        "bytes": b"\x00\xff",
        "yes": True,
        "many": ["one", "two"],
        "n": 2**53,
    },
    condition="#n < :most",
    most=7,
)["Put"]
REQUESTS: dict[str, dict[str, Any]] = {
    "get_item": {"TableName": "t", "Key": KEY, "ConsistentRead": True},
    "batch_get_item": {"RequestItems": {"t": {"Keys": [KEY]}}},
    "query": {
        "TableName": "t",
        "KeyConditionExpression": "#c = :c",
        "ExpressionAttributeNames": {"#c": "chat_id"},
        "ExpressionAttributeValues": {":c": {"S": "chat_1"}},
        "Limit": 3,
    },
    "put_item": PUT | {"ReturnValues": "NONE"},
    "update_item": rows.update("t", {"chat_id": "c"}, "ADD #n :n", n=1)["Update"],
    "delete_item": {"TableName": "t", "Key": KEY},
    "batch_write_item": {"RequestItems": {"t": [{"DeleteRequest": {"Key": KEY}}]}},
    "transact_write_items": {"TransactItems": [{"Put": PUT}], "ClientRequestToken": "token"},
}
GET = REQUESTS["get_item"]
WRITE = {"Put": {"TableName": "t", "Item": KEY}}


def answer(content: bytes = b"{}", status: int = 200, **headers: str) -> bytes:
    lines = {"Content-Length": str(len(content))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Answer\r\n{head}\r\n".encode() + content


def refusal(code: str, status: int = 400, **more: Any) -> bytes:
    said = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "said", **more}
    return answer(json.dumps(said).encode(), status)


@dataclass
class Server:
    """Answers requests in turn, then with `{}`; an answer of None never comes."""

    answers: list[bytes | None] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open_now: int = 0
    most_open: int = 0
    hold: asyncio.Event | None = None
    """Answers wait for it."""
    is_ended: bool = False
    """Connections are closed behind their next answer, without a word."""
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(header(head, "content-length"))
                self.requests.append(Request(head, await reader.readexactly(length)))
                said = self.answers.pop(0) if self.answers else answer()
                if self.hold is not None:
                    await self.hold.wait()
                if said is None:
                    await reader.read()
                    return
                writer.write(said)
                if self.is_ended:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_now -= 1
            writer.close()


@asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(Server()) as one:
        yield one


def options(port: int, **changed: Any) -> DynamoOptions:
    settings: dict[str, Any] = {
        "region": "local",
        "endpoint_url": f"http://127.0.0.1:{port}",
        "access_key": "local",
        "secret_key": Secret("local"),
        "attempt_ms": 10_000,
        "budget_ms": 20_000,
    }
    return DynamoOptions(**(settings | changed))


@asynccontextmanager
async def a_database(port: int, **changed: Any) -> AsyncIterator[Database]:
    async with Database.connect(options(port, **changed)) as database:
        with database.within_budget():
            yield database


@pytest.fixture
async def database(server: Server) -> AsyncIterator[Database]:
    async with a_database(server.port) as database:
        yield database


def a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the vendor's, which reads the environment once."""
    monkeypatch.setattr(database_module, "_session", database_module._session.__wrapped__)


# What is sent.


class Nothing:
    """The body of an answer."""

    def stream(self) -> list[bytes]:
        return [b"{}"]


def sent_by_vendor(method: str, request: dict[str, Any]) -> Any:
    """What the vendor's library would have sent."""
    client = get_session().create_client(
        "dynamodb",
        config=Config(parameter_validation=False),
        region_name="local",
        endpoint_url="http://127.0.0.1:1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    sent = []

    def send(request: Any, **_rest: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, {}, Nothing())

    client.meta.events.register("before-send.dynamodb", send)
    getattr(client, method)(**request)
    return sent[0]


def test_every_operation_is_tried() -> None:
    assert set(REQUESTS) == set(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_request_is_the_one_that_the_vendor_sends(
    server: Server, database: Database, operation: str
) -> None:
    assert await database.call(operation, **REQUESTS[operation]) == {}
    [ours] = server.requests
    theirs = sent_by_vendor(operation, REQUESTS[operation])
    assert ours.body == json.loads(theirs.body)
    lines = ours.head.decode().lower().split("\r\n")
    for name in ("X-Amz-Target", "Content-Type"):
        assert f"{name}:{theirs.headers[name].decode()}".lower() in lines
    assert any(line.startswith(f"user-agent:tidewire/{__version__}") for line in lines)


async def test_other_operations_go_the_vendors_way(server: Server, database: Database) -> None:
    await database.call("describe_table", TableName="t")
    [request] = server.requests
    assert b"aiohttp" not in request.head
    assert request.operation == "DescribeTable"
    assert request.body == {"TableName": "t"}
    assert database._direct is not None
    assert not database._direct._idle


@pytest.mark.parametrize(
    ("region", "variable", "host"),
    [
        ("eu-central-1", "", "dynamodb.eu-central-1.amazonaws.com"),
        ("cn-north-1", "", "dynamodb.cn-north-1.amazonaws.com.cn"),
        ("us-east-1", "AWS_USE_FIPS_ENDPOINT", "dynamodb-fips.us-east-1.amazonaws.com"),
        # Not what the vendor's client says of itself before it asks.
        ("us-gov-west-1", "AWS_USE_FIPS_ENDPOINT", "dynamodb.us-gov-west-1.amazonaws.com"),
        ("us-east-1", "AWS_USE_DUALSTACK_ENDPOINT", "dynamodb.us-east-1.api.aws"),
    ],
)
async def test_address_is_the_one_that_the_vendor_goes_to(
    monkeypatch: pytest.MonkeyPatch, region: str, variable: str, host: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, "true")
    a_session_of_its_own(monkeypatch)
    async with a_database(0, region=region, endpoint_url="") as database:
        assert database._direct is not None
        assert database._direct._address == (host, 443)
        assert database._direct._tls is not None
        head = database._direct._signer.head("t", b"", Credentials("a", "b"), now_s=0)
    assert f"\r\nhost:{host}\r\n".encode() in head
    assert f"/{region}/dynamodb/aws4_request,".encode() in head


@pytest.mark.parametrize(
    ("variable", "is_direct"),
    [({}, True), ({"HTTP_PROXY": "http://127.0.0.1:1"}, False), ({"NO_PROXY": "x"}, True)],
)
async def test_proxy_of_the_environment_is_the_vendors_matter(
    server: Server, monkeypatch: pytest.MonkeyPatch, variable: dict[str, str], is_direct: bool
) -> None:
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    async with a_database(server.port) as database:
        assert (database._direct is not None) == is_direct


async def test_path_of_an_address_is_the_vendors_matter(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/below"
    async with a_database(server.port, endpoint_url=url) as database:
        assert database._direct is None
        await database.call("get_item", **GET)
    assert server.requests[0].head.startswith(b"POST /below")


# Credentials.


class Renewed:
    """Credentials that are good for one request each."""

    def __init__(self) -> None:
        self.times = 0

    async def fetch(self) -> dict[str, str]:
        self.times += 1
        return {
            "access_key": f"key{self.times}",
            "secret_key": "secret",
            "token": f"token{self.times}",
            "expiry_time": (datetime.now(UTC) + timedelta(seconds=1)).isoformat(),
        }


async def test_credentials_are_renewed_by_the_vendor(server: Server) -> None:
    renewed = Renewed()
    credentials = AioRefreshableCredentials.create_from_metadata(
        await renewed.fetch(), refresh_using=renewed.fetch, method="test"
    )
    client = Direct(
        f"http://127.0.0.1:{server.port}",
        region="local",
        user_agent="tidewire",
        credentials=credentials,
        tls=None,
        connections_max=1,
    )
    await client.ask("get_item", GET)
    await client.ask("get_item", GET)
    client.close()
    for request, number in zip(server.requests, (2, 3), strict=True):
        assert f"Credential=key{number}/".encode() in request.head
        assert f"x-amz-security-token:token{number}\r\n".encode() in request.head


async def test_missing_credentials_are_told(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    a_session_of_its_own(monkeypatch)
    async with a_database(server.port, access_key="", secret_key=None) as database:
        with pytest.raises(StoreUnavailable, match="credentials"):
            await database.call("get_item", **GET)
    assert server.requests == []


async def test_credentials_of_the_environment_are_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from_the_environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    a_session_of_its_own(monkeypatch)
    async with a_database(server.port, access_key="", secret_key=None) as database:
        await database.call("get_item", **GET)
    assert b"Credential=from_the_environment/" in server.requests[0].head


# What is read.


async def test_refusal_is_raised_as_the_vendor_does(server: Server, database: Database) -> None:
    server.answers = [refusal("ValidationException", Item={"a": {"S": "b"}})]
    with pytest.raises(ClientError) as raised:
        await database.call("get_item", **GET)
    assert raised.value.response["Error"] == {"Code": "ValidationException", "Message": "said"}
    assert raised.value.response["Item"] == {"a": {"S": "b"}}
    assert raised.value.operation_name == "GetItem"


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(answer(b"<html>Bad gateway", 502), id="fault without a name"),
        pytest.param(answer(b"", 503), id="fault without a body"),
        pytest.param(answer(b"\xff"), id="no text"),
        pytest.param(answer(b"{"), id="no JSON"),
        pytest.param(answer(b"[]"), id="no object"),
        pytest.param(answer(b'{"Item": {}}', x_amz_crc32="1"), id="damaged"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="no HTTP"),
    ],
)
async def test_answer_that_is_none_is_lost(server: Server, database: Database, lost: bytes) -> None:
    """A read is tried again; a write says that nobody knows."""
    server.answers = [lost]
    assert await database.call("get_item", **GET) == {}
    assert database.counts.answers_lost == 1
    server.answers = [lost]
    with pytest.raises(AnswerLost):
        await database.write(WRITE)


async def test_connection_that_says_more_than_was_asked_is_not_used_again(
    server: Server, database: Database
) -> None:
    server.answers = [answer() + answer(b'{"Item": {"of": {"S": "nobody"}}}')]
    assert await database.call("get_item", **GET) == {}
    assert await database.call("get_item", **GET) == {}
    assert server.connections == 2


@pytest.mark.parametrize("is_whole", [True, False])
async def test_answer_that_ends_early_is_lost(
    server: Server, database: Database, is_whole: bool
) -> None:
    said = answer(b'{"Item": {"a": {"S": "b"}}}')
    server.is_ended = True
    server.answers = [said if is_whole else said[:-3]]
    if is_whole:
        assert await database.call("get_item", **GET) == {"Item": {"a": {"S": "b"}}}
    else:
        with pytest.raises(AnswerLost):
            await database.write(WRITE)


async def test_checksum_that_is_right_is_taken(server: Server, database: Database) -> None:
    content = b'{"Item": {"a": {"B": "AP8="}}}'
    server.answers = [answer(content, x_amz_crc32=str(zlib.crc32(content)))]
    assert await database.get("t", {}) == {"a": b"\x00\xff"}


async def test_answer_in_pieces_is_read(server: Server, database: Database) -> None:
    chunks = b"6\r\n" + b'{"Item' + b"\r\n5\r\n" + b'":{}}' + b"\r\n0\r\n\r\n"
    server.answers = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks]
    assert await database.call("get_item", **GET) == {"Item": {}}
    await database.call("get_item", **GET)
    assert server.connections == 1


# Which connection it takes.


async def test_connection_is_used_again(server: Server, database: Database) -> None:
    server.answers = [refusal("ValidationException")]
    with pytest.raises(ClientError):
        await database.call("get_item", **GET)
    for _ in range(3):
        await database.call("get_item", **GET)
    assert server.connections == 1


async def test_connection_that_was_closed_meanwhile_is_not(
    server: Server, database: Database
) -> None:
    server.is_ended = True
    await database.call("get_item", **GET)
    client = database._direct
    assert client is not None
    await until(lambda: not client._idle[0].is_open)
    await database.write(WRITE)
    assert (server.connections, database.counts.answers_lost) == (2, 0)


@pytest.mark.parametrize("is_told", [True, False])
async def test_connection_that_is_to_be_closed_is_not(
    server: Server, database: Database, is_told: bool
) -> None:
    server.answers = [answer(Connection="close") if is_told else answer()]
    await database.call("get_item", **GET)
    await database.call("get_item", **GET)
    assert server.connections == (2 if is_told else 1)


async def test_connection_that_was_idle_for_long_is_not(
    server: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.call("get_item", **GET)
    monkeypatch.setattr(direct, "IDLE_SECONDS_MAX", -1.0)
    await database.call("get_item", **GET)
    await until(lambda: server.open_now == 1)
    assert server.connections == 2


async def test_answer_to_a_request_that_was_given_up_is_nobodys(server: Server) -> None:
    """It must not be taken for that of the next."""
    server.hold = asyncio.Event()
    server.answers = [answer(b'{"Item": {"of": {"S": "the first"}}}')]
    async with a_database(server.port) as database:
        first = asyncio.ensure_future(database.call("get_item", **GET))
        await until(lambda: len(server.requests) == 1)
        first.cancel()
        await asyncio.wait([first])
        server.hold.set()
        assert await database.call("get_item", **GET) == {}
    assert server.connections == 2


async def test_request_that_takes_too_long_is_lost(server: Server) -> None:
    server.answers = [None]
    async with a_database(server.port, attempt_ms=50) as database:
        with pytest.raises(AnswerLost):
            await database.write(WRITE)
        await until(lambda: server.open_now == 0)


async def test_so_many_connections_are_open_and_no_more(server: Server) -> None:
    server.hold = asyncio.Event()
    async with a_database(server.port, connections_max=3) as database:
        asking = [asyncio.ensure_future(database.call("get_item", **GET)) for _ in range(9)]
        await until(lambda: len(server.requests) == 3)
        server.hold.set()
        await asyncio.gather(*asking)
        assert (server.most_open, len(server.requests)) == (3, 9)
    await until(lambda: server.open_now == 0)


async def test_server_that_is_not_there_is_a_lost_answer() -> None:
    async with serving(Server()) as gone:
        port = gone.port
    async with a_database(port) as database:
        with pytest.raises(AnswerLost):
            await database.write(WRITE)


# TLS.


@pytest.mark.parametrize(
    ("host", "is_authority_known", "is_taken"),
    [("127.0.0.1", True, True), ("127.0.0.1", False, False), ("localhost", True, False)],
)
async def test_certificate_is_checked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    is_authority_known: bool,
    is_taken: bool,
) -> None:
    """Its authority, and the name that it was made for."""
    ca, cert, key = make_files(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    if is_authority_known:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(ca))
    a_session_of_its_own(monkeypatch)
    async with serving(Server(), tls) as server:
        url = f"https://{host}:{server.port}"
        async with a_database(server.port, endpoint_url=url) as database:
            if is_taken:
                assert await database.call("get_item", **GET) == {}
            else:
                with pytest.raises(AnswerLost) as raised:
                    await database.write(WRITE)
                assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)
        assert bool(server.requests) == is_taken


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
