"""Identifiers: a prefix that says what a thing is, and a ULID that says when it was made.

A ULID is 48 bits of milliseconds and 80 random bits in Crockford's base 32, so that ids sort by the
time they were made. `UlidSource` keeps them strictly increasing within a process, also when the
clock stands still or jumps back. PURE: time and randomness come in as arguments.
"""

import re
from collections.abc import Callable
from typing import Final, NewType

ChatId = NewType("ChatId", str)
MessageId = NewType("MessageId", str)
UserId = NewType("UserId", str)
SessionId = NewType("SessionId", str)
ConnectionId = NewType("ConnectionId", str)
ClientMessageId = NewType("ClientMessageId", str)

CHAT_PREFIX: Final = "chat_"
MESSAGE_PREFIX: Final = "msg_"
USER_PREFIX: Final = "user_"
SESSION_PREFIX: Final = "sess_"
CONNECTION_PREFIX: Final = "conn_"
EVENT_PREFIX: Final = "evt_"

ULID_LENGTH: Final = 26
RANDOM_BITS: Final = 80
TIME_MS_MAX: Final = (1 << 48) - 1

_LOW_BITS: Final = 40
_LOW_LETTERS: Final = 8
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Two base-32 digits at a time: half the work of one by one on the path of every message.
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SAFE: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")


def encode_ulid(value: int) -> str:
    """The 26 letters of a 128-bit number."""
    assert 0 <= value < 1 << 128
    pairs = _PAIRS
    return "".join([pairs[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def ulid_time_ms(ulid: str) -> int:
    """The millisecond that a ULID carries. The text must be a ULID."""
    assert _ULID.fullmatch(ulid), ulid
    time_ms = 0
    for letter in ulid[:10]:
        time_ms = time_ms << 5 | _VALUES[letter]
    return time_ms


class UlidSource:
    """Makes ids that strictly increase within this process, whatever the clock does."""

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        """`random_bits(n)` gives n random bits, as `secrets.randbits` does."""
        self._random_bits = random_bits
        self._last = -1
        self._high = -1
        self._high_text = ""

    def next_ulid(self, now_ms: int) -> str:
        """A ULID of this millisecond, or just above the last one if time stood or went back."""
        assert 0 <= now_ms <= TIME_MS_MAX
        if now_ms > self._last >> RANDOM_BITS:
            self._last = now_ms << RANDOM_BITS | self._random_bits(RANDOM_BITS)
        else:
            # The random part overflows into the next millisecond, which keeps the order.
            self._last += 1
        # Ids of one millisecond differ in their last letters only; the rest is encoded once.
        high = self._last >> _LOW_BITS
        if high != self._high:
            self._high = high
            self._high_text = encode_ulid(high << _LOW_BITS)[:-_LOW_LETTERS]
        low = self._last
        return "".join(
            (
                self._high_text,
                _PAIRS[(low >> 30) & 1023],
                _PAIRS[(low >> 20) & 1023],
                _PAIRS[(low >> 10) & 1023],
                _PAIRS[low & 1023],
            )
        )

    def chat_id(self, now_ms: int) -> ChatId:
        return ChatId(CHAT_PREFIX + self.next_ulid(now_ms))

    def message_id(self, now_ms: int) -> MessageId:
        return MessageId(MESSAGE_PREFIX + self.next_ulid(now_ms))

    def user_id(self, now_ms: int) -> UserId:
        return UserId(USER_PREFIX + self.next_ulid(now_ms))

    def session_id(self, now_ms: int) -> SessionId:
        return SessionId(SESSION_PREFIX + self.next_ulid(now_ms))

    def connection_id(self, now_ms: int) -> ConnectionId:
        return ConnectionId(CONNECTION_PREFIX + self.next_ulid(now_ms))


def has_form(text: str, prefix: str) -> bool:
    """True if the text is the prefix followed by a ULID."""
    return text.startswith(prefix) and _ULID.fullmatch(text, len(prefix)) is not None


def is_uuid(text: str) -> bool:
    """True for any UUID, of any version: what a client uses as `client_message_id` (N-12)."""
    return _UUID.fullmatch(text) is not None


def is_safe_token(text: str) -> bool:
    """True for 1 to 64 letters that may stand in a log, a key or a header (N-12)."""
    return _SAFE.fullmatch(text) is not None
