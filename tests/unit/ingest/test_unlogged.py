"""Commits that the log may not have: known until it has them, or their rows are gone."""

from tests.unit.ingest.events import ANNA, CHAT
from tidewire.domain.ids import ChatId
from tidewire.domain.outbox import OutboxKey
from tidewire.ingest.unlogged import Unlogged

OTHER = ChatId("chat_2")


def key(number: int, shard: int = 1) -> OutboxKey:
    return OutboxKey(shard, f"row{number}")


def test_commit_is_late_when_it_has_waited_long_enough_and_until_the_log_has_it() -> None:
    unlogged = Unlogged(commits_max=10)
    unlogged.committed(key(1), CHAT, (), 1_000)
    unlogged.committed(key(2), OTHER, (ANNA,), 2_000)
    assert unlogged.since(999) == {}
    assert unlogged.since(1_000) == {CHAT: ()}
    assert unlogged.since(2_000) == {CHAT: (), OTHER: (ANNA,)}
    unlogged.logged(key(1))
    assert unlogged.since(2_000) == {OTHER: (ANNA,)}
    assert len(unlogged) == 1


def test_commit_that_is_told_again_has_waited_since_the_first_time() -> None:
    unlogged = Unlogged(commits_max=10)
    unlogged.committed(key(1), CHAT, (), 1_000)
    unlogged.committed(key(1), CHAT, (), 9_000)
    assert unlogged.since(1_000) == {CHAT: ()}
    assert len(unlogged) == 1


def test_commits_of_a_shard_whose_rows_are_gone_are_forgotten() -> None:
    unlogged = Unlogged(commits_max=10)
    unlogged.committed(key(1), CHAT, (), 0)
    unlogged.committed(key(2), CHAT, (), 0)
    unlogged.committed(key(3, shard=2), OTHER, (), 0)
    assert unlogged.keys_in(1) == [key(1), key(2)]
    assert unlogged.keys_in(3) == []
    unlogged.gone([key(1), key(2), key(9), key(9, shard=9)])
    assert unlogged.since(0) == {OTHER: ()}


def test_past_the_bound_it_may_be_any_chat_until_nothing_waits() -> None:
    unlogged = Unlogged(commits_max=1)
    unlogged.committed(key(1), CHAT, (), 1_000)
    unlogged.committed(key(2), OTHER, (), 2_000)
    unlogged.committed(key(3), OTHER, (), 3_000)
    assert len(unlogged) == 1
    assert unlogged.since(1_999) == {CHAT: ()}
    assert unlogged.since(2_000) is None
    unlogged.logged(key(2))
    assert unlogged.since(2_000) is None
    unlogged.logged(key(1))
    assert unlogged.since(9_000) == {}


def test_what_found_no_room_is_over_though_commits_never_cease() -> None:
    unlogged = Unlogged(commits_max=2)
    unlogged.committed(key(1), CHAT, (), 1_000)
    unlogged.committed(key(2, shard=2), CHAT, (), 1_000)
    unlogged.committed(key(3), CHAT, (), 2_000)
    unlogged.logged(key(1))
    unlogged.committed(key(4), OTHER, (), 3_000)
    assert unlogged.since(9_000) is None
    unlogged.logged(key(2, shard=2))
    assert unlogged.since(9_000) == {OTHER: ()}
    # The next time begins anew.
    unlogged.committed(key(5), OTHER, (), 10_000)
    unlogged.committed(key(6), OTHER, (), 11_000)
    assert unlogged.since(10_999) == {OTHER: ()}
    assert unlogged.since(11_000) is None
