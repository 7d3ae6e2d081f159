"""Bodies of requests are those that the vendor would have written."""

import json
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.session import get_session

from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.bodies import OPERATIONS, write_bodies

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
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "GetItem": ("get_item", {"TableName": "t", "Key": KEY, "ConsistentRead": True}),
    "BatchGetItem": ("batch_get_item", {"RequestItems": {"t": {"Keys": [KEY]}}}),
    "Query": (
        "query",
        {
            "TableName": "t",
            "KeyConditionExpression": "#c = :c",
            "ExpressionAttributeNames": {"#c": "chat_id"},
            "ExpressionAttributeValues": {":c": {"S": "chat_1"}},
            "Limit": 3,
        },
    ),
    "PutItem": ("put_item", PUT | {"ReturnValues": "NONE"}),
    "UpdateItem": (
        "update_item",
        rows.update("t", {"chat_id": "c"}, "ADD #n :n", n=1)["Update"],
    ),
    "DeleteItem": ("delete_item", {"TableName": "t", "Key": KEY}),
    "BatchWriteItem": (
        "batch_write_item",
        {"RequestItems": {"t": [{"DeleteRequest": {"Key": KEY}}]}},
    ),
    "TransactWriteItems": (
        "transact_write_items",
        {"TransactItems": [{"Put": PUT}], "ClientRequestToken": "token"},
    ),
}


class Nothing:
    """The body of an answer."""

    def stream(self) -> list[bytes]:
        return [b"{}"]


class Sent:
    """A client whose requests go nowhere."""

    def __init__(self) -> None:
        self.client = get_session().create_client(
            "dynamodb",
            config=Config(parameter_validation=False),
            region_name="local",
            endpoint_url="http://127.0.0.1:1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        self.client.meta.events.register("before-send.dynamodb", self._send)
        self.request: Any = None

    def _send(self, request: Any, **_rest: Any) -> AWSResponse:
        self.request = request
        return AWSResponse(request.url, 200, {}, Nothing())

    def ask(self, method: str, request: dict[str, Any]) -> Any:
        getattr(self.client, method)(**request)
        return self.request


def test_every_operation_is_tried() -> None:
    assert set(REQUESTS) == set(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_body_is_the_one_that_the_vendor_writes(operation: str) -> None:
    vendor, ours = Sent(), Sent()
    write_bodies(ours.client)
    theirs = vendor.ask(*REQUESTS[operation])
    written = ours.ask(*REQUESTS[operation])
    assert json.loads(written.body) == json.loads(theirs.body)
    assert written.headers["X-Amz-Target"] == theirs.headers["X-Amz-Target"]
    assert written.headers["Content-Length"] == str(len(written.body))


def test_other_operations_go_the_vendors_way() -> None:
    sent = Sent()
    write_bodies(sent.client)
    request = sent.ask("describe_table", {"TableName": "t"})
    assert json.loads(request.body) == {"TableName": "t"}
