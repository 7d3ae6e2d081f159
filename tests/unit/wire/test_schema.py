"""The schemas take what the codec takes and writes, and leave no frame and no record out."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from tests.unit.wire.strategies import client_frames, logged_events, server_frames, times_ms
from tests.unit.wire.vectors import TAKEN, frame, send, sync, without
from tidewire.domain.events import LoggedEvent
from tidewire.wire.client_frames import CLIENT_FRAME_TYPES, ClientFrame
from tidewire.wire.codec import encode_client_frame, encode_server_frame
from tidewire.wire.event_records import EVENT_TYPES, encode_record, record_of
from tidewire.wire.schema import wire_schemas
from tidewire.wire.server_frames import SERVER_FRAME_TYPES, ServerFrame

SCHEMAS = wire_schemas()
VALIDATORS = {name: jsonschema_rs.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}

REFUSED = {
    "a type that does not exist": frame("shout", chat_id="c"),
    "no type": without(send(), "type"),
    "no payload": without(send(), "payload"),
    "a payload that is no object": {**send(), "payload": []},
    "a send without content": without(send(), "payload", "content"),
    "a content that is no text": send(content=5),
    "a cursor below 0": sync(last_acked_sequence=-1),
    "a page that is too large": sync(limit=501),
    "a request without its id": without(sync(), "request_id"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_one(name: str) -> None:
    jsonschema_rs.meta.validate(SCHEMAS[name])


@pytest.mark.parametrize("taken", TAKEN)
def test_schema_takes_what_the_codec_takes(taken: str) -> None:
    VALIDATORS["client-frames"].validate(TAKEN[taken])


@pytest.mark.parametrize("refused", REFUSED)
def test_schema_refuses_what_breaks_the_types(refused: str) -> None:
    assert not VALIDATORS["client-frames"].is_valid(REFUSED[refused])


@given(client_frames)
def test_schema_describes_every_client_frame(sent: ClientFrame) -> None:
    VALIDATORS["client-frames"].validate(json.loads(encode_client_frame(sent)))


@given(server_frames)
def test_schema_describes_every_server_frame(sent: ServerFrame) -> None:
    VALIDATORS["server-frames"].validate(json.loads(encode_server_frame(sent)))


@given(logged_events, times_ms)
def test_schema_describes_every_record(event: LoggedEvent, now_ms: int) -> None:
    record = record_of(event, event_id="e", now_ms=now_ms, producer_id="p", trace_id="t")
    VALIDATORS["event-records"].validate(json.loads(encode_record(record)))


@pytest.mark.parametrize(
    ("name", "tag", "tags"),
    [
        ("client-frames", "type", CLIENT_FRAME_TYPES),
        ("server-frames", "type", SERVER_FRAME_TYPES),
        ("event-records", "event_type", EVENT_TYPES),
    ],
)
def test_schema_leaves_nothing_out(name: str, tag: str, tags: frozenset[str]) -> None:
    schema: dict[str, Any] = SCHEMAS[name]
    assert schema["discriminator"]["propertyName"] == tag
    assert schema["discriminator"]["mapping"].keys() == tags
