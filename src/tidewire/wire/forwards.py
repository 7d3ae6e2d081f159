"""Sends that one gateway of a cluster forwards to another, and their outcomes. PURE."""

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
    """How long it waits."""
    sends: list[SendMessage]


class Told(msgspec.Struct, frozen=True):
    """The outcome of one send: stored, refused for good, or undecided (all None). If it is
    undecided, the origin decides."""

    stored: Appended | None = None
    code: ErrorCode | None = None
    sentence: str = ""
    details: Mapping[str, Any] = {}


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    number: int
    told: list[Told]
    """One for each send; empty: none was accepted."""


Between = Forwarded | Answered

_DECODER: Final = msgspec.msgpack.Decoder(Between)
_FIELDS: Final = frozenset(SendMessage.__struct_fields__)
encode_between: Final = msgspec.msgpack.Encoder().encode


def decode_between(body: bytes) -> Between | None:
    """None: this version does not know the form. If a send has fields of a newer version, which
    would get lost here, all sends are left out."""
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
    # It may be stored or not, and may be tried again: the origin has to do that.
    return Told()


def outcome_of(told: Told) -> AppendOutcome | None:
    """None: it is undecided."""
    if told.code is None:
        return told.stored
    refusal = Refused(told.sentence, **told.details)
    refusal.code = told.code
    return refusal


def outcomes_of(told: Sequence[Told], count: int) -> list[AppendOutcome | None]:
    """One for each of the `count` sends; None for all if their number is not the same."""
    return [outcome_of(one) for one in told] if len(told) == count else [None] * count
