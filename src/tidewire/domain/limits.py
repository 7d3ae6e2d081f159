"""Hard bounds of the protocol and of the store, in one place, with their relations asserted. PURE.

What an operator may tune lives in the options of the plane concerned; nothing there may pass these.
"""

from typing import Final

SEQUENCE_MAX: Final = (1 << 53) - 1
"""The highest sequence: the largest integer that every JSON reader keeps exact (P-14)."""

TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: on the wire a year has four digits."""

CONTENT_BYTES_MAX: Final = 4096
FRAME_BYTES_MAX: Final = 64 * 1024
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
"""What is kept of the name that a client gives itself."""
BLOCKS_MAX: Final = 10_000
"""How many people one user may block."""
LOOKUP_NAMES_MAX: Final = 100
USERS_PAGE_MAX: Final = 500
CHAT_LIST_MAX: Final = 100
PREVIEW_CHARACTERS_MAX: Final = 100
REQUEST_KEY_LIFE_MS: Final = 24 * 3_600_000
"""How long an Idempotency-Key is remembered."""
REQUEST_PENDING_MS_MAX: Final = 60_000
"""A request that is not finished by then has died: whoever comes with its key takes it over."""

UNREAD_MAX: Final = 100
"""Unread messages are counted up to here; a client shows more as 99+."""
UNREAD_SCAN_MAX: Final = 1_000
"""How many messages an unread count looks at. Past that many own ones it is a lower bound."""

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
"""How long a connection's sends to a chat wait for one that was refused (decision 0008)."""
REQUEST_ID_CHARACTERS_MAX: Final = 64

# A message with its envelope and every byte escaped (\u0001 is six letters) must fit into a frame.
assert FRAME_BYTES_MAX >= 6 * CONTENT_BYTES_MAX + 4096
assert PAGE_BYTES_MAX >= CONTENT_BYTES_MAX * 6
assert PAGE_MESSAGES_DEFAULT <= PAGE_MESSAGES_MAX
assert HISTORY_MESSAGES_MAX <= PAGE_MESSAGES_MAX
assert IDLE_TIMEOUT_MS >= 2 * HEARTBEAT_INTERVAL_MS
assert APPEND_SENDS_MAX * CONTENT_BYTES_MAX <= APPEND_BYTES_MAX
assert UNREAD_MAX < UNREAD_SCAN_MAX
