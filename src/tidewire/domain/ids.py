"""Identifiers: a prefix that says what a thing is, and a ULID that says when it was made.

A ULID is 48 bits of milliseconds and 80 random bits in Crockford's base 32, so that ids sort by the
time they were made. `UlidSource` keeps them strictly increasing within a process, also when the
clock stands still or jumps back. The id of a stored message also carries its place in its chat, so
that no index is needed to find it. PURE: time and randomness come in as arguments.
"""

import re
from collections.abc import Callable
from typing import Final, NewType

ChatId = NewType("ChatId", str)
MessageId = NewType("MessageId", str)
UserId = NewType("UserId", str)
SYSTEM: Final = UserId("system")
"""The sender id of the server itself, where it writes into a chat. It is not a member of any."""
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
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
PLACE_LETTERS: Final = 8
PLACE_MAX: Final = (1 << 5 * PLACE_LETTERS) - 1
"""The highest sequence that fits into an id, about 10^12. An id without a place is legal, too."""
_TIME_END: Final = len(MESSAGE_PREFIX) + 10
_ERA_BITS: Final = 20
_ERA_LETTERS: Final = 6
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS: Final = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
"""Translates Crockford's letters to those that `int(text, 32)` reads."""
# Two base-32 digits at a time: half the work of single digits, for every message.
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
# Written out: with a repeated group a match takes one and a half times as long.
_UUID_PATTERN: Final = "-".join(f"[0-9a-fA-F]{{{count}}}" for count in (8, 4, 4, 4, 12))
_SAFE_PATTERN: Final = r"[A-Za-z0-9_.:\-]{1,64}"
_UUID: Final = re.compile(_UUID_PATTERN)
_SAFE: Final = re.compile(_SAFE_PATTERN)
_SUBMISSION: Final = re.compile(f"{_SAFE_PATTERN} {_SAFE_PATTERN} {_UUID_PATTERN}")


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


def placed(message_id: MessageId, sequence: int) -> MessageId:
    """The id of the message at this place in its chat: the time and the lowest 40 bits of the given
    id (the ids of one process differ in these), then the sequence. Above `PLACE_MAX`: the given id
    itself."""
    if sequence > PLACE_MAX:
        return message_id
    pairs = _PAIRS
    return MessageId(
        f"{message_id[:_TIME_END]}{message_id[-PLACE_LETTERS:]}"
        f"{pairs[sequence >> 30]}{pairs[sequence >> 20 & 1023]}"
        f"{pairs[sequence >> 10 & 1023]}{pairs[sequence & 1023]}"
    )


def place_in(message_id: str) -> int:
    """The sequence that an id carries. An id without a place also gives a number, because any ULID
    can be read like this. 0: the text is not the id of a message."""
    if not has_form(message_id, MESSAGE_PREFIX):
        return 0
    return int(message_id[-PLACE_LETTERS:].translate(_DIGITS), 32)


class UlidSource:
    """Makes ids that strictly increase within this process, whatever the clock does."""

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        """`random_bits(n)` gives n random bits, as `secrets.randbits` does."""
        self._random_bits = random_bits
        self._last = -1
        self._high = -1
        self._high_text = ""
        self._era = -1
        self._era_text = ""

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
            self._high_text = self._encode_high(high)
        pairs = _PAIRS
        low = self._last & _LOW_MASK
        return (
            f"{self._high_text}{pairs[low >> 30]}{pairs[low >> 20 & 1023]}"
            f"{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
        )

    def _encode_high(self, high: int) -> str:
        """All letters but the last eight. The first six change every 17 minutes and are cached."""
        time_ms = high >> _LOW_BITS
        era = time_ms >> _ERA_BITS
        if era != self._era:
            self._era = era
            self._era_text = encode_ulid(high << _LOW_BITS)[:_ERA_LETTERS]
        pairs = _PAIRS
        middle = high & _LOW_MASK
        return (
            f"{self._era_text}{pairs[time_ms >> 10 & 1023]}{pairs[time_ms & 1023]}"
            f"{pairs[middle >> 30]}{pairs[middle >> 20 & 1023]}"
            f"{pairs[middle >> 10 & 1023]}{pairs[middle & 1023]}"
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


def are_submission_ids(request_id: str, chat_id: str, client_message_id: str) -> bool:
    """True for two safe tokens and a UUID. Called for every message, so it is one regular
    expression: none of the three can contain the space that separates them."""
    return _SUBMISSION.fullmatch(f"{request_id} {chat_id} {client_message_id}") is not None
