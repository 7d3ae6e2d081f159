"""Names of keys: what one call touches has one tag."""

import re

from tidewire.domain.ids import UserId
from tidewire.engines.redis.keys import (
    LIMIT_TAGS,
    ROUTE_TAGS,
    Keys,
    gateway_named,
    limit_tag,
    route_tag,
)

KEYS = Keys("p:", is_tagged=True)
SINGLE = Keys("p:", is_tagged=False)


def tag(key: str) -> str:
    [found] = re.findall(r"\{([^}]*)\}", key)
    assert isinstance(found, str)
    return found


def test_name_of_a_gateway_is_read_or_is_none() -> None:
    assert gateway_named(b"gateway_0a1b") == "gateway_0a1b"
    for damaged in (b"", b"gw\xff", b"gw\x00", b"gw}", b"gw 1", "gw\u00e4".encode(), b"g" * 65):
        assert gateway_named(damaged) is None


def test_keys_of_a_gateway_have_its_tag() -> None:
    own = [KEYS.gateway("gw_1"), KEYS.stream("gw_1", "i1")]
    names = KEYS.appending("gw_1", "r")
    assert list(names[:2]) == own
    assert {tag(name) for name in names} == {"gw_1"}
    assert len(set(names)) == 3


def test_names_on_a_single_redis_are_those_of_the_version_before() -> None:
    """Its processes are there during an upgrade, and look under these."""
    assert SINGLE.route(UserId("user_1")) == "p:route:user_1"
    assert SINGLE.gateway("gw_1") == "p:gateway:gw_1"
    assert SINGLE.stream("gw_1", "i1") == "p:stream:gw_1:i1"
    assert SINGLE.appending("gw_1", "r") == ("p:gateway:gw_1", "p:stream:gw_1", "p:router:gw_1:r")
    assert SINGLE.lists() == ["p:gateways"]
    assert SINGLE.limit("send:x") == "p:limit:send:x"


def test_routes_and_limits_have_the_tag_by_which_they_are_grouped() -> None:
    for number in range(50):
        user_id, name = UserId(f"user_{number}"), f"send:{number}"
        assert tag(KEYS.route(user_id)) == str(route_tag(user_id))
        assert tag(KEYS.limit(name)) == str(limit_tag(name))
    users = [f"user_{number}" for number in range(20_000)]
    assert len({route_tag(one) for one in users}) == ROUTE_TAGS
    assert len({limit_tag(one) for one in users}) == LIMIT_TAGS


def test_two_majorities_of_the_lists_have_one_in_common() -> None:
    for keys in (KEYS, SINGLE):
        assert len(set(keys.lists())) == len(keys.lists())
        assert 2 * keys.lists_min > len(keys.lists())


def test_items_of_a_tag_are_one_call_and_in_order() -> None:
    assert KEYS.groups([1, 2, 3, 4, 5], lambda one: one % 2) == [[1, 3, 5], [2, 4]]
    assert KEYS.groups([], lambda one: one) == []
    assert SINGLE.groups([1, 2, 3], lambda one: one % 2) == [[1, 2, 3]]
