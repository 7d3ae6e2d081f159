"""Sends that one gateway of a cluster forwards to another, and what became of them. PURE."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidewire.domain.errors import ErrorCode, Refused
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage


class Forwarded(msgspec.Struct, frozen=True, tag="forwarded"):
    """Sends of one chat, in their order, to be appended where they arrive."""

    number: int
    """Of this batch at its origin; the answer names it."""
    origin: str
    """The gateway that waits for the answer."""
    time_ms: int
    """For how long it does."""
    sends: list[SendMessage]


class Told(msgspec.Struct, frozen=True):
    """What became of one send: stored, refused for good, or neither (all None): then nothing
    is decided, and the origin decides."""

    stored: Appended | None = None
    code: ErrorCode | None = None
    sentence: str = ""
    details: Mapping[str, Any] = {}


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    number: int
    told: list[Told]
    """One a send; empty: none was taken in."""


Between = Forwarded | Answered

_DECODER: Final = msgspec.msgpack.Decoder(Between)
_FIELDS: Final = frozenset(SendMessage.__struct_fields__)
encode_between: Final = msgspec.msgpack.Encoder().encode


def decode_between(body: bytes) -> Between | None:
    """None: it is nothing that this version knows. Sends of a newer version, which may say
    something that would get lost here, are left out, all of them."""
    try:
        found: Between = _DECODER.decode(body)
        if isinstance(found, Forwarded) and any(
            not _FIELDS.issuperset(send) for send in msgspec.msgpack.decode(body)["sends"]
        ):
            return msgspec.structs.replace(found, sends=[])
    except (ValueError, RecursionError):
        return None
    return found


def told_of(outcome: AppendOutcome) -> Told:
    if isinstance(outcome, Appended):
        return Told(outcome)
    if isinstance(outcome, Refused):
        return Told(None, outcome.code, str(outcome), outcome.details)
    # It may be stored or not, and may be tried again: that is the origin's to do.
    return Told()


def outcome_of(told: Told) -> AppendOutcome | None:
    """None: nothing is decided."""
    if told.code is None:
        return told.stored
    refusal = Refused(told.sentence, **told.details)
    refusal.code = told.code
    return refusal


def outcomes_of(told: Sequence[Told], count: int) -> list[AppendOutcome | None]:
    """One a send, whatever was told."""
    return [outcome_of(one) for one in told] if len(told) == count else [None] * count
