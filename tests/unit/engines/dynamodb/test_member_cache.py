from tests.unit.engines.dynamodb.samples import a_member
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb.member_cache import SENDERS_MAX, MemberCache, latest
from tidewire.engines.dynamodb.values import MemberState

ONE, OTHER, THIRD = ChatId("chat_1"), ChatId("chat_2"), ChatId("chat_3")
STATE = MemberState(a_member(), is_blocked=False)


def members(*names: str) -> dict[UserId, MemberState]:
    return {UserId(name): STATE for name in names}


def test_members_are_good_for_their_version_only() -> None:
    cache = MemberCache[MemberState]()
    assert cache.find(ONE, 1) is None
    known = members("a", "b")
    cache.remember(ONE, 1, known)
    assert cache.find(ONE, 1) is known
    assert cache.find(ONE, 2) is None
    assert cache.find(OTHER, 1) is None


def test_newer_members_replace_older_ones_and_never_the_other_way() -> None:
    cache = MemberCache[MemberState]()
    cache.remember(ONE, 2, members("a"))
    cache.remember(ONE, 1, members("a", "b"))
    assert cache.find(ONE, 1) is None
    assert list(cache.find(ONE, 2) or ()) == ["a"]
    cache.remember(ONE, 3, members("c"))
    assert cache.find(ONE, 2) is None
    assert list(cache.find(ONE, 3) or ()) == ["c"]
    assert len(cache) == 1


def test_chat_used_longest_ago_makes_room() -> None:
    cache = MemberCache[MemberState](members_max=3)
    cache.remember(ONE, 1, members("a", "b"))
    cache.remember(OTHER, 1, members("c"))
    assert cache.find(ONE, 1)
    cache.remember(THIRD, 1, members("d"))
    assert (len(cache), cache.find(OTHER, 1)) == (2, None)
    assert cache.find(ONE, 1)


def test_one_chat_is_kept_however_large() -> None:
    cache = MemberCache[MemberState](members_max=2)
    cache.remember(ONE, 1, members("a", "b", "c"))
    assert cache.find(ONE, 1)
    cache.remember(OTHER, 1, members("a"))
    assert cache.find(ONE, 1) is None
    assert cache.find(OTHER, 1)


def test_senders_of_a_chat_are_kept_up_to_a_bound_those_found_last() -> None:
    found = members(*(f"user_{number}" for number in range(SENDERS_MAX + 3)))
    kept = latest(found)
    assert len(kept) == SENDERS_MAX
    assert list(kept) == list(found)[3:]
