"""Hard bounds of the protocol and of the store, in one place, with their relations asserted. PURE.

Settings that an operator may change are in the options of each plane; none may exceed these bounds.
"""

from collections.abc import Container
from dataclasses import fields
from typing import Any, Final

SEQUENCE_MAX: Final = (1 << 53) - 1
"""The highest sequence: the largest integer that every JSON reader keeps exact (P-14)."""

TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: on the wire a year has four digits."""

CONTENT_BYTES_MAX: Final = 4096
FRAME_BYTES_MAX: Final = 64 * 1024
"""Of a frame, and of an array of frames that a client sends."""
BATCH_FRAMES_MAX: Final = 256
"""Frames in an array that a client sends."""
BATCH_BYTES_MAX: Final = 64 * 1024
"""Of an array of frames that the server sends; a larger frame goes alone."""
CONTENT_TYPE_DEFAULT: Final = "text/plain"
CONTENT_TYPES: Final = frozenset({CONTENT_TYPE_DEFAULT})

PAGE_MESSAGES_DEFAULT: Final = 100
PAGE_MESSAGES_MAX: Final = 500
PAGE_BYTES_MAX: Final = 256 * 1024
"""A page of messages is cut at this size, so that it fits the outbound budget (D-07)."""

HISTORY_MESSAGES_DEFAULT: Final = 50
HISTORY_MESSAGES_MAX: Final = 100

GROUP_MEMBERS_MAX: Final = 1000
CHAT_NAME_CHARACTERS_MAX: Final = 128
DISPLAY_NAME_CHARACTERS_MAX: Final = 64
USERNAME_CHARACTERS_MAX: Final = 64
MUTE_HOURS_MAX: Final = 8760

DIGEST_CHATS_MAX: Final = 200
MEMBERS_PAGE_MAX: Final = 200

SUBJECT_CHARACTERS_MAX: Final = 256
"""The name that another identity provider has for a person."""
PASSWORD_CHARACTERS_MIN: Final = 8
PASSWORD_CHARACTERS_MAX: Final = 1024
CLIENT_CHARACTERS_MAX: Final = 120
"""How much of a client's own name is kept."""
BLOCKS_MAX: Final = 10_000
"""How many people one user may block."""
LOOKUP_NAMES_MAX: Final = 100
USERS_PAGE_MAX: Final = 500
CHAT_LIST_MAX: Final = 100
PREVIEW_CHARACTERS_MAX: Final = 100
REQUEST_KEY_LIFE_MS: Final = 24 * 3_600_000
"""How long an Idempotency-Key is remembered."""
REQUEST_PENDING_MS_MAX: Final = 60_000
"""A request not finished by then counts as crashed: the next one with its key takes it over."""

EDITS_MAX: Final = 40
"""Edits of one message: few enough that its deletion erases all of them in one transaction."""
MENTIONS_MAX: Final = 50
REACTION_KINDS_MAX: Final = 20
"""Different emoji on one message."""
REACTION_USERS_MAX: Final = 10
"""How many of the users who react with an emoji are named; all are counted."""
EMOJI_BYTES_MAX: Final = 32
REASON_CHARACTERS_MAX: Final = 200
"""Why a message was deleted."""

UNREAD_MAX: Final = 100
"""Unread messages are counted up to here; a client shows more as 99+."""
UNREAD_SCAN_MAX: Final = 1_000
"""How many messages an unread count looks at, from the last one down. If more would have to be
looked at, for example after so many own ones, the count is a lower bound."""

APPEND_SENDS_MAX: Final = 512
"""Sends in one append: one transaction, one sync."""
APPEND_BYTES_MAX: Final = 4 * 1024 * 1024

RESTORE_SEQUENCE_JUMP: Final = 1 << 20
"""How far a restore moves every counter ahead, so that no sequence is given out twice."""
RECOVERY_SEQUENCE_JUMP: Final = 10_000
"""How far a recovered counter starts above the highest message (P-02)."""

HEARTBEAT_INTERVAL_MS: Final = 30_000
IDLE_TIMEOUT_MS: Final = 75_000
LINE_CLOSED_MS: Final = 10_000
"""How long a connection's line to a chat stays closed after a refused send (decision 0008)."""
REQUEST_ID_CHARACTERS_MAX: Final = 64

# A message with its envelope and every byte escaped (\u0001 is six letters) must fit into a frame.
assert FRAME_BYTES_MAX >= 6 * CONTENT_BYTES_MAX + 4096
assert PAGE_BYTES_MAX >= CONTENT_BYTES_MAX * 6
assert PAGE_MESSAGES_DEFAULT <= PAGE_MESSAGES_MAX
assert HISTORY_MESSAGES_MAX <= PAGE_MESSAGES_MAX
assert IDLE_TIMEOUT_MS >= 2 * HEARTBEAT_INTERVAL_MS
assert APPEND_SENDS_MAX * CONTENT_BYTES_MAX <= APPEND_BYTES_MAX
assert UNREAD_MAX < UNREAD_SCAN_MAX


def check(holds: bool, sentence: str) -> None:
    """Check a rule of some options: raises ValueError with the sentence if it does not hold."""
    if not holds:
        raise ValueError(sentence)


def check_numbers(options: Any, *, may_be_zero: Container[str] = ()) -> None:
    """Check that every `int` in a dataclass of options is at least 1, or 0 if `may_be_zero` names
    it. A field may be None. Raises ValueError."""
    for field in fields(options):
        name, value = field.name, getattr(options, field.name)
        if type(value) is int and name in may_be_zero:
            check(value >= 0, f"{name} is not negative")
        elif type(value) is int:
            check(value >= 1, f"{name} is at least 1")
