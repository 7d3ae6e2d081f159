"""A flood of failures is counted, not written line by line."""

import pytest

from tidewire.domain.audit import AuditAction, AuditRecord
from tidewire.runtime.audit_floods import WINDOW_MS, AuditFloods

HERE, THERE = "192.0.2.1", "192.0.2.2"


def failure(at_ms: int, address: str | None = HERE) -> AuditRecord:
    return AuditRecord(at_ms=at_ms, action=AuditAction.LOGIN_FAILED, address=address)


def test_failures_beyond_the_bound_become_one_record_when_the_minute_is_over() -> None:
    floods = AuditFloods(each_max=2, keys_max=10)

    assert [floods.admits(failure(at), 1_000) for at in range(5)] == [True, True, *[False] * 3]
    assert floods.due(1_000 + WINDOW_MS - 1) == []
    assert floods.due(1_000 + WINDOW_MS) == [
        AuditRecord(
            at_ms=4,
            action=AuditAction.LOGIN_FAILED,
            address=HERE,
            reason="not_written_one_by_one",
            count=3,
        )
    ]
    assert floods.admits(failure(9), 1_000 + WINDOW_MS), "the next minute begins anew"


def test_minute_without_a_flood_leaves_no_record() -> None:
    floods = AuditFloods(each_max=2, keys_max=10)
    assert floods.admits(failure(1), 0)
    assert floods.due(WINDOW_MS) == []


def test_addresses_are_counted_apart() -> None:
    floods = AuditFloods(each_max=1, keys_max=10)
    assert floods.admits(failure(1), 0)
    assert floods.admits(failure(2, THERE), 0)
    assert not floods.admits(failure(3), 0)


def test_addresses_beyond_the_bound_share_one_window() -> None:
    floods = AuditFloods(each_max=1, keys_max=1)
    assert floods.admits(failure(1), 0)
    assert floods.admits(failure(2, THERE), 0)
    assert not floods.admits(failure(3, "192.0.2.3"), 0)
    (left_out,) = floods.due(WINDOW_MS)
    assert (left_out.address, left_out.count) == (None, 1)


def test_other_actions_are_never_left_out() -> None:
    floods = AuditFloods(each_max=1, keys_max=1)
    done = AuditRecord(at_ms=1, action=AuditAction.ACCOUNT_DISABLED, actor="a", address=HERE)
    assert all(floods.admits(done, 0) for _ in range(10))


@pytest.mark.parametrize(
    "action", [one for one in AuditAction if one.value.startswith(("member.", "role.", "group."))]
)
def test_what_members_do_to_groups_again_and_again_is_bounded(action: AuditAction) -> None:
    """Two members who change each other's roles in turn must not push the trail out."""
    floods = AuditFloods(each_max=2, keys_max=10)
    record = AuditRecord(at_ms=1, action=action, actor="a", address=HERE)
    assert [floods.admits(record, 0) for _ in range(5)] == [True, True, *[False] * 3]
    assert [left_out.count for left_out in floods.due(WINDOW_MS)] == [3]


def test_logins_of_one_account_are_bounded_and_told_apart_from_those_of_another() -> None:
    """Who has an account must not be able to push the trail out by logging in again and again."""
    floods = AuditFloods(each_max=1, keys_max=10)

    def login(actor: str) -> AuditRecord:
        return AuditRecord(at_ms=1, action=AuditAction.LOGIN, actor=actor, address=HERE)

    assert [floods.admits(login(actor), 0) for actor in "aab"] == [True, False, True]
    (left_out,) = floods.due(WINDOW_MS)
    assert (left_out.actor, left_out.address, left_out.count) == ("a", HERE, 1)


def test_close_tells_what_was_left_out_so_far() -> None:
    floods = AuditFloods(each_max=1, keys_max=10)
    for at in range(3):
        floods.admits(failure(at), 0)
    assert [record.count for record in floods.close()] == [2]
    assert floods.close() == []
