"""Dead letters: records that no reader of the log understands, kept for people to examine. PURE."""

import base64
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.wire.timestamps import WIRE_TIME_MS_MAX, format_time_ms

ATTEMPTS_HEADER: Final = "x-processing-attempts"
"""A program that puts a dead letter back into its topic may set the number of attempts here."""
ATTEMPTS_MAX: Final = 1_000_000

Headers = Sequence[tuple[str, bytes | None]]


class DeadLetterMetadata(msgspec.Struct, frozen=True, kw_only=True):
    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: str
    consumer_group: str
    consumer_id: str
    failure_reason: str
    failure_timestamp: str
    processing_attempts: int


class OriginalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes in base 64, because they may not be valid text."""

    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str | None]]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    dlq_metadata: DeadLetterMetadata
    original_record: OriginalRecord


def original_record(key: bytes | None, value: bytes | None, headers: Headers) -> OriginalRecord:
    return OriginalRecord(
        key=_base64(key),
        value=_base64(value),
        headers=[(name, _base64(content)) for name, content in headers],
    )


def attempts_so_far(headers: Headers) -> int:
    """How often a record was tried before, by its header; 0 if the header is missing or invalid."""
    for name, content in headers:
        if name == ATTEMPTS_HEADER and content is not None and content.isdigit():
            return min(int(content[:7]), ATTEMPTS_MAX)
    return 0


def letter_time(time_ms: int) -> str:
    """The text of a time that a broker or another program gave; an invalid time becomes 1970."""
    return format_time_ms(time_ms if 0 <= time_ms <= WIRE_TIME_MS_MAX else 0)


def encode_dead_letter(letter: DeadLetter) -> bytes:
    return msgspec.json.encode(letter)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
