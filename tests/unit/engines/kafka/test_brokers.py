"""Whether the vendor's client looks for brokers, by what it tells."""

import json

from tidewire.engines.kafka.brokers import IDLE_S_MAX, is_given_up

LONG = int(IDLE_S_MAX * 1_000_000) + 1


def statistics(*brokers: tuple[str, str, int]) -> bytes:
    told = {
        str(number): {"source": source, "state": state, "stateage": age}
        for number, (source, state, age) in enumerate(brokers)
    }
    return json.dumps({"name": "x", "brokers": told}).encode()


def test_client_that_is_connected_or_tries_has_not_given_up() -> None:
    assert not is_given_up(statistics(("learned", "UP", LONG)))
    assert not is_given_up(statistics(("configured", "TRY_CONNECT", LONG)))
    assert not is_given_up(statistics(("configured", "INIT", LONG - 1)))
    assert not is_given_up(statistics(("learned", "INIT", LONG), ("learned", "UP", LONG)))


def test_client_that_has_long_tried_none_has_given_up() -> None:
    assert is_given_up(statistics(("learned", "INIT", LONG)))
    assert is_given_up(statistics(("learned", "INIT", LONG), ("logical", "TRY_CONNECT", 0)))


def test_client_that_knows_no_broker_has_given_up() -> None:
    assert is_given_up(statistics(("logical", "UP", 0), ("internal", "UP", 0)))
    assert is_given_up(statistics())
    assert is_given_up(b"{}")
