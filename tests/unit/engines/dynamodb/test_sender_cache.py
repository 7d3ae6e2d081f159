from tests.unit.engines.dynamodb.samples import ANNA, BEN, CHAT, a_member
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb.sender_cache import SenderCache
from tidewire.engines.dynamodb.values import MemberState

STATE = MemberState(a_member(), is_blocked=False)


def test_known_is_what_was_remembered_under_the_same_version() -> None:
    cache = SenderCache()
    assert cache.known(CHAT, 1) == {}
    cache.remember(CHAT, 1, {ANNA: STATE})
    cache.remember(CHAT, 1, {BEN: None})
    assert cache.known(CHAT, 1) == {ANNA: STATE, BEN: None}


def test_known_is_nothing_under_another_version() -> None:
    cache = SenderCache()
    cache.remember(CHAT, 1, {ANNA: STATE})
    assert cache.known(CHAT, 2) == {}
    cache.remember(CHAT, 2, {BEN: None})
    assert cache.known(CHAT, 2) == {BEN: None}
    assert cache.known(CHAT, 1) == {}


def test_cache_forgets_the_sender_remembered_longest_ago_at_its_bound() -> None:
    cache = SenderCache(senders_max=2)
    users = [UserId(name) for name in "abc"]
    for user in users[:2]:
        cache.remember(CHAT, 1, {user: STATE})
    cache.remember(CHAT, 1, {users[0]: STATE})
    cache.remember(CHAT, 1, {users[2]: STATE})
    assert list(cache.known(CHAT, 1)) == [users[0], users[2]]


def test_cache_forgets_the_chat_used_longest_ago_at_its_bound() -> None:
    cache = SenderCache(chats_max=2)
    chats = [ChatId(name) for name in "abc"]
    for chat in chats[:2]:
        cache.remember(chat, 1, {ANNA: STATE})
    cache.known(chats[0], 1)
    cache.remember(chats[2], 1, {ANNA: STATE})
    assert [bool(cache.known(chat, 1)) for chat in chats] == [True, False, True]
