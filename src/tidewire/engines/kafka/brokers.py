"""Whether the vendor's client still looks for brokers, from what it tells of itself. PURE.

A client forgets a broker that is not in the answer to a question about topics. A broker that stood
still is left out of the answers that it gives itself, until its controller has heard from it again.
A client that has so forgotten its last broker should begin anew with those that it was told of
first, and at times does not (confluentinc/librdkafka#5301): then it does nothing any more.
"""

from typing import Final

import msgspec

IDLE_S_MAX: Final = 10.0
"""One that merely finds nobody tries again every second or so."""

_ASKED: Final = ("configured", "learned")
"""What is "logical" or "internal" is another name for one of these."""


class _Broker(msgspec.Struct):
    source: str = ""
    state: str = ""
    stateage: int = 0
    """In microseconds."""


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}


_DECODER: msgspec.json.Decoder[_Statistics] = msgspec.json.Decoder(_Statistics)


def is_given_up(statistics: bytes) -> bool:
    """Whether the client is connected to no broker and has long tried none."""
    brokers = [one for one in _DECODER.decode(statistics).brokers.values() if one.source in _ASKED]
    return all(one.state == "INIT" and one.stateage > IDLE_S_MAX * 1e6 for one in brokers)
