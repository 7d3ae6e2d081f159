"""Which sessions end for a new login, and what a refresh token is worth."""

from typing import Any

import msgspec
import pytest

from tidewire.domain.accounts import (
    RefreshOtherDevice,
    RefreshReused,
    RefreshRotated,
    RefreshUnknown,
    RotateRefresh,
    Session,
    SessionKind,
)
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.sessions import StoredSession, judge_refresh, make_room

LIFE_MS, GRACE_MS, NOW_MS = 1_000_000, 30_000, 5_000_000


def a_session(number: int = 0, **changed: Any) -> Session:
    session = Session(
        session_id=SessionId(f"sess_{number}"),
        user_id=UserId("user_a"),
        device_id=f"device {number}",
        created_at_ms=NOW_MS - 10 + number,
        last_active_at_ms=NOW_MS - 10 + number,
        expires_at_ms=NOW_MS + LIFE_MS,
    )
    return msgspec.structs.replace(session, **changed)


STORED = StoredSession(
    session=a_session(), refresh_hash=b"now", previous_hash=b"before", rotated_at_ms=NOW_MS
)


def a_refresh(presented: bytes = b"now", **changed: Any) -> RotateRefresh:
    command = RotateRefresh(
        session_id=STORED.session.session_id,
        device_id="device 0",
        presented_hash=presented,
        next_hash=b"next",
        grace_ms=GRACE_MS,
        life_ms=LIFE_MS,
    )
    return msgspec.structs.replace(command, **changed)


def test_stored_session_shows_no_hash() -> None:
    assert "now" not in repr(STORED)


@pytest.mark.parametrize(
    ("stored", "command", "now_ms"),
    [
        (None, a_refresh(), NOW_MS),
        (StoredSession(session=a_session(), refresh_hash=None), a_refresh(), NOW_MS),
        (STORED, a_refresh(), NOW_MS + LIFE_MS),
        (STORED, a_refresh(life_ms_max=10), NOW_MS),
    ],
    ids=["no session", "a bot's", "expired", "older than the bound"],
)
def test_refresh_of_a_session_that_is_over_is_unknown(
    stored: StoredSession | None, command: RotateRefresh, now_ms: int
) -> None:
    assert judge_refresh(stored, command, now_ms=now_ms) == RefreshUnknown()


@pytest.mark.parametrize(
    ("command", "now_ms", "outcome"),
    [
        (a_refresh(b"guess"), NOW_MS, RefreshUnknown(STORED.session, b"now")),
        (a_refresh(b"before"), NOW_MS + GRACE_MS + 1, RefreshReused(STORED.session)),
        (a_refresh(b"before"), NOW_MS + GRACE_MS, RefreshRotated(STORED.session, repeated=True)),
        (a_refresh(b"before", device_id="x"), NOW_MS, RefreshOtherDevice()),
        (a_refresh(b"now", device_id="x"), NOW_MS, RefreshOtherDevice()),
    ],
    ids=["a guess", "too late", "in the grace", "another device, before", "another device, now"],
)
def test_refresh_is_judged_in_order(command: RotateRefresh, now_ms: int, outcome: object) -> None:
    assert judge_refresh(STORED, command, now_ms=now_ms) == outcome


def test_refresh_makes_the_session_last_and_notes_where_it_is_used() -> None:
    command = a_refresh(address="192.0.2.1", client="a phone")
    outcome = judge_refresh(STORED, command, now_ms=NOW_MS + 7)
    assert outcome == RefreshRotated(
        a_session(
            generation=1,
            last_active_at_ms=NOW_MS + 7,
            expires_at_ms=NOW_MS + 7 + LIFE_MS,
            address="192.0.2.1",
            client="a phone",
        ),
        repeated=False,
    )


def test_refresh_never_makes_the_session_shorter_than_it_was_unless_a_bound_does() -> None:
    short = judge_refresh(STORED, a_refresh(life_ms=1), now_ms=NOW_MS)
    assert isinstance(short, RefreshRotated)
    assert short.session.expires_at_ms == STORED.session.expires_at_ms
    bounded = judge_refresh(STORED, a_refresh(life_ms_max=LIFE_MS // 2), now_ms=NOW_MS)
    assert isinstance(bounded, RefreshRotated)
    assert bounded.session.expires_at_ms == STORED.session.created_at_ms + LIFE_MS // 2


def test_new_login_ends_that_of_its_device_and_the_ones_used_longest_ago() -> None:
    sessions = [
        a_session(1, last_active_at_ms=NOW_MS),
        a_session(2),
        a_session(3),
        a_session(4, expires_at_ms=NOW_MS),
        a_session(5, kind=SessionKind.BOT, device_id=None, last_active_at_ms=0),
    ]
    new = a_session(9, device_id="device 3")
    assert make_room(sessions, new, sessions_max=2, now_ms=NOW_MS) == (
        ["sess_4"],
        ["sess_3", "sess_2"],
    )
    assert make_room(sessions, new, sessions_max=9, now_ms=NOW_MS) == (["sess_4"], ["sess_3"])


def test_bot_ends_no_session() -> None:
    bot = a_session(9, kind=SessionKind.BOT, device_id=None)
    assert make_room([a_session(1)], bot, sessions_max=1, now_ms=NOW_MS) == ([], [])
