"""Of which chats to speak that the log is behind with: at once, then every five seconds."""

from tidewire.domain.ids import ChatId
from tidewire.fanout.lag import AGAIN_MS, LagNotices

ONE, OTHER, THIRD = (ChatId(f"chat_{number}") for number in (1, 2, 3))


def test_chat_is_spoken_of_at_once_and_again_while_it_lasts() -> None:
    notices = LagNotices()
    assert notices.due([ONE], 0) == [ONE]
    assert notices.due([ONE], AGAIN_MS - 1) == []
    assert notices.due([ONE, OTHER], AGAIN_MS - 1) == [OTHER]
    assert notices.due([ONE, OTHER], AGAIN_MS) == [ONE]
    assert notices.due([ONE, OTHER], 2 * AGAIN_MS - 1) == [OTHER]


def test_chat_that_is_behind_once_more_is_spoken_of_at_once() -> None:
    notices = LagNotices()
    assert notices.due([ONE], 0) == [ONE]
    assert notices.due([], 1_000) == []
    assert notices.due([ONE], 2_000) == [ONE]


def test_all_are_spoken_to_where_any_chat_may_be_behind_or_too_many_are() -> None:
    notices = LagNotices(chats_max=2)
    assert notices.due(None, 0) is None
    assert notices.due([ONE, OTHER, THIRD], AGAIN_MS - 1) == []
    assert notices.due([ONE, OTHER, THIRD], AGAIN_MS) is None
    assert notices.due([ONE, OTHER], AGAIN_MS) == [ONE, OTHER]
