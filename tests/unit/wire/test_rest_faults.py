"""What msgspec complains of, as faults of fields."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.wire.rest_faults import field_error
from tidewire.wire.rest_models import FieldError
from tidewire.wire.rest_requests import AdvancePositions, CreateChat, Register


@pytest.mark.parametrize(
    ("model", "body", "field", "code"),
    [
        (CreateChat, b"{}", "type", "REQUIRED"),
        (CreateChat, b"5", "body", "INVALID_TYPE"),
        (CreateChat, b'{"type":"x"}', "type", "INVALID_VALUE"),
        (CreateChat, b'{"type":"group","member_ids":[]}', "member_ids", "TOO_SHORT"),
        (CreateChat, b'{"type":"group","member_ids":["a",1]}', "member_ids[1]", "INVALID_TYPE"),
        (CreateChat, b'{"type":"group","member_ids":[""]}', "member_ids[0]", "TOO_SHORT"),
        (AdvancePositions, b'{"last_acked_sequence":0}', "last_acked_sequence", "TOO_SMALL"),
        (
            AdvancePositions,
            b'{"last_acked_sequence":9007199254740992}',
            "last_acked_sequence",
            "TOO_LARGE",
        ),
        (Register, b'{"username":"%s"}' % (b"a" * 65), "username", "TOO_LONG"),
    ],
)
def test_fault_is_told_of_its_field(model: Any, body: bytes, field: str, code: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=model)
    fault = field_error(str(caught.value))
    assert (fault.field, fault.code) == (field, code)
    assert fault.message
    assert "$" not in fault.message


def test_fault_of_a_parameter_has_its_name() -> None:
    assert field_error("Expected `int` >= 1", "limit") == FieldError(
        field="limit", code="TOO_SMALL", message="expected `int` >= 1"
    )
    assert field_error("Object missing required field `b` - at `$.a`", "x").field == "x.a.b"


@given(st.text(), st.text())
def test_no_complaint_raises(complaint: str, field: str) -> None:
    assert field_error(complaint, field).code
