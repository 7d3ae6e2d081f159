"""Bytes to frames and back. PURE.

What a peer sends never raises: it is a frame, or a `FrameRefusal` that says what is wrong and how
to answer it. What raises is misuse by our own side (a frame that cannot be encoded).
"""

import re
from collections.abc import Mapping
from typing import Final, assert_never

import msgspec

from tidewire.domain.errors import ErrorCode, InvalidContentType, MessageTooLarge
from tidewire.domain.ids import is_safe_token, is_uuid
from tidewire.domain.limits import CONTENT_BYTES_MAX, CONTENT_TYPES, FRAME_BYTES_MAX
from tidewire.domain.messages import Message
from tidewire.wire.client_frames import (
    CLIENT_FRAME_TYPES,
    ONE_WAY_TYPES,
    AckFrame,
    ClientFrame,
    DigestRequestFrame,
    HeartbeatFrame,
    ReadFrame,
    SendMessageFrame,
    SendMessagePayload,
    SyncRequestFrame,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.frame_builders import message_frame
from tidewire.wire.server_frames import SERVER_FRAME_TYPES, ErrorPayload, ServerFrame

SENTENCE_CHARACTERS_MAX: Final = 200
"""A decoder's sentence may quote the peer, so it is cut."""


class FrameRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a frame was not taken, and how to answer.

    `request_id` is the frame's own, if it had a valid one and its type is answered at all.
    `counts_against_budget`: too many of these end the connection. A text that is too long or of a
    wrong kind is no offence, and an unknown type may come from a newer client (K-09, N-10): these
    use up what a connection may send of small frames.
    `frame_type` is what the frame called itself; None if that is no plain word.
    """

    code: ErrorCode
    message: str
    request_id: str | None
    counts_against_budget: bool
    frame_type: str | None
    is_unknown_type: bool = False
    details: Mapping[str, object] | None = None

    @property
    def is_answered(self) -> bool:
        """False for an unknown type without a request_id, which is ignored and counted."""
        return self.request_id is not None or not self.is_unknown_type


class UnknownFrame(msgspec.Struct, frozen=True):
    """A frame of a type that this client does not know: log, count, carry on."""

    frame_type: str | None


class _Envelope(msgspec.Struct):
    """The least that tells what a frame is, whatever else is wrong with it."""

    type: object = None
    request_id: object = None


class _Fault(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str
    details: Mapping[str, object] | None = None


_CLIENT_DECODER: Final[msgspec.json.Decoder[ClientFrame]] = msgspec.json.Decoder(ClientFrame)
_SERVER_DECODER: Final[msgspec.json.Decoder[ServerFrame]] = msgspec.json.Decoder(ServerFrame)
_ENVELOPE_DECODER: Final = msgspec.json.Decoder(_Envelope)
_ENCODER: Final = msgspec.json.Encoder()

_BAD_REQUEST_ID: Final = _Fault(
    ErrorCode.INVALID_MESSAGE, "request_id is not 1 to 64 letters, digits or . _ : -"
)
_BAD_CHAT_ID: Final = _Fault(
    ErrorCode.INVALID_MESSAGE, "chat_id is not 1 to 64 letters, digits or . _ : -"
)
_BAD_CLIENT_MESSAGE_ID: Final = _Fault(ErrorCode.INVALID_MESSAGE, "client_message_id is not a UUID")
_EMPTY_CONTENT: Final = _Fault(ErrorCode.INVALID_MESSAGE, "content is empty")
_NUL_IN_CONTENT: Final = _Fault(ErrorCode.INVALID_CONTENT, "content has a NUL character")

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# A first half without a second behind it, or a second half without a first before it.
_HALF_PAIR: Final = re.compile(
    r"\\u[dD](?:"
    r"[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)


def decode_client_frame(data: bytes | str | memoryview) -> ClientFrame | FrameRefusal:
    """What a client said, or why it is refused. Never raises."""
    try:
        if len(data) > FRAME_BYTES_MAX or (
            isinstance(data, str) and len(data.encode()) > FRAME_BYTES_MAX
        ):
            return _OVERSIZE
        # The decoder does not look into texts that it skips; this makes the whole frame UTF-8.
        frame = _CLIENT_DECODER.decode(data if isinstance(data, str) else str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        return _refuse_client_frame(data, error)
    fault = _fault_of(frame)
    if fault is None:
        return frame
    frame_type = str(frame.__struct_config__.tag)
    return FrameRefusal(
        code=fault.code,
        message=fault.message,
        request_id=_request_id_to_answer(frame_type, getattr(frame, "request_id", None)),
        counts_against_budget=fault.code is ErrorCode.INVALID_MESSAGE,
        frame_type=frame_type,
        details=fault.details,
    )


def decode_server_frame(
    data: bytes | str | memoryview,
) -> ServerFrame | UnknownFrame | FrameRefusal:
    """What a server said. Never raises. How long a frame may be is the transport's business."""
    try:
        return _SERVER_DECODER.decode(data if isinstance(data, str) else str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        fault, envelope = _diagnose(data, error)
    if isinstance(envelope.type, str) and envelope.type not in SERVER_FRAME_TYPES:
        return UnknownFrame(_plain_word(envelope.type))
    return FrameRefusal(
        code=fault.code,
        message=fault.message,
        request_id=_plain_word(envelope.request_id),
        counts_against_budget=False,
        frame_type=_plain_word(envelope.type),
    )


def encode_client_frame(frame: ClientFrame) -> bytes:
    """Raises UnicodeEncodeError if a text in it has no UTF-8 form: check what a user typed."""
    return _ENCODER.encode(frame)


def encode_server_frame(frame: ServerFrame) -> bytes:
    return _ENCODER.encode(frame)


def encode_message_push(message: Message, now_ms: int) -> bytes:
    """The push of a stored message; encoded once, the same bytes go to every recipient."""
    return _ENCODER.encode(message_frame(message, now_ms=now_ms))


def refusal_payload(refusal: FrameRefusal) -> ErrorPayload:
    """What the peer is told of a refusal, if it is answered."""
    return ErrorPayload(code=refusal.code, message=refusal.message, details=refusal.details)


# Nothing of such a frame is read, also not its request_id: a transport cuts it off before us.
_OVERSIZE: Final = FrameRefusal(
    code=ErrorCode.MESSAGE_TOO_LARGE,
    message=f"a frame has at most {FRAME_BYTES_MAX} bytes",
    request_id=None,
    counts_against_budget=True,
    frame_type=None,
    details={"max_bytes": FRAME_BYTES_MAX},
)


def _fault_of(frame: ClientFrame) -> _Fault | None:
    """What the types cannot say. Code, because as patterns of the decoder it costs double."""
    match frame:
        case SendMessageFrame():
            if not is_safe_token(frame.request_id):
                return _BAD_REQUEST_ID
            return _send_fault(frame.payload)
        case AckFrame() | ReadFrame() | TypingStartFrame() | TypingStopFrame():
            return None if is_safe_token(frame.payload.chat_id) else _BAD_CHAT_ID
        case SyncRequestFrame():
            if not is_safe_token(frame.request_id):
                return _BAD_REQUEST_ID
            return None if is_safe_token(frame.payload.chat_id) else _BAD_CHAT_ID
        case HeartbeatFrame() | DigestRequestFrame():
            has_valid_id = frame.request_id is None or is_safe_token(frame.request_id)
            return None if has_valid_id else _BAD_REQUEST_ID
        case _:
            assert_never(frame)


def _send_fault(payload: SendMessagePayload) -> _Fault | None:
    content = payload.content
    if not is_safe_token(payload.chat_id):
        return _BAD_CHAT_ID
    if not is_uuid(payload.client_message_id):
        return _BAD_CLIENT_MESSAGE_ID
    if not content:
        return _EMPTY_CONTENT
    if "\x00" in content:
        return _NUL_IN_CONTENT
    # A character has at most four bytes, so most texts need not be encoded to be measured.
    if len(content) * 4 > CONTENT_BYTES_MAX:
        size_bytes = len(content.encode())
        if size_bytes > CONTENT_BYTES_MAX:
            large = MessageTooLarge(size_bytes=size_bytes, size_bytes_max=CONTENT_BYTES_MAX)
            return _Fault(large.code, str(large), large.details)
    if payload.content_type not in CONTENT_TYPES:
        other = InvalidContentType(payload.content_type)
        return _Fault(other.code, str(other))
    return None


def _refuse_client_frame(data: bytes | str | memoryview, error: Exception) -> FrameRefusal:
    fault, envelope = _diagnose(data, error)
    frame_type = _plain_word(envelope.type)
    request_id = _request_id_to_answer(frame_type, envelope.request_id)
    if isinstance(envelope.type, str) and envelope.type not in CLIENT_FRAME_TYPES:
        return FrameRefusal(
            code=ErrorCode.INVALID_MESSAGE,
            message="this type of frame is not known here",
            request_id=request_id,
            counts_against_budget=False,
            frame_type=frame_type,
            is_unknown_type=True,
        )
    return FrameRefusal(
        code=fault.code,
        message=fault.message,
        request_id=request_id,
        counts_against_budget=fault.code is ErrorCode.INVALID_MESSAGE,
        frame_type=frame_type,
    )


def _diagnose(data: bytes | str | memoryview, error: Exception) -> tuple[_Fault, _Envelope]:
    """What is wrong with a frame that could not be decoded, and what can still be read of it."""
    text = (
        data.encode("utf-8", "replace").decode()
        if isinstance(data, str)
        else str(data, "utf-8", "replace")
    )
    if isinstance(error, UnicodeError):
        fault = _Fault(ErrorCode.INVALID_ENCODING, "the frame is not valid UTF-8")
    elif _has_lone_surrogate(text):
        fault = _Fault(ErrorCode.INVALID_ENCODING, "a text has half a surrogate pair")
        # The replacement has as many letters, so what follows keeps its meaning.
        text = _SURROGATE.sub(r"\\ufffd", text)
    elif isinstance(error, RecursionError):
        fault = _Fault(ErrorCode.INVALID_MESSAGE, "the frame is nested too deeply")
    else:
        fault = _Fault(ErrorCode.INVALID_MESSAGE, str(error)[:SENTENCE_CHARACTERS_MAX])
    try:
        return fault, _ENVELOPE_DECODER.decode(text)
    except (ValueError, RecursionError):
        return fault, _Envelope()


def _has_lone_surrogate(text: str) -> bool:
    """True if the escapes of a JSON text hold half of a surrogate pair. Takes linear time, a
    millisecond for the longest frame."""
    # An escaped backslash is no beginning of an escape, and keeps two halves apart.
    return _HALF_PAIR.search(text.replace("\\\\", "xx")) is not None


def _request_id_to_answer(frame_type: str | None, request_id: object) -> str | None:
    return None if frame_type in ONE_WAY_TYPES else _plain_word(request_id)


def _plain_word(value: object) -> str | None:
    """The value if it is a text that may stand in a log, a label or an answer."""
    return value if isinstance(value, str) and is_safe_token(value) else None
