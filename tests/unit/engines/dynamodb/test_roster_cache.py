from tests.unit.engines.dynamodb.samples import a_member
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb.roster_cache import RosterCache
from tidewire.engines.dynamodb.values import MemberState

ONE, OTHER, THIRD = ChatId("chat_1"), ChatId("chat_2"), ChatId("chat_3")
STATE = MemberState(a_member(), is_blocked=False)


def members(*names: str) -> dict[UserId, MemberState]:
    return {UserId(name): STATE for name in names}


def test_members_are_good_for_their_version_only() -> None:
    cache = RosterCache()
    assert cache.find(ONE, 1) is None
    known = members("a", "b")
    cache.remember(ONE, 1, known)
    assert cache.find(ONE, 1) is known
    assert cache.find(ONE, 2) is None
    assert cache.find(OTHER, 1) is None


def test_newer_members_replace_older_ones_and_never_the_other_way() -> None:
    cache = RosterCache()
    cache.remember(ONE, 2, members("a"))
    cache.remember(ONE, 1, members("a", "b"))
    assert cache.find(ONE, 1) is None
    assert list(cache.find(ONE, 2) or ()) == ["a"]
    cache.remember(ONE, 3, members("c"))
    assert cache.find(ONE, 2) is None
    assert list(cache.find(ONE, 3) or ()) == ["c"]
    assert len(cache) == 1


def test_chat_used_longest_ago_makes_room() -> None:
    cache = RosterCache(members_max=3)
    cache.remember(ONE, 1, members("a", "b"))
    cache.remember(OTHER, 1, members("c"))
    assert cache.find(ONE, 1)
    cache.remember(THIRD, 1, members("d"))
    assert (len(cache), cache.find(OTHER, 1)) == (2, None)
    assert cache.find(ONE, 1)


def test_one_chat_is_kept_however_large() -> None:
    cache = RosterCache(members_max=2)
    cache.remember(ONE, 1, members("a", "b", "c"))
    assert cache.find(ONE, 1)
    cache.remember(OTHER, 1, members("a"))
    assert cache.find(ONE, 1) is None
    assert cache.find(OTHER, 1)
