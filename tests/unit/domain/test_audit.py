"""The audit trail's words are promised to programs."""

import msgspec

from tidewire.domain.audit import FAILURES, AuditAction, AuditRecord


def test_record_is_written_without_what_it_does_not_have() -> None:
    record = AuditRecord(at_ms=5, action=AuditAction.LOGIN_FAILED, address="192.0.2.7")

    assert msgspec.json.decode(msgspec.json.encode(record)) == {
        "at_ms": 5,
        "action": "login.failed",
        "address": "192.0.2.7",
    }


def test_action_has_a_name_of_lower_case_words_and_no_space() -> None:
    for action in AuditAction:
        assert action.value.replace(".", "").replace("_", "").isalpha()
        assert action.value == action.value.lower()


def test_failures_are_what_a_stranger_can_cause() -> None:
    assert all(action.value.endswith(".failed") for action in FAILURES)
    assert len(FAILURES) == sum(action.value.endswith(".failed") for action in AuditAction)
