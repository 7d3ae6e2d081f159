import pytest

from tidewire.engines.dynamodb import rows


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        ("text", {"S": "text"}),
        (-7, {"N": "-7"}),
        (True, {"BOOL": True}),
        (b"\x00", {"B": b"\x00"}),
        (None, {"NULL": True}),
        (["a", "b"], {"L": [{"S": "a"}, {"S": "b"}]}),
        ((1, 2), {"L": [{"N": "1"}, {"N": "2"}]}),
    ],
)
def test_values_are_packed_and_come_back(value: rows.Value, packed: rows.Attribute) -> None:
    assert rows.pack_value(value) == packed
    expected = list(value) if isinstance(value, tuple) else value
    assert rows.unpack_value(packed) == expected


def test_pack_leaves_out_what_is_none() -> None:
    assert rows.pack({"a": None, "b": 1}) == {"b": {"N": "1"}}
    assert rows.unpack({"b": {"N": "1"}}) == {"b": 1}


def test_number_that_is_not_whole_stays_a_text() -> None:
    assert rows.unpack({"a": {"N": "1.5"}, "b": {"N": "2"}}) == {"a": "1.5", "b": 2}


def test_put_new_needs_that_there_is_no_such_row() -> None:
    write = rows.put_new("messages", {"chat_id": "c", "sequence": 1})
    assert write["Put"]["ConditionExpression"] == "attribute_not_exists(#chat_id)"
    assert write["Put"]["ExpressionAttributeNames"] == {"#chat_id": "chat_id"}
    assert write["Put"]["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert "ExpressionAttributeValues" not in write["Put"]


def test_update_names_all_attributes_of_both_expressions() -> None:
    write = rows.update(
        "chats", {"chat_id": "c"}, "SET #name = :new", condition="#status = :old", new="n", old="o"
    )
    assert write == {
        "Update": {
            "TableName": "chats",
            "Key": {"chat_id": {"S": "c"}},
            "UpdateExpression": "SET #name = :new",
            "ConditionExpression": "#status = :old",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ExpressionAttributeNames": {"#status": "status", "#name": "name"},
            "ExpressionAttributeValues": {":new": {"S": "n"}, ":old": {"S": "o"}},
        }
    }


def test_delete_and_put_without_condition_have_none() -> None:
    assert rows.delete("chats", {"chat_id": "c"}) == {
        "Delete": {"TableName": "chats", "Key": {"chat_id": {"S": "c"}}}
    }
    assert "ConditionExpression" not in rows.put("chats", {"chat_id": "c"})["Put"]


def test_check_is_a_condition_alone() -> None:
    write = rows.check("chats", {"chat_id": "c"}, "#status = :s", s="active")
    assert write["ConditionCheck"]["ConditionExpression"] == "#status = :s"
