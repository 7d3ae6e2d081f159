"""What a client reads in its own token."""

import base64
import json

import pytest

from tidewire.client.credentials import NO_FACTS, facts_of, renew_in_ms


def token(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{body}.signature"


def test_facts_of_a_token_are_whose_it_is_for_which_device_and_until_when() -> None:
    facts = facts_of(token(sub="user_1", did="device", exp=1_900_000_000.5, other=[1]))
    assert (facts.sub, facts.did, facts.expires_at_ms) == ("user_1", "device", 1_900_000_000_500)
    assert facts_of(token(sub="user_1")).expires_at_ms is None


@pytest.mark.parametrize("text", ["", "opaque", "a.b", "a.!.c", "a.e30x.c", token(exp="soon")])
def test_facts_of_what_cannot_be_read_are_none(text: str) -> None:
    assert facts_of(text) == NO_FACTS


def test_renewal_is_early_but_not_at_once() -> None:
    assert renew_in_ms(3_600_000) == 3_300_000
    assert renew_in_ms(60_000) == 48_000
    assert renew_in_ms(0) == 1_000
