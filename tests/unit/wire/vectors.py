"""Frames as clients write them: the specification's vectors, and more of each kind."""

from typing import Any

from tidewire.domain.limits import (
    CONTENT_BYTES_MAX,
    MENTIONS_MAX,
    PAGE_MESSAGES_MAX,
    REASON_CHARACTERS_MAX,
    SEQUENCE_MAX,
)

CHAT = "chat_01J9ZK4T7Q2M8V5RXB3N6C0DHE"
KEY = "c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1"
REQUEST = "3f0c9b1e-8d4a-4c55-b7e2-91aa60d37f12"
FAMILY = "👩‍👩‍👧‍👦"
HIGH, LOW = chr(0xD83D), chr(0xDE00)  # the halves of a pair
NOT_SET = object()


def frame(frame_type: object, request_id: object = NOT_SET, **payload: object) -> dict[str, Any]:
    envelope: dict[str, Any] = {"type": frame_type, "payload": payload}
    return envelope if request_id is NOT_SET else {**envelope, "request_id": request_id}


def send(request_id: object = REQUEST, /, **changes: object) -> dict[str, Any]:
    payload = {"client_message_id": KEY, "chat_id": CHAT, "content": "lunch at noon?", **changes}
    return frame("send_message", request_id, **payload)


def sync(request_id: object = REQUEST, /, **changes: object) -> dict[str, Any]:
    return frame(
        "sync_request", request_id, **{"chat_id": CHAT, "last_acked_sequence": 0} | changes
    )


def edit(request_id: object = REQUEST, /, **changes: object) -> dict[str, Any]:
    return _amend("edit_message", request_id, **{"content": "dinner?"} | changes)


def delete(request_id: object = REQUEST, /, **changes: object) -> dict[str, Any]:
    return _amend("delete_message", request_id, **changes)


def react(request_id: object = REQUEST, /, **changes: object) -> dict[str, Any]:
    return _amend("react", request_id, **{"emoji": "👍"} | changes)


def _amend(frame_type: str, request_id: object, **fields: object) -> dict[str, Any]:
    payload = {"client_message_id": KEY, "chat_id": CHAT, "target": 317, **fields}
    return frame(frame_type, request_id, **payload)


def without(shape: dict[str, Any], *path: str) -> dict[str, Any]:
    head, *rest = path
    if rest:
        return {**shape, head: without(shape[head], *rest)}
    return {name: value for name, value in shape.items() if name != head}


TAKEN = {
    "minimal send without content_type": send(),
    "send with content_type": send(content_type="text/plain"),
    "send with seen_sequence": send(seen_sequence=0),
    "send with a UUID of version 1": send(client_message_id="2f2a4ac8-7b3d-11ee-b962-0242ac120002"),
    "send with a UUID in capitals": send(client_message_id=KEY.upper()),
    "send to a chat with a short id": send(chat_id="c"),
    "send of a multi-codepoint emoji": send(content=FAMILY),
    "send of exactly 4096 bytes": send(content="é" * (CONTENT_BYTES_MAX // 2)),
    "send with a newline": send(content="a\nb\x01"),
    "send with trace_context and more": send() | {"trace_context": {"trace_id": "x"}, "z": [1]},
    "send with a request id of 64 letters": send("r" * 64),
    "reply": send(reply_to=1),
    "reply to the highest sequence": send(reply_to=SEQUENCE_MAX),
    "mention of a user": send(mentions=["user_1"]),
    "mention of all and as many as there can be": send(
        mentions=["@all", *(f"user_{number}" for number in range(MENTIONS_MAX - 1))]
    ),
    "edit": edit(),
    "edit with base 0": edit(base=0),
    "edit after another": edit(base=318, is_first=True),
    "deletion": delete(),
    "deletion with a reason": delete(reason="r" * REASON_CHARACTERS_MAX),
    "deletion with the reason null": delete(reason=None),
    "reaction": react(is_on=True),
    "reaction taken back": react(is_on=False),
    "reaction of a family": react(emoji=FAMILY),
    "reaction of 32 bytes": react(emoji="👍" * 8),
    "ack with request_id": frame("ack", REQUEST, chat_id=CHAT, last_acked_sequence=5),
    "ack without request_id": frame("ack", chat_id=CHAT, last_acked_sequence=5),
    "ack whose request_id is nonsense": frame("ack", 5, chat_id=CHAT, last_acked_sequence=5),
    "ack of the highest sequence": frame("ack", chat_id=CHAT, last_acked_sequence=SEQUENCE_MAX),
    "read": frame("read", chat_id=CHAT, last_read_sequence=5),
    "heartbeat": frame("heartbeat"),
    "heartbeat with request_id": frame("heartbeat", "hb-001"),
    "heartbeat with request_id null": frame("heartbeat", None),
    "sync from 0": sync(),
    "sync with the largest page": sync(limit=PAGE_MESSAGES_MAX),
    "digest_request": frame("digest_request", REQUEST),
    "typing_start": frame("typing_start", chat_id=CHAT),
    "typing_stop": frame("typing_stop", chat_id=CHAT),
}

INVALID_MESSAGE = {
    "missing type": without(send(), "type"),
    "missing payload": without(send(), "payload"),
    "payload is no object": {**send(), "payload": []},
    "send without chat_id": without(send(), "payload", "chat_id"),
    "send without content": without(send(), "payload", "content"),
    "send without client_message_id": without(send(), "payload", "client_message_id"),
    "send with a non-UUID id": send(client_message_id="msg-1"),
    "send with a UUID in braces": send(client_message_id=f"{{{KEY}}}"),
    "send with empty content": send(content=""),
    "send with content that is no text": send(content=5),
    "send to a chat id of 65 letters": send(chat_id="c" * 65),
    "send to a chat id with a space": send(chat_id="chat 1"),
    "send to a chat id with a newline": send(chat_id="chat_1\n"),
    "send to an empty chat id": send(chat_id=""),
    "send with a negative seen_sequence": send(seen_sequence=-1),
    "reply to 0": send(reply_to=0),
    "reply to above 2^53-1": send(reply_to=SEQUENCE_MAX + 1),
    "reply to a message id": send(reply_to="msg_1"),
    "mention of one too many": send(
        mentions=[f"user_{number}" for number in range(MENTIONS_MAX + 1)]
    ),
    "mention of a user twice": send(mentions=["user_1", "user_1"]),
    "mention of a name with a space": send(mentions=["ann bee"]),
    "mention of a number": send(mentions=[7]),
    "mentions that are no list": send(mentions="user_1"),
    "edit of 0": edit(target=0),
    "edit of no target": without(edit(), "payload", "target"),
    "edit without content": without(edit(), "payload", "content"),
    "edit with empty content": edit(content=""),
    "edit with a base below 0": edit(base=-1),
    "edit with a non-UUID id": edit(client_message_id="msg-1"),
    "edit in a chat id with a space": edit(chat_id="chat 1"),
    "deletion of above 2^53-1": delete(target=SEQUENCE_MAX + 1),
    "deletion with an empty reason": delete(reason=""),
    "deletion with too long a reason": delete(reason="r" * (REASON_CHARACTERS_MAX + 1)),
    "reaction without emoji": without(react(), "payload", "emoji"),
    "reaction with an empty emoji": react(emoji=""),
    "reaction of 36 bytes": react(emoji="👍" * 9),
    "reaction with a space": react(emoji="👍 👍"),
    "reaction with a line break": react(emoji="\n"),
    "reaction with is_on null": react(is_on=None),
    "reaction to a fraction": react(target=1.5),
    "sync from below 0": sync(last_acked_sequence=-1),
    "sync from above 2^53-1": sync(last_acked_sequence=SEQUENCE_MAX + 1),
    "sync from a fraction": sync(last_acked_sequence=1.5),
    "sync from true": sync(last_acked_sequence=True),
    "sync of no messages": sync(limit=0),
    "sync of too many messages": sync(limit=PAGE_MESSAGES_MAX + 1),
    "sync without chat_id": without(sync(), "payload", "chat_id"),
    "sync of a chat id with a slash": sync(chat_id="a/b"),
    "heartbeat without payload": without(frame("heartbeat", REQUEST), "payload"),
}

BAD_REQUEST_IDS = {
    "send without request_id": without(send(), "request_id"),
    "send with request_id null": send(None),
    "send with an empty request_id": send(""),
    "send with a request_id of 65 letters": send("r" * 65),
    "send with a request_id with a newline": send("r\n"),
    "send with a request_id that is a number": send(7),
    "edit without request_id": without(edit(), "request_id"),
    "deletion with an empty request_id": delete(""),
    "reaction with a request_id that is a number": react(7),
    "sync without request_id": without(sync(), "request_id"),
    "sync with a request_id with a quote": sync('"'),
    "digest_request without request_id": frame("digest_request"),
    "digest_request with an empty request_id": frame("digest_request", ""),
    "heartbeat with a request_id with a space": frame("heartbeat", "hb 1"),
}

ONE_WAY_FAULTS = {
    "ack of a negative sequence": frame("ack", REQUEST, chat_id=CHAT, last_acked_sequence=-1),
    "ack of 0": frame("ack", REQUEST, chat_id=CHAT, last_acked_sequence=0),
    "ack of 2^53": frame("ack", REQUEST, chat_id=CHAT, last_acked_sequence=SEQUENCE_MAX + 1),
    "ack without a sequence": frame("ack", REQUEST, chat_id=CHAT),
    "ack of a bad chat id": frame("ack", REQUEST, chat_id="", last_acked_sequence=1),
    "read of 0": frame("read", REQUEST, chat_id=CHAT, last_read_sequence=0),
    "read of a bad chat id": frame("read", REQUEST, chat_id="a b", last_read_sequence=1),
    "typing_start nowhere": frame("typing_start", REQUEST),
    "typing_stop in a bad chat id": frame("typing_stop", REQUEST, chat_id="é"),
}
