"""Refusals of the handshake, and what comes of each."""

from random import Random

import pytest

from tidewire.client.effects import (
    Connect,
    ConnectionState,
    Disconnect,
    Now,
    Refusal,
    StatusChanged,
)
from tidewire.client.link import GONE_AWAY, TRANSITIONS, Link
from tidewire.client.options import ClientOptions

NOW = Now(1_000, 0)


def connecting() -> Link:
    link = Link(ClientOptions(), Random(1))
    link.start(NOW)
    return link


def refusal(status: int, error: str, reason: str | None = None, wait_ms: int = 0) -> Refusal:
    return Refusal(status=status, error=error, reason=reason, retry_after_ms=wait_ms)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (refusal(401, "token_revoked"), "closed(session_revoked)"),
        (refusal(401, "invalid_token", "device_mismatch"), "closed(device_mismatch)"),
        (refusal(400, "unsupported_version"), "closed(unsupported_version)"),
        (refusal(400, "invalid_request"), "closed(invalid_request)"),
        (refusal(403, ""), "closed(http_403)"),
        (refusal(429, "rate_limited"), "offline(rate_limited)"),
        (refusal(503, "service_unavailable"), "offline(service_unavailable)"),
        (refusal(502, "http_502"), "offline(http_502)"),
        (refusal(401, "invalid_token", "token_expired"), "connecting"),
    ],
)
def test_refusal_of_the_handshake_leads_to_its_state(given: Refusal, status: str) -> None:
    link = connecting()
    link.refused(given, NOW)
    assert str(link.status) == status


def test_refused_token_is_renewed_once_and_then_it_is_over() -> None:
    link = connecting()
    done = link.refused(refusal(401, "invalid_token", "token_expired"), NOW)
    assert Connect(with_new_token=True) in done
    link.refused(refusal(401, "invalid_token", "token_expired"), NOW)
    assert str(link.status) == "closed(invalid_token)"


def test_wait_that_the_server_asks_for_is_kept() -> None:
    link = connecting()
    link.refused(refusal(429, "rate_limited", wait_ms=40_000), NOW)
    assert link.next_deadline_ms() == 41_000
    assert not link.is_due(Now(40_999, 0))
    assert link.is_due(Now(41_000, 0))


def test_refusal_that_comes_late_changes_nothing() -> None:
    link = connecting()
    link.stop("closed")
    assert link.refused(refusal(503, "x"), NOW) == []
    assert link.start(NOW) == []


def test_renewal_without_a_connection_is_nothing() -> None:
    link = connecting()
    link.renew(NOW)
    assert not link.is_renewing


def test_states_are_told_once() -> None:
    link = Link(ClientOptions(), Random(1))
    assert [type(one) for one in link.start(NOW)] == [StatusChanged, Connect]
    assert link.start(NOW) == []
    assert TRANSITIONS[ConnectionState.CLOSED] == frozenset()


@pytest.mark.parametrize(
    ("closing", "status", "has_new_token"),
    [
        (None, "offline(silence)", False),
        ("duplicate_connection", "closed(duplicate_connection)", False),
        ("session_revoked", "closed(session_revoked)", False),
        ("token_expired", "offline(token_expired)", True),
        ("server_shutdown", "offline(server_shutdown)", False),
    ],
)
def test_reason_of_a_server_that_died_before_it_closed_counts(
    closing: str | None, status: str, has_new_token: bool
) -> None:
    link = connecting()
    link.established(30_000, NOW)
    if closing is not None:
        link.closing = closing, 0
    done = link.give_up(NOW, "silence")
    assert Disconnect(GONE_AWAY) in done
    assert str(link.status) == status
    assert (Connect(with_new_token=True) in link.start(NOW)) == has_new_token
