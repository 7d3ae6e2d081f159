"""Each kind of fault is found, and none where there is none."""

import pytest

from tidewire_bench.ledger import OFFENDERS_MAX, Faults, Sent, Stream, check_streams


def sent_with(*sequences: int) -> Sent:
    sent = Sent("the sender")
    for sequence in sequences:
        sent.at_s.append(0.0)
        sent.sequences.append(sequence)
    return sent


def stream_with(faults: Faults, *messages: tuple[int, int, int]) -> Stream:
    """Each is a sequence, the one before it, and the number."""
    stream = Stream("the receiver", faults)
    for message in messages:
        stream.take(*message)
    return stream


def test_check_finds_nothing_when_everything_arrived() -> None:
    faults = Faults()
    stream = stream_with(faults, (1, 0, 0), (2, 1, 1), (5, 2, 2))
    check_streams([stream], sent_with(1, 2, 5), faults)
    assert faults.count == 0
    assert stream.last == 5


def test_check_does_not_care_about_a_message_that_was_never_acked() -> None:
    faults = Faults()
    arrived = stream_with(faults, (1, 0, 0), (2, 1, 1))
    lost = stream_with(faults, (1, 0, 0))
    check_streams([arrived, lost], sent_with(1, 0), faults)
    assert faults.count == 0


@pytest.mark.parametrize(
    ("messages", "sequences", "words"),
    [
        (((1, 0, 0),), (1, 2), "never got message 1"),
        (((1, 0, 0), (1, 0, 0)), (1,), "again after 1"),
        (((1, 0, 0), (3, 2, 2)), (1, 2, 3), "whose predecessor is 2, after 1"),
        (((1, 0, 0), (2, 1, 0)), (1, 2), "more than once"),
        (((1, 0, 1), (2, 1, 0)), (1, 2), "was acknowledged as 1"),
        (((1, 0, 0), (2, 1, 9)), (1,), "never sent"),
    ],
)
def test_check_finds_each_kind_of_fault(
    messages: tuple[tuple[int, int, int], ...], sequences: tuple[int, ...], words: str
) -> None:
    faults = Faults()
    stream = stream_with(faults, *messages)
    check_streams([stream], sent_with(*sequences), faults)
    assert any(words in sentence for sentence in faults.first), faults.first


def test_faults_counts_all_and_tells_the_first() -> None:
    faults = Faults()
    for number in range(OFFENDERS_MAX + 5):
        faults.add(str(number))
    assert faults.count == OFFENDERS_MAX + 5
    assert faults.first == [str(number) for number in range(OFFENDERS_MAX)]


def test_stream_that_syncs_holds_back_what_comes_early() -> None:
    faults = Faults()
    stream = stream_with(faults, (1, 0, 0))
    stream.is_syncing = True
    # A push from above the hole, one that was known, and then the pages.
    assert not stream.take(4, 3, 3)
    assert not stream.take(1, 0, 0)
    assert stream.take(2, 1, 1)
    assert stream.take(3, 2, 2)
    stream.synced()
    check_streams([stream], sent_with(1, 2, 3, 4), faults)
    assert faults.count == 0
    assert not stream.is_syncing


def test_stream_that_synced_drops_what_the_pages_had_too() -> None:
    faults = Faults()
    stream = stream_with(faults, (1, 0, 0))
    stream.is_syncing = True
    stream.take(3, 2, 2)
    stream.take(2, 1, 1)
    stream.take(3, 2, 2)
    stream.synced()
    assert list(stream.sequences) == [1, 2, 3]
    assert faults.count == 0


def test_stream_of_a_cluster_may_bring_messages_again_and_out_of_order() -> None:
    faults = Faults()
    stream = Stream("the receiver", faults, is_at_least_once=True)
    for message in ((2, 1, 1), (4, 3, 3), (1, 0, 0), (1, 0, 0), (3, 2, 2), (5, 4, 4)):
        stream.take(*message)
    check_streams([stream], sent_with(1, 2, 3, 4, 5), faults)
    assert (stream.last, stream.repeats, stream.held, faults.count) == (5, 1, {}, 0)


def test_stream_of_a_cluster_that_lacks_one_is_a_fault() -> None:
    faults = Faults()
    stream = Stream("the receiver", faults, is_at_least_once=True)
    for message in ((1, 0, 0), (3, 2, 2)):
        stream.take(*message)
    check_streams([stream], sent_with(1, 2, 3), faults)
    assert faults.count == 2


def test_sent_knows_what_is_outstanding() -> None:
    assert sent_with(1, 0, 0).unacked == 2
