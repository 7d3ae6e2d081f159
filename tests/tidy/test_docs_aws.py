"""docs/aws.md: the tables are those of the schema, and the policies grant what the engine does."""

import ast
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from tests.tidy.repository import ROOT
from tidewire.domain.chats import Chat, ChatType, Member, Role
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.outbox import SHARDS
from tidewire.engines.dynamodb import rows, schema, schema_version, tables, values
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX, DynamoOptions
from tidewire.engines.dynamodb.schema import Table
from tidewire.engines.dynamodb.storage import DynamoStorage

PAGE = (ROOT / "docs/aws.md").read_text(encoding="utf-8")
ENGINE = ROOT / "src/tidewire/engines/dynamodb"
OF_THE_OPERATOR = {
    *("inspect", "looking", "mending", "repair", "restoring", "tables", "upgrading"),
}
"""Modules that only the operator's commands use, but for the epoch."""

Right = tuple[str, str]
"""An action, and the table it is for."""

ACTIONS = {
    "get": "GetItem",
    "get_each": "BatchGetItem",
    "query": "Query",
    "query_request": "Query",
    "put": "PutItem",
    "put_new": "PutItem",
    "update": "UpdateItem",
    "change": "UpdateItem",
    "delete": "DeleteItem",
    "delete_many": "BatchWriteItem",
    "check": "ConditionCheckItem",
}
"""How the engine's own verbs are called in a policy."""

UNSEEN: set[Right] = {
    ("GetItem", schema.STORE),  # tables.read_epoch
    ("BatchGetItem", schema.USER_CHATS),  # positions.moved_at goes over two tables
    *((action, table) for action in ("Scan", "DeleteItem")  # sweep_accounts goes over three
      for table in (schema.SESSIONS, schema.INVITES, schema.REQUESTS)),
    *(right for table in (schema.MESSAGES, schema.AMENDMENTS)  # entries of either kind
      for right in (("PutItem", table), ("Query", table), ("GetItem", table),
                    ("Query", f"{table}/index/{schema.MESSAGE_ID_INDEX}"))),
    ("Query", schema.POSITIONS),  # amended.chats_of_author goes over two tables
}  # fmt: skip
"""Rights whose table does not stand beside the verb in the code."""


def policy(title: str) -> list[dict[str, Any]]:
    """The statements of the first JSON block below a title."""
    block = re.search(rf"^### {title}\n.*?^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert block, title
    statements: list[dict[str, Any]] = json.loads(block[1])["Statement"]
    return statements


def granted(title: str) -> set[Right]:
    found = set()
    for statement in policy(title):
        resources = statement["Resource"]
        for resource in [resources] if isinstance(resources, str) else resources:
            table = resource.partition(":table/tidewire_")[2]
            found |= {(action.removeprefix("dynamodb:"), table) for action in statement["Action"]}
    return found


def _table(node: ast.expr) -> str | None:
    """The table that `schema.NAME` names."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = getattr(schema, node.attr, None) if node.value.id == "schema" else None
        return name if isinstance(name, str) and name in schema.BY_NAME else None
    return None


def rights_used(source: str) -> Iterator[Right]:
    """What the code does to which table, as far as verb and table stand side by side."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=verb), args=[first, *_]) if verb in ACTIONS:
                table = _table(first)
                if table is not None:
                    yield ACTIONS[verb], table
            # The keys that `get_many` is asked for.
            case ast.Tuple(elts=[first, _]) if (table := _table(first)) is not None:
                yield "BatchGetItem", table


def modules(*, of_the_operator: bool) -> list[Path]:
    return [
        path
        for path in sorted(ENGINE.glob("*.py"))
        if (path.stem in OF_THE_OPERATOR) == of_the_operator
    ]


def operations_named(paths: list[Path]) -> set[str]:
    """DynamoDB's operations whose names stand in the code, as actions."""
    model = botocore.session.get_session().get_service_model("dynamodb")
    known = {xform_name(name): name for name in model.operation_names}
    named = {
        known[node.value]
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in known
    }
    # A transaction needs the rights of what is in it.
    if "TransactGetItems" in named:
        named.remove("TransactGetItems")
        named.add("GetItem")
    if "TransactWriteItems" in named:
        named.remove("TransactWriteItems")
        named |= {"PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"}
    return named


def test_page_has_the_tables_of_the_schema() -> None:
    missing = [row for row in map(table_row, schema.TABLES) if row not in PAGE]
    assert not missing, "docs/aws.md does not have these rows:\n" + "\n".join(missing)
    assert len(re.findall(r"^\| `\w+` \| `\w+` (?:text|number|bytes) ", PAGE, re.MULTILINE)) == len(
        schema.TABLES
    )


def table_row(table: Table) -> str:
    def key(name: str | None) -> str:
        if name is None:
            return ""
        kind = "number" if name in table.numbers else "bytes" if name in table.binaries else "text"
        return f"`{name}` {kind}"

    index = ", ".join(f"`{one.name}` on `{one.partition}`, keys only" for one in table.indexes)
    expires = "yes" if table.expires else ""
    return f"| `{table.name}` | {key(table.partition)} | {key(table.sort)} | {expires} | {index} |"


def test_page_has_the_numbers_of_the_code() -> None:
    assert f"at most {SENDS_PER_TRANSACTION_MAX} messages" in PAGE
    assert f"{SHARDS} shards" in PAGE


def test_gateway_may_do_what_the_engine_does_and_nothing_else() -> None:
    used = {
        right
        for path in modules(of_the_operator=False)
        for right in rights_used(path.read_text(encoding="utf-8"))
    }
    assert len(used) > 50
    wanted = used | UNSEEN
    assert sorted(wanted - granted("A gateway")) == [], "docs/aws.md: the gateway lacks these"
    assert sorted(granted("A gateway") - wanted) == [], (
        "docs/aws.md: the gateway needs none of these"
    )


@pytest.mark.parametrize(
    ("title", "of_the_operator"), [("A gateway", False), ("The operator", True)]
)
def test_every_operation_in_the_code_is_granted(title: str, of_the_operator: bool) -> None:
    named = operations_named(modules(of_the_operator=of_the_operator))
    assert len(named) >= 6
    assert named - {action for action, _ in granted(title)} == set()


def test_gateway_never_deletes_what_must_stay() -> None:
    kept = (schema.MESSAGES, schema.AMENDMENTS, schema.COUNTERS, schema.CHATS, schema.POSITIONS)
    for table in (*kept, schema.USERS):
        assert ("DeleteItem", table) not in granted("A gateway")
        assert ("BatchWriteItem", table) not in granted("A gateway")


# What a fan-out worker asks for, seen from the database.

CHAT = ChatId("chat_00000000000000000000000001")
USERS = [UserId(f"user_0000000000000000000000000{number}") for number in (1, 2)]


class Recorder:
    """DynamoDB's client with one chat of two and a message, that notes who is asked for what."""

    def __init__(self) -> None:
        self.asked: set[Right] = set()
        chat = Chat(
            chat_id=CHAT,
            chat_type=ChatType.DIRECT,
            name=None,
            created_by=USERS[0],
            created_at_ms=1,
            updated_at_ms=1,
            membership_version=1,
            member_count=2,
            head=1,
        )
        members = [
            Member(user_id=user, role=Role.MEMBER, joined_at_ms=1, joined_sequence=0, added_by=user)
            for user in USERS
        ]
        self._rows: dict[str, list[dict[str, Any]]] = {
            schema.CHATS: [values.chat_row(chat)],
            schema.MEMBERSHIPS: [values.member_row(CHAT, member) for member in members],
            schema.MESSAGES: [{"sequence": 1, "sender_id": USERS[0]}],
            schema.STORE: [{"name": "epoch", "value": "e"}, schema_version.KEY | {"value": 3}],
        }

    def _note(self, action: str, name: str) -> list[dict[str, Any]]:
        table = name.removeprefix(DynamoOptions().table_prefix)
        self.asked.add((action, table))
        return [rows.pack(row) for row in self._rows[table]] if table in self._rows else []

    async def get_item(self, **request: Any) -> dict[str, Any]:
        found = self._note("GetItem", request["TableName"])
        name = request["Key"].get("name")
        return {"Item": next(row for row in found if name is None or row["name"] == name)}

    async def query(self, **request: Any) -> dict[str, Any]:
        return {"Items": self._note("Query", request["TableName"])}

    async def batch_get_item(self, **request: Any) -> dict[str, Any]:
        wanted = request["RequestItems"]
        return {"Responses": {name: self._note("BatchGetItem", name) for name in wanted}}


async def test_fanout_worker_may_do_what_it_asks_for_and_nothing_else() -> None:
    client = Recorder()
    database = Database(client, DynamoOptions())
    assert await tables.read_epoch(database) == "e"
    # With nothing in its memory yet.
    assert await DynamoStorage(database, AsyncExitStack(), epoch="e").roster(CHAT) is not None
    assert client.asked == granted("A fan-out worker")


def test_rights_used_sees_verbs_and_keys() -> None:
    source = "db.get(schema.CHATS, k); rows.put_new(schema.OUTBOX, r); x = [(schema.USERS, k)]"
    assert set(rights_used(source)) == {
        ("GetItem", "chats"),
        ("PutItem", "outbox"),
        ("BatchGetItem", "users"),
    }
