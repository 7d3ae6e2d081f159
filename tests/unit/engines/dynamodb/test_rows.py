import msgspec
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


def test_bytes_as_they_are_on_the_wire_come_back() -> None:
    assert rows.unpack_value({"L": [{"B": "AP8="}]}) == [b"\x00\xff"]


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


def test_change_sets_and_removes_what_it_is_given_as_data() -> None:
    write = rows.change(
        "users",
        {"user_id": "u"},
        {"display_name": "Anna", "disabled_at": None},
        where={"user_id": rows.PRESENT, "deleted_at": None, "display_name": "Ann"},
        condition="#created_at < :now",
        now=5,
    )
    body = write["Update"]
    assert body["UpdateExpression"] == "SET #display_name = :display_name REMOVE #disabled_at"
    assert body["ConditionExpression"] == (
        "#created_at < :now AND attribute_exists(#user_id) AND attribute_not_exists(#deleted_at)"
        " AND #display_name = :was_display_name"
    )
    assert body["ExpressionAttributeValues"] == {
        ":display_name": {"S": "Anna"},
        ":was_display_name": {"S": "Ann"},
        ":now": {"N": "5"},
    }
    assert "#disabled_at" in body["ExpressionAttributeNames"]


def test_change_may_only_remove() -> None:
    write = rows.change("users", {"user_id": "u"}, {"name": None}, where={"name": rows.PRESENT})
    assert write["Update"]["UpdateExpression"] == "REMOVE #name"


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    made_at_ms: int
    label: str | None
    size: int = 0


SHAPE = rows.Shape(Thing, label="title")


def test_shape_is_the_struct_by_its_fields() -> None:
    thing = Thing(made_at_ms=3, label="a", size=2)
    row = SHAPE.row(thing)
    assert row == {"made_at": 3, "title": "a", "size": 2}
    assert SHAPE.value(row) == thing
    assert SHAPE.value({"made_at": 3}) == Thing(made_at_ms=3, label=None)


def test_shape_tells_what_has_changed() -> None:
    before = Thing(made_at_ms=3, label="a", size=2)
    after = msgspec.structs.replace(before, label=None, size=4)
    assert SHAPE.changes(before, after) == {"title": None, "size": 4}
    assert SHAPE.changes(before, before) == {}


def test_query_names_the_rows_of_a_partition() -> None:
    plain = rows.query_request("messages", "c")
    assert plain["KeyConditionExpression"] == "#chat_id = :partition"
    assert (plain["ConsistentRead"], plain["ScanIndexForward"]) == (True, True)
    some = rows.query_request(
        "messages",
        "c",
        between=(1, 5),
        ascending=False,
        fields="#sequence",
    )
    assert some["KeyConditionExpression"].endswith("AND #sequence BETWEEN :low AND :high")
    assert some["ProjectionExpression"] == "#sequence"
    above = rows.query_request("blocks", "u", above="user_1")
    assert above["KeyConditionExpression"].endswith("AND #blocked_id > :above")


def test_query_of_an_index_is_not_strong() -> None:
    request = rows.query_request("messages", "m", index="message_id-index")
    assert request["KeyConditionExpression"] == "#message_id = :partition"
    assert request["IndexName"] == "message_id-index"
    assert "ConsistentRead" not in request


def test_scan_goes_on_from_where_another_has_ended() -> None:
    request = rows.scan_request("sessions", limit=3, start={"x": {"S": "y"}})
    assert request == {
        "TableName": "sessions",
        "ConsistentRead": True,
        "Limit": 3,
        "ExclusiveStartKey": {"x": {"S": "y"}},
    }
