"""What is due, where to read on, how late the log is."""

from tests.unit.ingest.events import a_rename
from tidewire.domain.outbox import OutboxKey, OutboxRow
from tidewire.ingest.backlog import AHEAD_MS_MAX, Backlog, due_rows, pause_ms


def row(name: str, at_ms: int = 0) -> OutboxRow:
    return OutboxRow(OutboxKey(3, name), at_ms, a_rename(1))


def test_row_is_due_at_its_age_unless_it_is_on_its_way() -> None:
    rows = [row("a", 10), row("b", 11), row("c", 0)]

    def is_publishing(key: OutboxKey) -> bool:
        return key.row == "c"

    due = due_rows(rows, now_ms=30, after_ms=20, is_publishing=is_publishing)
    assert [one.key.row for one in due] == ["a"]


def test_row_of_a_clock_that_was_far_ahead_is_due() -> None:
    """Else it would be published, and its push come, when that time has come (B4)."""
    rows = [row("a", AHEAD_MS_MAX), row("b", AHEAD_MS_MAX + 1)]
    due = due_rows(rows, now_ms=0, after_ms=20, is_publishing=lambda _: False)
    assert [one.key.row for one in due] == ["b"]


def test_pause_grows_with_failures_up_to_its_bound() -> None:
    pauses = [pause_ms(failures, poll_ms=100, pause_ms_max=350) for failures in (0, 1, 2, 99)]
    assert pauses == [100, 200, 350, 350]
    assert pause_ms(5, poll_ms=100, pause_ms_max=50) == 100


def test_full_page_is_followed_by_the_next_and_a_short_one_by_the_first() -> None:
    backlog = Backlog()
    assert backlog.after(3) is None
    assert backlog.saw(3, [row("a"), row("b")], count_max=2)
    assert backlog.after(3) == "b"
    assert backlog.after(4) is None
    assert not backlog.saw(3, [row("c")], count_max=2)
    assert backlog.after(3) is None


def test_oldest_is_of_all_pages_of_a_pass() -> None:
    backlog = Backlog()
    assert backlog.oldest_ms(100) == 0
    backlog.stayed(3, [row("a", 20)], has_more=True)
    assert backlog.oldest_ms(100) == 80
    backlog.stayed(3, [row("b", 40)], has_more=True)
    backlog.stayed(3, [], has_more=False)
    assert backlog.oldest_ms(100) == 80
    backlog.stayed(4, [row("c", 50)], has_more=False)
    backlog.stayed(3, [], has_more=True)
    backlog.stayed(3, [], has_more=False)
    assert backlog.oldest_ms(100) == 50
    assert backlog.oldest_ms(30) == 0


def test_shard_of_somebody_else_is_forgotten() -> None:
    backlog = Backlog()
    backlog.saw(3, [row("a")], count_max=1)
    backlog.stayed(3, [row("a", 20)], has_more=True)
    backlog.stayed(4, [row("b", 30)], has_more=False)
    backlog.forget(3)
    backlog.forget(4)
    assert backlog.after(3) is None
    assert backlog.oldest_ms(100) == 0
