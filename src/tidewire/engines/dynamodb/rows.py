"""Rows: plain dicts of Python values, DynamoDB's typed attributes and back, and the writes of a
transaction. PURE.

In an expression every attribute is written `#name`, so that none can be one of DynamoDB's many
reserved words, and every value `:name`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, assert_never

from tidewire.engines.dynamodb import schema

Value = str | int | bytes | bool | Sequence[str] | Sequence[int] | None
Row = dict[str, Any]
Attribute = dict[str, Any]
Item = dict[str, Attribute]
Write = dict[str, dict[str, Any]]

EXPRESSIONS_MAX: Final = 256
"""More than there are in this engine; each is used again and again."""
_NAME: Final = re.compile(r"#(\w+)")


def pack_value(value: Value) -> Attribute:
    match value:
        # Before int: in Python a bool is one.
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case Sequence():
            return {"L": [pack_value(entry) for entry in value]}
        case _:
            assert_never(value)


def unpack_value(attribute: Attribute) -> Any:
    [(kind, value)] = attribute.items()
    match kind:
        case "N":
            return _number(value)
        case "L":
            return [unpack_value(entry) for entry in value]
        case "NULL":
            return None
        case _:
            return value


def _number(text: str) -> int | str:
    """We write whole numbers only. Another one stays a text, so that a row that is not ours fails
    where its fields are looked at, and not the page that it lies in."""
    try:
        return int(text)
    except ValueError:
        return text


def pack(row: Mapping[str, Value]) -> Item:
    """What is None is left out: an attribute that is not there is the cheapest."""
    return {name: pack_value(value) for name, value in row.items() if value is not None}


def unpack(item: Item) -> Row:
    return {name: unpack_value(attribute) for name, attribute in item.items()}


@lru_cache(EXPRESSIONS_MAX)
def names_in(*expressions: str) -> Mapping[str, str]:
    """The attributes that expressions name."""
    return {f"#{name}": name for text in expressions for name in _NAME.findall(text)}


def put(table: str, row: Mapping[str, Value], *, condition: str = "", **values: Value) -> Write:
    return {"Put": {"TableName": table, "Item": pack(row)} | _condition(condition, "", values)}


def put_new(table: str, row: Mapping[str, Value]) -> Write:
    """A row that must not be there yet."""
    return put(table, row, condition=f"attribute_not_exists(#{schema.BY_NAME[table].partition})")


def update(
    table: str, key: Mapping[str, Value], change: str, *, condition: str = "", **values: Value
) -> Write:
    body = {"TableName": table, "Key": pack(key), "UpdateExpression": change}
    return {"Update": body | _condition(condition, change, values)}


def delete(table: str, key: Mapping[str, Value], *, condition: str = "", **values: Value) -> Write:
    return {"Delete": {"TableName": table, "Key": pack(key)} | _condition(condition, "", values)}


def check(table: str, key: Mapping[str, Value], condition: str, **values: Value) -> Write:
    body = {"TableName": table, "Key": pack(key)}
    return {"ConditionCheck": body | _condition(condition, "", values)}


def _condition(condition: str, change: str, values: Mapping[str, Value]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if condition:
        more["ConditionExpression"] = condition
        more["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    names = names_in(condition, change)
    if names:
        more["ExpressionAttributeNames"] = names
    if values:
        more["ExpressionAttributeValues"] = {
            f":{name}": pack_value(value) for name, value in values.items()
        }
    return more
