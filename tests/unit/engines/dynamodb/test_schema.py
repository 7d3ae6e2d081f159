from typing import Any

import pytest

from tidewire.engines.dynamodb.schema import BY_NAME, TABLES, Table, definition, differences, key_of


def test_tables_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(TABLES)


def test_definition_of_messages_has_keys_and_index() -> None:
    wanted = definition(BY_NAME["messages"], "x_")
    assert wanted["TableName"] == "x_messages"
    assert wanted["KeySchema"] == [
        {"AttributeName": "chat_id", "KeyType": "HASH"},
        {"AttributeName": "sequence", "KeyType": "RANGE"},
    ]
    assert {"AttributeName": "sequence", "AttributeType": "N"} in _list(wanted)
    assert "GlobalSecondaryIndexes" in wanted
    assert "GlobalSecondaryIndexes" not in definition(BY_NAME["chats"], "x_")


def _list(wanted: dict[str, object]) -> list[object]:
    attributes = wanted["AttributeDefinitions"]
    assert isinstance(attributes, list)
    return attributes


def test_definition_of_invites_has_a_key_of_bytes() -> None:
    [attribute] = _list(definition(BY_NAME["invites"], ""))
    assert attribute == {"AttributeName": "code_hash", "AttributeType": "B"}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_differences_finds_none_in_what_was_made(table: Table) -> None:
    assert differences(table, definition(table, "p_"), "p_") == []


def test_differences_names_each_fault() -> None:
    table = BY_NAME["messages"]
    found: dict[str, Any] = definition(table, "")
    found = found | {
        "KeySchema": found["KeySchema"][:1],
        "AttributeDefinitions": [{"AttributeName": "chat_id", "AttributeType": "S"}],
        "GlobalSecondaryIndexes": [],
    }
    faults = differences(table, found, "")
    assert len(faults) == 3
    assert "keys" in faults[0]
    assert "sequence is of type None" in faults[1]
    assert "message_id-index" in faults[2]


def test_differences_finds_an_index_on_something_else() -> None:
    table = BY_NAME["messages"]
    found: dict[str, Any] = definition(table, "")
    index = found["GlobalSecondaryIndexes"][0] | {"KeySchema": []}
    [fault] = differences(table, found | {"GlobalSecondaryIndexes": [index]}, "")
    assert "message_id-index" in fault


def test_key_of_a_row_is_what_its_table_is_keyed_by() -> None:
    row = {"chat_id": "c", "sequence": 3, "content": "x"}
    assert key_of("messages", row) == {"chat_id": "c", "sequence": 3}
