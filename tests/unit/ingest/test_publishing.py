"""Commits on their way into the log, and rows that can go: bounded, oldest first."""

from tidewire.domain.outbox import OutboxKey
from tidewire.ingest.publishing import PublishBook

A, B, C = (OutboxKey(0, name) for name in "abc")


def test_commit_is_on_its_way_until_it_is_acked_or_failed() -> None:
    book = PublishBook(commits_max=2, rows_max=2)
    assert (book.is_idle, book.publishing_count) == (True, 0)
    assert book.begin(A)
    assert book.begin(B)
    assert [book.is_publishing(key) for key in (A, B, C)] == [True, True, False]
    assert (book.is_idle, book.publishing_count) == (False, 2)
    assert book.acked(A)
    book.failed(B)
    assert [book.is_publishing(key) for key in (A, B, C)] == [False, False, False]
    assert (book.is_idle, book.publishing_count) == (False, 0)
    assert book.take_rows(5) == [A]
    assert (book.is_idle, book.published_count) == (True, 0)


def test_commit_beyond_the_bound_is_left_to_the_relays() -> None:
    book = PublishBook(commits_max=1, rows_max=1)
    assert book.begin(A)
    assert not book.begin(B)
    assert not book.is_publishing(B)
    book.failed(A)
    assert book.begin(B)


def test_row_beyond_the_bound_stays() -> None:
    book = PublishBook(commits_max=3, rows_max=2)
    assert [book.acked(key) for key in (A, B, C)] == [True, True, False]
    assert book.published_count == 2
    assert book.take_rows(1) == [A]
    assert book.take_rows(9) == [B]


def test_rows_that_could_not_be_deleted_come_first_again_within_the_bound() -> None:
    book = PublishBook(commits_max=3, rows_max=2)
    book.acked(A)
    book.acked(B)
    taken = book.take_rows(2)
    book.acked(C)
    assert book.give_back(taken) == 1
    assert book.take_rows(9) == [A, C]
    assert book.give_back([B]) == 0
    assert book.take_rows(9) == [B]
