"""Where the row of a commit lies."""

import pytest

from tests.unit.ingest.events import CHAT, a_message, a_rename
from tidewire.domain.ids import ChatId
from tidewire.domain.outbox import SHARDS, OutboxKey, key_of_commit, shard_of


def test_shards_stay_the_same_and_are_all_used() -> None:
    assert shard_of(CHAT) == 16
    assert {shard_of(ChatId(f"chat_{n}")) for n in range(2000)} == set(range(SHARDS))


def test_commit_of_messages_lies_under_the_first_of_them() -> None:
    key = key_of_commit([a_message(4), a_message(7)])
    assert key == OutboxKey(16, "chat_1#s#0000000000000004")


def test_change_lies_under_its_version() -> None:
    assert key_of_commit([a_rename(3)]) == OutboxKey(16, "chat_1#v#0000000000000003")


def test_two_changes_are_not_one_commit() -> None:
    with pytest.raises(AssertionError):
        key_of_commit([a_rename(3), a_rename(4)])
