"""Requests straight to DynamoDB: signed, sent and read here, over connections that stay open.

For the operations that a server uses all the time. The vendor's library takes many times as long
for each, and half of a gateway's time under load; it still finds the address and the credentials,
renews them, and does everything else. One connection serves one request at a time.
"""

import asyncio
import ssl
import time
import zlib
from collections import deque
from typing import Any, Final
from urllib.parse import urlsplit

import httptools
import msgspec
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from tidewire.engines.dynamodb.rows import Row
from tidewire.engines.dynamodb.signing import Signer

OPERATIONS: Final = {
    "get_item": "GetItem",
    "batch_get_item": "BatchGetItem",
    "query": "Query",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "batch_write_item": "BatchWriteItem",
    "transact_write_items": "TransactWriteItems",
}
"""By name of the vendor's method: the name on the wire."""
TARGET: Final = "DynamoDB_20120810."
IDLE_SECONDS_MAX: Final = 12.0
"""How long a connection may be idle: the server may close it later, which would look like a lost
answer."""
UNNAMED_FAULT: Final = "ServiceUnavailable"
"""The code for a status of 5xx without a code, from something between us and the database."""

_answer = msgspec.json.Decoder(dict[str, Any])


class Direct:
    """A client of one endpoint, on the event loop that it was made on."""

    def __init__(
        self,
        endpoint_url: str,
        *,
        region: str,
        user_agent: str,
        credentials: Any,
        tls: ssl.SSLContext | None,
        connections_max: int,
    ) -> None:
        """`credentials` are the vendor's, which renew themselves; None: there are none."""
        parts = urlsplit(endpoint_url)
        own_port = 80 if tls is None else 443
        self._address = (parts.hostname or "", parts.port or own_port)
        self._tls = tls
        # As the vendor signs and sends it: without the default port of the scheme.
        host = parts.netloc.rpartition("@")[2].lower().removesuffix(f":{own_port}")
        self._signer = Signer(host=host, region=region, user_agent=user_agent)
        self._credentials = credentials
        self._free = asyncio.Semaphore(connections_max)
        self._idle: deque[_Connection] = deque()

    async def ask(self, operation: str, request: Row) -> Row:
        """Raises what the vendor's client would for a refusal (ClientError) or for credentials, and
        OSError if there is no whole answer."""
        if self._credentials is None:
            raise NoCredentialsError
        body = msgspec.json.encode(request)
        keys = await self._credentials.get_frozen_credentials()
        name = OPERATIONS[operation]
        async with self._free:
            connection = self._pop_idle() or await self._connected()
            try:
                # Signed only now: waiting for a connection takes time.
                head = self._signer.head(TARGET + name, body, keys, now_s=int(time.time()))
                status, content = await connection.exchange(head + body)
            except BaseException:
                # Also if the caller has given up: the next request must not get the late answer.
                connection.close()
                raise
            self._put_back(connection)
        if status != 200:
            raise _refusal(status, content, name)
        return _decoded(content)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _connected(self) -> "_Connection":
        host, port = self._address
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, host, port, ssl=self._tls)
        return connection

    def _pop_idle(self) -> "_Connection | None":
        """The connection that was used last, so that those not needed grow old and are closed."""
        oldest_s = time.monotonic() - IDLE_SECONDS_MAX
        while self._idle and self._idle[0].idle_since_s < oldest_s:
            self._idle.popleft().close()
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
        return None

    def _put_back(self, connection: "_Connection") -> None:
        if connection.is_open:
            connection.idle_since_s = time.monotonic()
            self._idle.append(connection)


class _Connection(asyncio.Protocol):
    """One request at a time."""

    idle_since_s = 0.0

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._chunks: list[bytes] = []
        self._crc32: bytes | None = None
        self.is_open = False

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """The status and the content of the answer."""
        assert self._waiting is None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self.is_open = False
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection ended before the answer: {exc}")

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._chunks.clear()
        self._crc32 = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-amz-crc32":
            self._crc32 = value

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        content = b"".join(self._chunks)
        if self._crc32 is not None and self._crc32 != b"%d" % zlib.crc32(content):
            self._fail("the answer is damaged")
            return
        if not self._parser.should_keep_alive():
            self.close()
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._fail("an answer that was not asked for")
        elif not waiting.done():
            waiting.set_result((self._parser.get_status_code(), content))

    def _fail(self, why: str) -> None:
        self.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(why))


class _Resolved(Exception):
    """The address of a request of the vendor's client, and the region that it is signed for."""

    def __init__(self, request: Any, region_name: str, **_rest: Any) -> None:
        super().__init__(request.url)
        self.url: str = request.url
        self.region: str = request.context.get("signing", {}).get("region") or region_name


async def _resolved(client: Any) -> _Resolved:
    """The vendor's client works out its address with each request; the event for signing has it."""

    def tell(**request: Any) -> None:
        raise _Resolved(**request)

    event = "before-sign.dynamodb.ListTables"
    client.meta.events.register_first(event, tell)
    try:
        await client.list_tables()
    except _Resolved as resolved:
        return resolved
    finally:
        client.meta.events.unregister(event, tell)
    raise AssertionError("the vendor asked without an address")


async def direct_client(
    client: Any, session: Any, *, credentials: Any, connections_max: int
) -> Direct | None:
    """A client for the same address as the vendor's client; None if that is behind a proxy or has a
    path: then the vendor's client does everything."""
    resolved = await _resolved(client)
    parts = urlsplit(resolved.url)
    if get_environ_proxies(resolved.url).get(parts.scheme) or parts.path not in ("", "/"):
        return None
    tls = None
    if parts.scheme == "https":
        bundle = get_cert_path(session.get_config_variable("ca_bundle") or True)
        # In a thread, because it reads all certificates.
        tls = await asyncio.to_thread(ssl.create_default_context, cafile=bundle)
    return Direct(
        resolved.url,
        region=resolved.region,
        user_agent=client.meta.config.user_agent,
        credentials=credentials,
        tls=tls,
        connections_max=connections_max,
    )


def _decoded(content: bytes) -> Row:
    try:
        return _answer.decode(content) if content else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConnectionError("the answer is no JSON") from error


def _refusal(status: int, content: bytes, operation: str) -> ClientError:
    """The error as the vendor raises it: the code without its namespace, and all other fields."""
    try:
        said = _answer.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = {}
    code = str(said.get("__type", "")).rpartition("#")[2]
    if not code:
        code = UNNAMED_FAULT if status >= 500 else str(status)
    message = said.get("message") or said.get("Message") or ""
    return ClientError(said | {"Error": {"Code": code, "Message": message}}, operation)
