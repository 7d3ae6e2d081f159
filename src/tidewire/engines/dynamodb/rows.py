"""Converts rows, which are plain dicts of Python values: to DynamoDB's typed attributes and back,
from structs and back; makes the writes of a transaction. PURE.

In an expression every attribute is written `#name`, so that none can be one of DynamoDB's many
reserved words, and every value `:name`.
"""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, assert_never

import msgspec

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
            # For an enum: its plain text.
            return {"S": str(value)}
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
        case "B" if isinstance(value, str):
            # As it is on the wire; the vendor's library would have decoded it already.
            return b64decode(value)
        case _:
            return value


def _number(text: str) -> int | str:
    """We write whole numbers only. Any other number stays a text: then a row that is not ours fails
    when its fields are read, and does not fail the whole page."""
    try:
        return int(text)
    except ValueError:
        return text


def pack(row: Mapping[str, Value]) -> Item:
    """Fields that are None are left out: an absent attribute is the cheapest."""
    return {name: pack_value(value) for name, value in row.items() if value is not None}


def unpack(item: Item) -> Row:
    return {name: unpack_value(attribute) for name, attribute in item.items()}


Struct = TypeVar("Struct", bound=msgspec.Struct)


class Shape(Generic[Struct]):
    """Maps a struct to a row: each field to an attribute of its name, times without their unit."""

    def __init__(self, kind: type[Struct], **renamed: str) -> None:
        """`renamed`: by field, an attribute of another name."""
        self._kind = kind
        self._fields = [
            (field.name, renamed.get(field.name, field.name.removesuffix("_ms")), field.required)
            for field in msgspec.structs.fields(kind)
        ]

    def row(self, value: Struct) -> dict[str, Value]:
        return {attribute: getattr(value, field) for field, attribute, _ in self._fields}

    def changes(self, before: Struct, after: Struct) -> dict[str, Value]:
        """The attributes that differ, with their values afterwards."""
        old = self.row(before)
        return {name: value for name, value in self.row(after).items() if value != old[name]}

    def value(self, row: Mapping[str, Value]) -> Struct:
        found = {
            field: row.get(attribute)
            for field, attribute, is_required in self._fields
            if is_required or attribute in row
        }
        return msgspec.convert(found, self._kind)


@lru_cache(EXPRESSIONS_MAX)
def names_in(*expressions: str) -> Mapping[str, str]:
    """The attributes that the expressions name."""
    return {f"#{name}": name for text in expressions for name in _NAME.findall(text)}


def put(table: str, row: Mapping[str, Value], *, condition: str = "", **values: Value) -> Write:
    return {"Put": {"TableName": table, "Item": pack(row)} | _condition(condition, "", values)}


def put_new(table: str, row: Mapping[str, Value]) -> Write:
    """Put a row that must not exist yet."""
    return put(table, row, condition=f"attribute_not_exists(#{schema.BY_NAME[table].partition})")


def update(
    table: str, key: Mapping[str, Value], change: str, *, condition: str = "", **values: Value
) -> Write:
    body = {"TableName": table, "Key": pack(key), "UpdateExpression": change}
    return {"Update": body | _condition(condition, change, values)}


def change(
    table: str,
    key: Mapping[str, Value],
    fields: Mapping[str, Value],
    *,
    where: Mapping[str, "Value | _Present"],
    condition: str = "",
    **values: Value,
) -> Write:
    """Set attributes of a row, and remove those that become None, if the row is as `where` says:
    there None is for an absent attribute, PRESENT for an attribute with any value.

    `condition` is a further condition, with its own `values`.
    """
    new = {name: value for name, value in fields.items() if value is not None}
    removed = [f"#{name}" for name, value in fields.items() if value is None]
    steps = []
    if new:
        steps.append("SET " + ", ".join(f"#{name} = :{name}" for name in new))
    if removed:
        steps.append("REMOVE " + ", ".join(removed))
    conditions = [condition] if condition else []
    for name, value in where.items():
        if value is None:
            conditions.append(f"attribute_not_exists(#{name})")
        elif isinstance(value, _Present):
            conditions.append(f"attribute_exists(#{name})")
        else:
            conditions.append(f"#{name} = :was_{name}")
            new[f"was_{name}"] = value
    return update(table, key, " ".join(steps), condition=" AND ".join(conditions), **new, **values)


class _Present:
    """Stands for an attribute that exists."""


PRESENT: Final = _Present()


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


class Range(TypedDict, total=False):
    """Which rows of a partition, by their sort key."""

    above: Value
    between: tuple[int, int] | tuple[str, str]
    """Both included."""
    ascending: bool
    is_strong: bool
    """Strongly consistent, with every write that was answered; the default."""
    fields: str
    """The attributes to read, as an expression; without it: all."""
    index: str
    """Read a partition of this index, which lags; without it: one of the table itself."""


def query_request(table: str, partition: Value, **which: Unpack[Range]) -> Row:
    keys, index, fields = schema.BY_NAME[table], which.get("index"), which.get("fields", "")
    condition = f"#{keys.partition if index is None else keys.indexes[0].partition} = :partition"
    values: dict[str, Value] = {"partition": partition}
    if which.get("above") is not None:
        condition += f" AND #{keys.sort} > :above"
        values["above"] = which["above"]
    if "between" in which:
        condition += f" AND #{keys.sort} BETWEEN :low AND :high"
        values["low"], values["high"] = which["between"]
    request = scan_request(table, index=index) | {
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names_in(condition, fields),
        "ExpressionAttributeValues": {f":{n}": pack_value(v) for n, v in values.items()},
        "ScanIndexForward": which.get("ascending", True),
    }
    if not which.get("is_strong", True):
        request["ConsistentRead"] = False
    return request | {"ProjectionExpression": fields} if fields else request


def scan_request(
    table: str, *, limit: int | None = None, start: Row | None = None, index: str | None = None
) -> Row:
    """Rows of a table or an index in no order, from where an earlier request has ended."""
    request: Row = {"TableName": table}
    if index is None:
        request["ConsistentRead"] = True
    else:
        request["IndexName"] = index
    if limit is not None:
        request["Limit"] = limit
    if start is not None:
        request["ExclusiveStartKey"] = start
    return request
