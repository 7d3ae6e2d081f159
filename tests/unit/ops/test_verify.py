"""A verification counts what it looked at, bounds what it keeps, and survives damage."""

import pytest

from tests.unit.ops.fake_store import DIRECT, GROUP, FakeStore
from tidewire.domain.errors import StoreUnusable
from tidewire.ops.invariants import BY_NAME, Kind, names_of
from tidewire.ops.verify import OFFENDERS_MAX, CheckResult, Counts, Report, verify
from tidewire.ports.inspection import Damaged, Inspector, PositionRow


def check_of(report: Report, name: str) -> CheckResult:
    return next(check for check in report.checks if check.name == name)


def test_verify_counts_what_it_looked_at() -> None:
    report = verify(FakeStore)
    assert report.epoch == "epoch-1"
    assert report.counts == Counts(
        chats=2, members=5, messages=6, keys=6, message_ids=6, positions=6, changes=3, kept=3
    )
    assert report.violations == 0
    assert [check.name for check in report.checks] == list(names_of(Kind.STATE))
    assert check_of(report, "prev_chain_exact").checked == 6
    assert check_of(report, "member_has_positions").checked == 5
    assert check_of(report, "counter_must_exist").checked == 2


def test_units_are_those_of_state_checks() -> None:
    assert {BY_NAME[name].per for name in names_of(Kind.STATE)} <= set(Counts.__struct_fields__)


def test_verify_keeps_the_first_offenders_and_counts_all() -> None:
    store = FakeStore()
    store.position_rows = [
        PositionRow(f"user_{number}", GROUP, 10, 0, None, None, 9, 12, True) for number in range(50)
    ]
    report = verify(lambda: store)
    check = check_of(report, "delivery_state_consistency")
    assert (check.violations, report.violations) == (50, 50)
    assert len(check.offenders) == OFFENDERS_MAX
    assert "user_0 " in check.offenders[0].found


def test_verify_reports_progress() -> None:
    seen: list[tuple[str, int, int | None]] = []
    verify(FakeStore, lambda stage, done, total: seen.append((stage, done, total)))
    assert seen[0] == ("messages", 0, 6)
    assert ("messages", 6, 6) in seen
    assert ("message ids", 6, 6) in seen
    assert ("changes", 3, None) in seen
    assert ("positions", 6, None) in seen
    assert seen[-1] == ("direct chats", 1, None)


def test_verify_closes_the_store() -> None:
    store = FakeStore()
    verify(lambda: store)
    assert store.is_closed


@pytest.mark.parametrize(
    ("place", "consequence"),
    [
        (f"messages of {GROUP}", "the rest of this chat was not checked"),
        (f"keys of {GROUP}", "the rest of this chat was not checked"),
        ("chats", "no chat was checked"),
        (f"chats after {GROUP}", f"chats after {GROUP} were not checked"),
        ("message ids", "the rest of the index was not checked"),
        ("positions", "the rest of the positions was not checked"),
        ("pairs", "the rest of that index was not checked"),
        (f"changes of {GROUP}", "the rest of this chat was not checked"),
        ("kept", "the rest of what is kept was not checked"),
    ],
)
def test_damage_is_a_violation_that_names_the_place(place: str, consequence: str) -> None:
    store = FakeStore()
    store.damaged = place
    report = verify(lambda: store)
    check = check_of(report, "database_readable")
    assert report.violations == check.violations == 1
    assert check.offenders[0].found == f"cannot read {place}: malformed; {consequence}"
    assert store.is_closed


def test_what_is_not_damaged_is_still_verified() -> None:
    store = FakeStore()
    store.damaged = f"messages of {GROUP}"
    store.change(DIRECT, counter=None)
    store.change_position(3, read=3)
    report = verify(lambda: store)
    assert [check.name for check in report.checks if check.violations] == [
        "counter_must_exist",
        "database_readable",
        "read_implies_delivered",
    ]


def test_store_that_cannot_even_be_opened_is_a_violation() -> None:
    def open_it() -> Inspector:
        raise Damaged("the head of tidewire.db", "file is not a database")

    report = verify(open_it)
    check = check_of(report, "database_readable")
    assert report.violations == 1
    assert "nothing could be checked" in check.offenders[0].found
    assert report.counts == Counts()


def test_store_that_is_not_there_is_an_error() -> None:
    def open_it() -> Inspector:
        raise StoreUnusable("there is no database")

    with pytest.raises(StoreUnusable):
        verify(open_it)


def test_store_without_message_ids_says_that_they_were_not_checked() -> None:
    store = FakeStore()
    store.has_message_ids = False
    report = verify(lambda: store)
    assert report.violations == 0
    assert check_of(report, "message_ids_exact").checked is None


def test_store_that_does_not_tell_its_changes_says_that_they_were_not_checked() -> None:
    store = FakeStore()
    store.knows_changes = False
    report = verify(lambda: store)
    assert report.violations == 0
    assert (report.counts.changes, report.counts.kept) == (None, None)
    assert check_of(report, "reactions_exact").checked is None
