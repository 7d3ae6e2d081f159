"""The entries of a chat's log: messages, and amendments of them. The request to append one, and its
outcomes. PURE.

An entry is a message, or it amends one: an edit, a deletion or a reaction. All of them are stored
under the chat's next sequence, and all of them are a `Message` here: an amendment is one that
`amends`. The rules for targets are in `amendments`; `fold` computes what people see.

These values are built for every message, so they are msgspec structs: a frozen one costs a fraction
of a frozen dataclass to make.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final

import msgspec

from tidewire.domain.errors import (
    InvalidContent,
    InvalidContentType,
    InvalidEncoding,
    InvalidMessage,
    MessageTooLarge,
    TidewireError,
)
from tidewire.domain.ids import (
    ChatId,
    ClientMessageId,
    ConnectionId,
    MessageId,
    UserId,
    is_safe_token,
    is_uuid,
)
from tidewire.domain.limits import (
    CONTENT_BYTES_MAX,
    CONTENT_TYPE_DEFAULT,
    CONTENT_TYPES,
    EMOJI_BYTES_MAX,
    MENTIONS_MAX,
    REASON_CHARACTERS_MAX,
    SEQUENCE_MAX,
)

MENTION_ALL: Final = UserId("@all")
"""In the mentions it stands for all members. No user id begins with `@`."""


class EntryKind(StrEnum):
    """The kind of an entry of the log. Stable: kinds are added, and a client keeps entries of kinds
    that it does not know without showing them."""

    MESSAGE = "message"
    EDIT = "edit"
    DELETE = "delete"
    REACT = "react"


class Amendment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an entry does to its target, a message below it in the same chat.

    The new text of an edit is the content of the entry. `reason` is a deletion's, `emoji` and
    `is_on` are a reaction's: set, or taken back.
    """

    kind: EntryKind
    target: int
    emoji: str | None = None
    is_on: bool = True
    reason: str | None = None


class MessageBody(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the author of a message says. Every form of a message has these fields: the frames and
    models of `wire` and the client's outbox inherit them, `Message` repeats them.

    They are keyword-only, so that a form can put its ids before them: the order of the fields is
    that of the JSON. A new field must have a default.
    """

    content: str
    content_type: str = CONTENT_TYPE_DEFAULT
    reply_to: int | None = None
    """The sequence of the message that this one answers. The text of that message is not copied, so
    its deletion leaves no copy."""
    mentions: tuple[UserId, ...] = ()
    """The mentioned members, or `MENTION_ALL`."""

    @property
    def is_bare(self) -> bool:
        """It is a text and nothing else."""
        return self.reply_to is None and not self.mentions


BESIDE_TEXT: Final = MessageBody.__struct_fields__[2:]
"""The fields that only some messages use."""

body_of: Final = attrgetter(*MessageBody.__struct_fields__)
"""Returns the values of the body of any form of a message."""

said_by: Final = attrgetter(*MessageBody.__struct_fields__, "amends")
"""Returns all that the client chose of an entry, from a send or a stored entry. If it is equal for
two entries with the same key, the second one is a retry."""


class SendMessage(MessageBody, frozen=True, gc=False, kw_only=True):
    """A request to append one entry to a chat: a message, or an amendment (`amends`).

    If the entry is stored, it gets the `message_id`, with its place in the chat; the answer to a
    retry has the id of the first send. `seen_sequence` is what the author had seen when the text
    was written.
    """

    chat_id: ChatId
    sender_id: UserId
    client_message_id: ClientMessageId
    message_id: MessageId
    seen_sequence: int | None = None
    origin_connection_id: ConnectionId | None = None
    amends: Amendment | None = None
    base: int | None = None
    """Of an edit: the edit that its author saw last, 0 for none. None: this is not checked."""
    targets_since_ms: int = 0
    """Of an edit: a message created before this instant may not be edited any more."""

    @property
    def is_plain(self) -> bool:
        """It concerns no other entry and no other member: nothing has to be looked up for it."""
        return self.amends is None and self.is_bare


class Message(msgspec.Struct, frozen=True, gc=False):
    """A stored entry: a message, or (`amends`) a change of one. `prev_sequence` is the entry before
    it in its chat, 0 for the first.

    Its fields are positional, because a page makes many messages.

    One that was deleted, by the entry `deleted_by`, has neither content nor mentions; the same is
    true of its edits.

    If it `is_damaged`, only the chat and the two numbers are certain: its bytes are not those that
    were stored, so its content is left out, and the rest is as it was found (`damage`).
    """

    chat_id: ChatId
    sequence: int
    prev_sequence: int
    message_id: MessageId
    sender_id: UserId
    client_message_id: ClientMessageId
    content: str
    content_type: str
    created_at_ms: int
    reply_to: int | None = None
    mentions: tuple[UserId, ...] = ()
    amends: Amendment | None = None
    count: int = 0
    """Of a reaction: how many users have its emoji on the target after it."""
    deleted_by: int | None = None
    is_damaged: bool = False

    @property
    def kind(self) -> EntryKind:
        return EntryKind.MESSAGE if self.amends is None else self.amends.kind

    @property
    def is_deleted(self) -> bool:
        return self.deleted_by is not None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The answer to a send that is in the store, now or since an earlier try (`deduplicated`)."""

    message_id: MessageId
    sequence: int
    prev_sequence: int
    created_at_ms: int
    deduplicated: bool
    moderated: UserId | None = None
    """Of a deletion that was stored now: the author of the message, if that is another user."""
    count: int | None = None
    """Of a reaction, as `Message.count`. None if the store does not know it (only for a retry)."""


AppendOutcome = Appended | TidewireError
"""What became of one send of a batch: stored, or the refusal or fault that says why not."""


class MessagePage(msgspec.Struct, frozen=True):
    """Messages of one chat, ascending, none missing between them.

    `synced_through`: the reader is complete up to here. `head`: the sequence of the chat's last
    entry when the page was read.
    """

    messages: Sequence[Message]
    synced_through: int
    has_more: bool
    head: int


def new_send(
    body: MessageBody,
    *,
    chat_id: ChatId,
    sender_id: UserId,
    client_message_id: ClientMessageId,
    message_id: MessageId,
    seen_sequence: int | None,
    origin_connection_id: ConnectionId | None = None,
) -> SendMessage:
    """The send of a body. Written out field by field, as `append.message_of` is, because both are
    called for every message. `amends` is put into it afterwards."""
    return SendMessage(
        content=body.content,
        content_type=body.content_type,
        reply_to=body.reply_to,
        mentions=body.mentions,
        chat_id=chat_id,
        sender_id=sender_id,
        # The same UUID in upper and in lower case is the same key.
        client_message_id=ClientMessageId(client_message_id.lower()),
        message_id=message_id,
        seen_sequence=seen_sequence,
        origin_connection_id=origin_connection_id,
    )


def cut_page(
    messages: Iterable[Message], *, count_max: int, bytes_max: int
) -> tuple[list[Message], bool]:
    """The first messages that fit into a page, but at least one; whether some were left out."""
    page: list[Message] = []
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.content.encode())
        if len(page) == count_max or (page and size_bytes > bytes_max):
            return page, True
        page.append(message)
    return page, False


def check_send(send: SendMessage) -> None:
    """Check what can be checked without a store; raises the refusals about an entry."""
    if send.amends is None:
        check_body(send)
    else:
        check_amendment(send, send.amends, send.base)
    if not is_uuid(send.client_message_id):
        raise InvalidMessage("client_message_id is not a UUID")
    _check_sequence("seen_sequence", send.seen_sequence, least=0)


def check_body(body: MessageBody) -> None:
    """Check a message's body; raises the refusals about its content, reply and mentions."""
    _check_text(body)
    if body.reply_to is not None:
        _check_sequence("reply_to", body.reply_to)
    if body.mentions:
        _check_mentions(body.mentions)


def check_amendment(body: MessageBody, amends: Amendment, base: int | None = None) -> None:
    """Check an edit, a deletion or a reaction, as far as that is possible without its target."""
    _check_sequence("target", amends.target)
    if not body.is_bare:
        raise InvalidMessage("only a message replies and mentions; an edit keeps those it has")
    is_edit, is_reaction = amends.kind is EntryKind.EDIT, amends.kind is EntryKind.REACT
    if is_edit:
        _check_text(body)
        _check_sequence("base", base, least=0)
    elif body.content:
        raise InvalidMessage(f"an entry of the kind {amends.kind} has no content")
    if is_reaction:
        _check_emoji(amends.emoji or "")
    elif amends.emoji is not None or not amends.is_on:
        raise InvalidMessage(f"an entry of the kind {amends.kind} has no emoji")
    if amends.reason is not None:
        _check_reason(amends.kind, amends.reason)


def _check_text(body: MessageBody) -> None:
    content = body.content
    if not content:
        raise InvalidMessage("content is empty; a message has 1 to 4096 bytes")
    # One letter has at most four bytes, so most texts need not be encoded to be measured.
    if len(content) * 4 > CONTENT_BYTES_MAX or not content.isascii():
        check_content_bytes(content)
    if "\x00" in content:
        raise InvalidContent("content has a NUL character")
    if body.content_type not in CONTENT_TYPES:
        raise InvalidContentType(body.content_type)


def check_content_bytes(content: str) -> None:
    """Refuse text that is too long in UTF-8, or that has no UTF-8 form at all."""
    size_bytes = _size_bytes("content", content)
    if size_bytes > CONTENT_BYTES_MAX:
        raise MessageTooLarge(size_bytes=size_bytes, size_bytes_max=CONTENT_BYTES_MAX)


def _check_mentions(mentions: Sequence[UserId]) -> None:
    if len(mentions) > MENTIONS_MAX:
        raise InvalidMessage(f"a message mentions at most {MENTIONS_MAX} users")
    if len(set(mentions)) != len(mentions):
        raise InvalidMessage("a user is mentioned twice")
    if not all(one == MENTION_ALL or is_safe_token(one) for one in mentions):
        raise InvalidMessage("a mention is not the id of a user")


def _check_emoji(emoji: str) -> None:
    size_bytes = _size_bytes("emoji", emoji)
    if not 1 <= size_bytes <= EMOJI_BYTES_MAX:
        raise InvalidMessage(f"an emoji has 1 to {EMOJI_BYTES_MAX} bytes; this has {size_bytes}")
    # Emoji contain joiners and colour marks that are not printable, but no spaces or controls.
    if any(one.isspace() or unicodedata.category(one) == "Cc" for one in emoji):
        raise InvalidMessage("an emoji has no spaces and no control characters")


def _check_reason(kind: EntryKind, reason: str) -> None:
    if kind is not EntryKind.DELETE:
        raise InvalidMessage(f"an entry of the kind {kind} has no reason")
    if not 1 <= len(reason) <= REASON_CHARACTERS_MAX:
        raise InvalidMessage(f"a reason has 1 to {REASON_CHARACTERS_MAX} characters")
    _size_bytes("reason", reason)
    if "\x00" in reason:
        raise InvalidContent("reason has a NUL character")


def _check_sequence(name: str, sequence: int | None, *, least: int = 1) -> None:
    if sequence is not None and not least <= sequence <= SEQUENCE_MAX:
        raise InvalidMessage(f"{name} is not a sequence")


def _size_bytes(name: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidEncoding(f"{name} is not valid UTF-8 text") from error
