"""Which entries go to which gateway, and what they say when they come."""

import pytest

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.engines.redis.entries import FIELDS, Received, entries_by_gateway, received
from tidewire.engines.redis.push_queue import Kind, Parcel

ANN, BEN, CEM = UserId("ann"), UserId("ben"), UserId("cem")
HOMES = {ANN: ["g1"], BEN: ["g1", "g2"], CEM: []}


def test_entry_names_the_users_of_each_gateway_in_the_order_of_pushes() -> None:
    parcels = [
        Parcel(Kind.PUSH, [ANN, BEN, CEM], b"one", ConnectionId("c1"), b"news"),
        Parcel(Kind.PUSH, [BEN], b"two"),
    ]
    found = entries_by_gateway(parcels, HOMES, [], own_id="r")
    assert found == {
        "g1": ["push", "ann ben", "c1", b"one", b"news", "push", "ben", "", b"two", b""],
        "g2": ["push", "ben", "c1", b"one", b"news", "push", "ben", "", b"two", b""],
    }
    assert len(found["g1"]) == 2 * FIELDS


def test_what_is_for_all_goes_to_every_gateway_and_names_nobody() -> None:
    found = entries_by_gateway([Parcel(Kind.REVOKE, None, b"s1")], {}, ["g1", "g3"], own_id="g1")
    assert found == {gateway: ["revoke", "", "", b"s1", b""] for gateway in ("g1", "g3")}


def test_user_of_whom_nothing_is_known_is_looked_for_everywhere() -> None:
    homes = {ANN: ["g1"], BEN: None}
    parcels = [Parcel(Kind.PUSH, [ANN, BEN], b"one")]
    found = entries_by_gateway(parcels, homes, ["g1", "g2"], own_id="r")
    assert [found[one][1] for one in ("g1", "g2")] == ["ann ben", "ben"]


def test_news_name_nobody_and_leave_out_the_gateway_that_tells() -> None:
    found = entries_by_gateway([Parcel(Kind.NEWS, [BEN], b"n")], HOMES, [], own_id="g1")
    assert found == {"g2": ["news", "", "", b"n", b""]}


def test_resync_of_no_users_concerns_nobody() -> None:
    assert entries_by_gateway([Parcel(Kind.RESYNC, [], b"r")], {}, ["g1"], own_id="r") == {}


ENTRY = {b"n": b"7", b"k": b"push", b"u": b"ann ben", b"x": b"c1", b"f": b"\xff", b"w": b"news"}


def test_entry_is_read() -> None:
    assert received(ENTRY) == Received(
        7, "push", [ANN, BEN], ConnectionId("c1"), b"\xff", "", b"news"
    )
    older = {b"n": b"8", b"k": b"revoke", b"u": b"", b"x": b"", b"f": b"s1 s2"}
    assert received(older) == Received(8, "revoke", [], None, b"s1 s2", "s1 s2", b"")


@pytest.mark.parametrize(
    "change",
    [{b"n": b"seven"}, {b"k": b"\xff"}, {b"u": b"\xff"}, {b"x": b"\xff"}, {b"k": b"revoke"}],
)
def test_entry_that_is_damaged_is_none(change: dict[bytes, bytes]) -> None:
    assert received(ENTRY | change) is None
    assert received({name: value for name, value in ENTRY.items() if name not in change}) is None
