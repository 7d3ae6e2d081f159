"""How far a reader has come: nothing that is not done lies before what the log is told."""

from tidewire.fanout.progress import Progress
from tidewire.ports.event_log import LogRecord


def a_record(offset: int, partition: int = 0) -> LogRecord:
    return LogRecord("messages", partition, offset, 1, None, None)


def test_log_is_told_up_to_the_first_that_is_not_done() -> None:
    progress = Progress()
    first, second, third = (a_record(offset) for offset in (4, 5, 9))
    progress.began([first, second, third])
    progress.done([third, first])
    assert progress.take() == [first]
    assert len(progress) == 2
    assert progress.take() == []
    progress.done([second])
    assert progress.take() == [second, third]
    assert len(progress) == 0


def test_partitions_do_not_wait_for_each_other() -> None:
    progress = Progress()
    slow, quick = a_record(1, partition=1), a_record(1, partition=2)
    progress.began([slow, quick])
    progress.done([quick])
    assert progress.take() == [quick]
    assert len(progress) == 1


def test_partition_of_another_reader_is_told_no_more() -> None:
    progress = Progress()
    lost, kept = a_record(1, partition=1), a_record(1, partition=2)
    progress.began([lost, kept])
    progress.forget(lost.place)
    progress.forget(lost.place)
    progress.done([lost, kept])
    assert progress.take() == [kept]
    assert len(progress) == 0


def test_partition_that_comes_back_is_told_as_it_is_read_again() -> None:
    progress = Progress()
    progress.began([a_record(1), a_record(2), a_record(3)])
    again = [a_record(2), a_record(3)]
    progress.began(again)
    assert len(progress) == 2
    # What was begun before it went, and has only now been done: another reader has told of it.
    progress.done([a_record(1), a_record(2)])
    assert progress.take() == again[:1]
    progress.done([a_record(3)])
    assert progress.take() == again[1:]
