"""The frames from client to server, as a tagged union. PURE.

The envelope is `{type, request_id?, timestamp?, payload}`; `trace_context` and every other field
that is not named here is ignored. Types and number ranges are declared here and checked while
decoding; the forms of ids and the rules of content are checked by `codec`, which knows their codes.
"""

from typing import Final, assert_never

import msgspec

from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.limits import PAGE_MESSAGES_DEFAULT
from tidewire.domain.messages import Amendment, EntryKind, MessageBody
from tidewire.wire.fields import Cursor, PageLimit, SequenceNumber, tags_of


class _Payload(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    pass


class _Frame(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type"
):
    timestamp: str | None = None
    """The client's own time, for debugging only: clients' clocks prove nothing (N-14)."""


class _OneWayFrame(_Frame, frozen=True, gc=False, kw_only=True):
    """Never answered. A `request_id` on it is ignored, whatever it is."""


class _RequestFrame(_Frame, frozen=True, gc=False, kw_only=True):
    """Always answered, under its `request_id`."""

    request_id: str


class EmptyPayload(_Payload, frozen=True, gc=False, kw_only=True):
    """`{}`: the payload is always there, also when there is nothing to say."""


class _SendMessageBody(MessageBody, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    seen_sequence: Cursor | None = None
    """What the author had seen when the text was written; it bounds the implicit read."""
    is_first: bool = False
    """True opens a line that a refusal has closed: no earlier send has to come before this one."""


class SendMessagePayload(_SendMessageBody, frozen=True, gc=False):
    client_message_id: ClientMessageId
    chat_id: ChatId


class SendMessageFrame(_RequestFrame, frozen=True, gc=False, kw_only=True, tag="send_message"):
    payload: SendMessagePayload


class _AmendPayload(_Payload, frozen=True, gc=False, kw_only=True):
    """The first fields of an edit, a deletion or a reaction. The target is in the same chat."""

    client_message_id: ClientMessageId
    chat_id: ChatId
    target: SequenceNumber
    is_first: bool = False


class EditMessagePayload(_AmendPayload, frozen=True, gc=False, kw_only=True):
    content: str
    base: Cursor | None = None
    """The edit that the author saw last, 0 for none: another one meanwhile is a conflict."""


class DeleteMessagePayload(_AmendPayload, frozen=True, gc=False, kw_only=True):
    reason: str | None = None


class ReactPayload(_AmendPayload, frozen=True, gc=False, kw_only=True):
    emoji: str
    is_on: bool = True


class EditMessageFrame(_RequestFrame, frozen=True, gc=False, kw_only=True, tag="edit_message"):
    payload: EditMessagePayload


class DeleteMessageFrame(_RequestFrame, frozen=True, gc=False, kw_only=True, tag="delete_message"):
    payload: DeleteMessagePayload


class ReactFrame(_RequestFrame, frozen=True, gc=False, kw_only=True, tag="react"):
    payload: ReactPayload


class AckPayload(_Payload, frozen=True, gc=False, kw_only=True):
    chat_id: ChatId
    last_acked_sequence: SequenceNumber


class AckFrame(_OneWayFrame, frozen=True, gc=False, kw_only=True, tag="ack"):
    """One of the user's devices has stored everything up to here."""

    payload: AckPayload


class ReadPayload(_Payload, frozen=True, gc=False, kw_only=True):
    chat_id: ChatId
    last_read_sequence: SequenceNumber


class ReadFrame(_OneWayFrame, frozen=True, gc=False, kw_only=True, tag="read"):
    """The user has seen everything up to here, which is also an ack of it."""

    payload: ReadPayload


class SyncRequestPayload(_Payload, frozen=True, gc=False, kw_only=True):
    chat_id: ChatId
    last_acked_sequence: Cursor
    """The device's own cursor: it alone decides what is fetched (D-01)."""
    limit: PageLimit = PAGE_MESSAGES_DEFAULT


class SyncRequestFrame(_RequestFrame, frozen=True, gc=False, kw_only=True, tag="sync_request"):
    payload: SyncRequestPayload


class DigestRequestFrame(_RequestFrame, frozen=True, gc=False, kw_only=True, tag="digest_request"):
    """Asks for the state of all chats again; the first digest comes unasked."""

    payload: EmptyPayload


class HeartbeatFrame(_Frame, frozen=True, gc=False, kw_only=True, tag="heartbeat"):
    """Always answered; its `request_id` is optional, and echoed."""

    request_id: str | None = None
    payload: EmptyPayload


class TypingPayload(_Payload, frozen=True, gc=False, kw_only=True):
    chat_id: ChatId


class TypingStartFrame(_OneWayFrame, frozen=True, gc=False, kw_only=True, tag="typing_start"):
    payload: TypingPayload


class TypingStopFrame(_OneWayFrame, frozen=True, gc=False, kw_only=True, tag="typing_stop"):
    payload: TypingPayload


AmendFrame = EditMessageFrame | DeleteMessageFrame | ReactFrame
AmendPayload = EditMessagePayload | DeleteMessagePayload | ReactPayload
SubmitPayload = SendMessagePayload | AmendPayload
SubmitFrame = SendMessageFrame | AmendFrame
"""The frames that ask for an entry in a chat's log, each answered with a `send_message_ack`."""
SUBMIT_FRAMES: Final = (SendMessageFrame, EditMessageFrame, DeleteMessageFrame, ReactFrame)
"""The same for `isinstance`, which takes three times as long with a union."""
OneWayFrame = AckFrame | ReadFrame | TypingStartFrame | TypingStopFrame
ClientFrame = SubmitFrame | SyncRequestFrame | DigestRequestFrame | HeartbeatFrame | OneWayFrame


def amendment_of(payload: AmendPayload) -> tuple[MessageBody, Amendment, int | None]:
    """The text of a frame (only an edit has one), the amendment that it asks for, and the edit that
    its author saw last."""
    match payload:
        case EditMessagePayload():
            amends = Amendment(kind=EntryKind.EDIT, target=payload.target)
            return MessageBody(content=payload.content), amends, payload.base
        case DeleteMessagePayload():
            amends = Amendment(kind=EntryKind.DELETE, target=payload.target, reason=payload.reason)
        case ReactPayload():
            amends = Amendment(
                kind=EntryKind.REACT,
                target=payload.target,
                emoji=payload.emoji,
                is_on=payload.is_on,
            )
        case _:
            assert_never(payload)
    return _NO_TEXT, amends, None


_NO_TEXT: Final = MessageBody(content="")

CLIENT_FRAME_TYPES: Final = tags_of(ClientFrame)
ONE_WAY_TYPES: Final = tags_of(OneWayFrame)
"""Never answered: an error about one of these goes out without a request_id (D-14)."""
