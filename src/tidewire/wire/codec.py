"""Bytes to frames and back. PURE.

Input from a peer never raises: the result is a frame, or a `FrameRefusal` that says what is wrong
and how to answer it. Only misuse by our own side raises (a frame that cannot be encoded).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar, assert_never

import msgspec

from tidewire.domain.errors import ErrorCode, Refused
from tidewire.domain.ids import are_submission_ids, is_safe_token
from tidewire.domain.limits import BATCH_FRAMES_MAX, FRAME_BYTES_MAX
from tidewire.domain.messages import Message, check_amendment, check_body
from tidewire.wire.client_frames import (
    CLIENT_FRAME_TYPES,
    ONE_WAY_TYPES,
    AckFrame,
    ClientFrame,
    DeleteMessageFrame,
    DigestRequestFrame,
    EditMessageFrame,
    HeartbeatFrame,
    ReactFrame,
    ReadFrame,
    SendMessageFrame,
    SendMessagePayload,
    SubmitFrame,
    SyncRequestFrame,
    TypingStartFrame,
    TypingStopFrame,
    amendment_of,
)
from tidewire.wire.frame_builders import message_frame, plain_frame
from tidewire.wire.server_frames import SERVER_FRAME_TYPES, EntryFrame, ErrorPayload, ServerFrame

Decoded = TypeVar("Decoded")

SENTENCE_CHARACTERS_MAX: Final = 200
"""A decoder's sentence may quote the peer, so it is cut."""


class FrameRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a frame was refused, and how to answer.

    `request_id` is the frame's own, if it had a valid one and its type is answered at all.
    `counts_against_budget`: too many of these end the connection. A text that is too long or of a
    wrong kind is no offence, and an unknown type may come from a newer client (K-09, N-10): these
    count against the connection's limit of small frames instead.
    `frame_type` is the frame's own `type`; None if that is not a plain word.
    """

    code: ErrorCode
    message: str
    request_id: str | None = None
    counts_against_budget: bool
    frame_type: str | None = None
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
    """The fields that identify a frame, whatever else is wrong with it."""

    type: object = None
    request_id: object = None


class _Fault(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str
    details: Mapping[str, object] | None = None


_CLIENT_DECODER: Final[msgspec.json.Decoder[ClientFrame]] = msgspec.json.Decoder(ClientFrame)
_SERVER_DECODER: Final[msgspec.json.Decoder[ServerFrame]] = msgspec.json.Decoder(ServerFrame)
# A bare frame, or an array of frames.
_CLIENT_BATCH_DECODER: Final[msgspec.json.Decoder[ClientFrame | list[ClientFrame]]] = (
    msgspec.json.Decoder(ClientFrame | list[ClientFrame])
)
_SERVER_BATCH_DECODER: Final[msgspec.json.Decoder[ServerFrame | list[ServerFrame]]] = (
    msgspec.json.Decoder(ServerFrame | list[ServerFrame])
)
_ENTRY_DECODER: Final = msgspec.json.Decoder(EntryFrame)
_ELEMENTS_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ENVELOPE_DECODER: Final = msgspec.json.Decoder(_Envelope)
_ENCODER: Final = msgspec.json.Encoder()

_BAD_REQUEST_ID: Final = _Fault(
    ErrorCode.INVALID_MESSAGE, "request_id is not 1 to 64 letters, digits or . _ : -"
)
_BAD_CHAT_ID: Final = _Fault(
    ErrorCode.INVALID_MESSAGE, "chat_id is not 1 to 64 letters, digits or . _ : -"
)
_BAD_CLIENT_MESSAGE_ID: Final = _Fault(ErrorCode.INVALID_MESSAGE, "client_message_id is not a UUID")

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# A first half without a second behind it, or a second half without a first before it.
_HALF_PAIR: Final = re.compile(
    r"\\u[dD](?:"
    r"[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)


def decode_client_frame(data: bytes | str | memoryview) -> ClientFrame | FrameRefusal:
    """The frame of a client, or why it is refused. Never raises."""
    try:
        if len(data) > FRAME_BYTES_MAX or (
            isinstance(data, str) and len(data.encode()) > FRAME_BYTES_MAX
        ):
            return _OVERSIZE
        # The decoder does not check texts that it skips; `str` checks that all of it is UTF-8.
        frame = _CLIENT_DECODER.decode(data if isinstance(data, str) else str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        return _refuse_client_frame(data, error)
    return _checked(frame)


def decode_client_frames(data: bytes | memoryview) -> Iterable[ClientFrame | FrameRefusal]:
    """The frames of a client that may send arrays: one, or those of an array, in order. Never
    raises, also not during iteration.

    A bad element is refused alone. An array that is not JSON, is empty, too long or nested is one
    refusal, and no frame of it is accepted.
    """
    if len(data) > FRAME_BYTES_MAX:
        return (_OVERSIZE,)
    try:
        said = _CLIENT_BATCH_DECODER.decode(str(data, "utf-8"))
    except (ValueError, RecursionError):
        return _split(data, decode_client_frame, _BAD_BATCH)
    if not isinstance(said, list):
        return (_checked(said),)
    return map(_checked, said) if 0 < len(said) <= BATCH_FRAMES_MAX else (_BAD_BATCH,)


def decode_server_frame(
    data: bytes | str | memoryview,
) -> ServerFrame | UnknownFrame | FrameRefusal:
    """The frame of a server. Never raises. The transport limits the length of a frame."""
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


def decode_server_frames(
    data: bytes | memoryview,
) -> Iterable[ServerFrame | UnknownFrame | FrameRefusal]:
    """The frames of a server: one, or those of an array, in order. Never raises."""
    try:
        said = _SERVER_BATCH_DECODER.decode(str(data, "utf-8"))
    except (ValueError, RecursionError):
        return _split(data, decode_server_frame)
    return said if isinstance(said, list) else (said,)


def encode_client_frame(frame: ClientFrame) -> bytes:
    """Raises UnicodeEncodeError if a text in it has no UTF-8 form: check what a user typed."""
    return _ENCODER.encode(frame)


def encode_server_frame(frame: ServerFrame) -> bytes:
    return _ENCODER.encode(frame)


def encode_message_push(message: Message, now_ms: int) -> bytes:
    """The push of a stored entry; encoded once, the same bytes go to every recipient who knows its
    kind."""
    return _ENCODER.encode(message_frame(message, now_ms=now_ms))


def encode_plain_push(entry: bytes | memoryview) -> bytes:
    """The push of an entry that we have encoded, for clients that do not know entries."""
    return _ENCODER.encode(plain_frame(_ENTRY_DECODER.decode(entry)))


def refusal_payload(refusal: FrameRefusal) -> ErrorPayload:
    """The payload that tells the peer of a refusal, if it is answered."""
    return ErrorPayload(code=refusal.code, message=refusal.message, details=refusal.details)


# No part of such a frame is read, not even its request_id: a transport cuts it off before us.
_OVERSIZE: Final = FrameRefusal(
    code=ErrorCode.MESSAGE_TOO_LARGE,
    message=f"a frame has at most {FRAME_BYTES_MAX} bytes",
    counts_against_budget=True,
    details={"max_bytes": FRAME_BYTES_MAX},
)

_BAD_BATCH: Final = FrameRefusal(
    code=ErrorCode.INVALID_MESSAGE,
    message=f"an array has 1 to {BATCH_FRAMES_MAX} frames, and no array in it",
    counts_against_budget=True,
)


def _split(
    data: bytes | memoryview,
    decode: Callable[[bytes | str | memoryview], Decoded],
    refusal: Decoded | None = None,
) -> Iterable[Decoded]:
    """Decode a message whose frames cannot be decoded all at once: each element by itself, and only
    when the iteration reaches it; or the whole message, if it is not an array. If `refusal` is
    given, it is the result for an array that breaks the bounds or cannot be read."""
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return (decode(data),)
    try:
        # An array with half a surrogate pair cannot be read. The replacement has as many letters,
        # so each element keeps its place.
        plain = _SURROGATE.sub(r"\\ufffd", text) if _has_lone_surrogate(text) else text
        raws = _ELEMENTS_DECODER.decode(plain)
    except (ValueError, RecursionError):
        is_array = text.lstrip().startswith("[")
        return (decode(data) if refusal is None or not is_array else refusal,)
    if refusal is not None and not 0 < len(raws) <= BATCH_FRAMES_MAX:
        return (refusal,)
    elements = [bytes(raw).decode() for raw in raws]
    if refusal is not None and any(element[0] == "[" for element in elements):
        return (refusal,)
    found = []
    end = 0
    for element in elements:
        # Before it are only white space and a comma.
        start = plain.index(element, end)
        end = start + len(element)
        found.append(text[start:end])
    return map(decode, found)


def _checked(frame: ClientFrame) -> ClientFrame | FrameRefusal:
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


def _fault_of(frame: ClientFrame) -> _Fault | None:
    """Checks what the types cannot express, in code: patterns of the decoder would cost double."""
    match frame:
        case SendMessageFrame():
            return _submit_fault(frame)
        case AckFrame() | ReadFrame() | TypingStartFrame() | TypingStopFrame():
            return None if is_safe_token(frame.payload.chat_id) else _BAD_CHAT_ID
        case SyncRequestFrame():
            if not is_safe_token(frame.request_id):
                return _BAD_REQUEST_ID
            return None if is_safe_token(frame.payload.chat_id) else _BAD_CHAT_ID
        case HeartbeatFrame() | DigestRequestFrame():
            has_valid_id = frame.request_id is None or is_safe_token(frame.request_id)
            return None if has_valid_id else _BAD_REQUEST_ID
        case EditMessageFrame() | DeleteMessageFrame() | ReactFrame():
            return _submit_fault(frame)
        case _:
            assert_never(frame)


def _submit_fault(frame: SubmitFrame) -> _Fault | None:
    payload = frame.payload
    if not are_submission_ids(frame.request_id, payload.chat_id, payload.client_message_id):
        if not is_safe_token(frame.request_id):
            return _BAD_REQUEST_ID
        return _BAD_CLIENT_MESSAGE_ID if is_safe_token(payload.chat_id) else _BAD_CHAT_ID
    try:
        if isinstance(payload, SendMessagePayload):
            check_body(payload)
        else:
            check_amendment(*amendment_of(payload))
    except Refused as refusal:
        return _Fault(refusal.code, str(refusal), refusal.details or None)
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
