"""Texts for people: the connection's state, who is typing, what `tail` prints. PURE."""

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Final

import msgspec
from msgspec.structs import replace

from tidewire.client.effects import ConnectionState, Status
from tidewire.client.model import Change, Message
from tidewire.domain.messages import EntryKind
from tidewire.terminal.text import one_line, visible
from tidewire.wire.forms import form_of
from tidewire.wire.timestamps import format_time_ms

DAMAGED: Final = "[damaged on the server: its text is lost]"
"""Stands where the text of a damaged message would."""
DELETED: Final = "[deleted]"
"""Stands where the text of a deleted message was."""

_STATES: Final = {
    ConnectionState.OFFLINE: "offline",
    ConnectionState.CONNECTING: "connecting",
    ConnectionState.SYNCING: "connected, catching up",
    ConnectionState.READY: "connected",
    ConnectionState.CLOSED: "ended",
}
_OFFLINE: Final = {
    "unreachable": "no server there",
    "server_shutdown": "the server restarts",
    "silence": "no answer",
    "no_answer": "no answer",
    "handshake_timeout": "no answer",
    "rate_limited": "too much at once",
    "slow_consumer": "too slow",
    "token_expired": "login being renewed",
    "idle_timeout": "no answer",
}
_CLOSED: Final = {
    "closed": "closed",
    "session_revoked": "this device was logged out",
    "login_needed": "the login has ended",
    "invalid_token": "the login has ended",
    "device_mismatch": "the login is another device's",
    "duplicate_connection": "this login is in use elsewhere",
    "unsupported_version": "the server speaks another version",
    "other_user": "the store is another user's",
    "store_failed": "the local store cannot be written",
    "internal_error": "an error in this program",
}
LOGIN_ENDED: Final = frozenset(
    {"session_revoked", "login_needed", "invalid_token", "device_mismatch"}
)
"""Reasons of a closed connection after which only a new login helps."""


def state_words(status: Status, waiting: int = 0) -> str:
    """The connection's state; `waiting` is how many messages have not left yet."""
    words = _STATES[status.state]
    reason = (status.reason or "").lower()
    if status.state is ConnectionState.OFFLINE and reason in _OFFLINE:
        words += f": {_OFFLINE[reason]}"
    elif status.state is ConnectionState.CLOSED:
        words += f": {_CLOSED.get(reason, reason or 'closed')}"
    if waiting and status.state is not ConnectionState.READY:
        words += f" · {waiting} to send"
    return words


def typing_words(names: Sequence[str]) -> str:
    shown = [one_line(name) for name in names]
    if len(shown) > 2:
        return f"{len(shown)} people are typing…"
    if not shown:
        return ""
    return f"{' and '.join(shown)} {'is' if len(shown) == 1 else 'are'} typing…"


def text_of(message: Message) -> str:
    """The text that is shown for a message, as it was written, with its control characters."""
    if message.is_deleted:
        return DELETED
    return DAMAGED if message.is_damaged else message.text


def mentioned(text: str, people: Mapping[str, str]) -> list[str]:
    """The ids of those whom a text mentions, in its order: `@Bob`, `@bob smith`. `people` are ids
    by name; if two names fit, the longer one counts."""
    folded = text.casefold()
    found: dict[int, str] = {}
    for name in sorted(people, key=len, reverse=True):
        word = f"@{name.casefold()}"
        at = folded.find(word)
        while at >= 0:
            end = at + len(word)
            is_word = not folded[end : end + 1].isalnum() and not folded[:at][-1:].isalnum()
            if is_word:
                found[at] = people[name]
                folded = folded[:at] + " " * len(word) + folded[end:]
            at = folded.find(word, end)
    return list(dict.fromkeys(found[at] for at in sorted(found)))


class JsonReaction(msgspec.Struct, frozen=True, kw_only=True):
    emoji: str
    count: int
    is_own: bool


class JsonLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message as it is now; fields are added, never renamed."""

    chat_id: str
    sequence: int
    message_id: str
    client_message_id: str
    sender_id: str
    sender: str
    is_own: bool
    created_at: str
    text: str
    is_damaged: bool = False
    """The server's copy is damaged; the text is empty."""
    is_edited: bool = False
    is_deleted: bool = False
    """The text is empty."""
    reply_to: int | None = None
    mentions: tuple[str, ...] = ()
    reactions: tuple[JsonReaction, ...] = ()


class JsonChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of a message: it has a `kind`, which a message has not."""

    kind: str
    chat_id: str
    sequence: int
    target: int
    sender_id: str
    sender: str
    is_own: bool
    created_at: str
    text: str = ""
    emoji: str | None = None
    is_on: bool | None = None
    count: int | None = None
    reason: str | None = None


def json_line(message: Message, name: str) -> str:
    """One object without a line break. The text is as it was written."""
    line = form_of(
        JsonLine,
        message,
        sender=name,
        created_at=format_time_ms(message.created_at_ms),
        reactions=tuple(form_of(JsonReaction, one) for one in message.reactions),
    )
    return msgspec.json.encode(line).decode()


def json_change(change: Change, chat_id: str, name: str) -> str:
    """The same for a change."""
    is_reaction = change.kind is EntryKind.REACT
    line = form_of(JsonChange, change, chat_id=chat_id, sender=name, is_on=None, count=None)
    if is_reaction:
        line = replace(line, is_on=change.is_on, count=change.count)
    return msgspec.json.encode(line).decode()


def text_line(message: Message, name: str, zone: tzinfo | None) -> str:
    """`09:41 #7 Bob: Hello`; further lines of a message are indented, so that no text can contain a
    line that looks like another message."""
    notes = [f"to #{message.reply_to}"] if message.reply_to is not None else []
    notes += ["edited"] if message.is_edited else []
    about = f" ({', '.join(notes)})" if notes else ""
    reactions = " ".join(f"{one_line(one.emoji)} {one.count}" for one in message.reactions)
    head = _head(message.sequence, message.created_at_ms, name, zone)
    end = f" [{reactions}]" if reactions else ""
    return _lines(f"{head}{about}: ", visible(text_of(message)) + end)


def change_line(change: Change, name: str, zone: tzinfo | None) -> str:
    """`09:43 #9 Bob edited #7: Hello again`."""
    head = _head(change.sequence, change.created_at_ms, name, zone)
    target = f"#{change.target}"
    match change.kind:
        case EntryKind.EDIT:
            # Without a text: the message was deleted later.
            return _lines(f"{head} edited {target}: ", visible(change.text or DELETED))
        case EntryKind.DELETE:
            why = "" if change.reason is None else f" ({one_line(change.reason)})"
            return f"{head} deleted {target}{why}"
        case _:
            emoji = one_line(change.emoji or "")
            if change.is_on:
                return f"{head} reacted to {target}: {emoji} ({change.count})"
            return f"{head} took back from {target}: {emoji} ({change.count})"


def _head(sequence: int, at_ms: int, name: str, zone: tzinfo | None) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, zone)
    return f"{at:%Y-%m-%d %H:%M} #{sequence} {one_line(name)}"


def _lines(head: str, text: str) -> str:
    first, *others = text.split("\n")
    return "\n".join([head + first, *(f"    {line}" for line in others)])


class Typists:
    """Who types in which chat. An entry expires after a while: a `stop` may never come."""

    def __init__(self, *, keep_ms: int = 6_000, typists_max: int = 1_000) -> None:
        self._keep_ms = keep_ms
        self._typists_max = typists_max
        self._until_ms: dict[tuple[str, str], int] = {}

    def typed(self, chat_id: str, user_id: str, is_typing: bool, now_ms: int) -> None:
        self._until_ms.pop((chat_id, user_id), None)
        if is_typing:
            self._until_ms[chat_id, user_id] = now_ms + self._keep_ms
            if len(self._until_ms) > self._typists_max:
                del self._until_ms[next(iter(self._until_ms))]

    def forget(self, now_ms: int) -> bool:
        """Drop expired entries; True if there were any."""
        over = [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for key in over:
            del self._until_ms[key]
        return bool(over)

    def typing_in(self, chat_id: str) -> list[str]:
        return [user_id for place, user_id in self._until_ms if place == chat_id]

    def __len__(self) -> int:
        return len(self._until_ms)
