"""Edits, deletions and reactions on a connection: taken and answered as a send is, pushed and
synced in the form that each client knows."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.gateway import fakes
from tests.unit.gateway.fakes import OTHER_DEVICE, Submit, sent, turns
from tests.unit.gateway.stage import SETTLED, Peer, Stage, staged
from tests.unit.gateway.talk import Talk
from tidewire.domain.errors import EditConflict, StoreUnavailable
from tidewire.domain.ids import ChatId
from tidewire.gateway.options import GatewayOptions
from tidewire.wire.client_frames import SubmitFrame
from tidewire.wire.server_frames import ErrorFrame, SendMessageAckFrame

AMENDMENTS: list[Callable[..., SubmitFrame]] = [fakes.edit, fakes.delete, fakes.react]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


def errors(effects: fakes.Wanted) -> list[tuple[str, dict[str, Any]]]:
    return [
        (frame.payload.code, dict(frame.payload.details or {}))
        for frame in sent(effects)
        if isinstance(frame, ErrorFrame)
    ]


# The core.


@pytest.mark.parametrize("make", AMENDMENTS)
def test_amendment_is_submitted_and_answered_as_a_send(make: Callable[..., SubmitFrame]) -> None:
    talk = Talk.ready()
    frame = make("r9")
    assert talk.receive(frame) == (Submit(frame, 1),)
    [ack] = sent(talk.stored(frame))
    assert isinstance(ack, SendMessageAckFrame)
    assert (ack.request_id, ack.payload.sequence, ack.payload.prev_sequence) == ("r9", 7, 6)
    assert ack.payload.client_message_id == frame.payload.client_message_id


def test_conflict_is_told_with_the_text_that_is_there() -> None:
    talk = Talk.ready()
    frame = fakes.edit()
    talk.receive(frame)
    effects = talk.stored(frame, EditConflict(content="theirs", edited_by=12))
    assert errors(effects) == [("EDIT_CONFLICT", {"content": "theirs", "edited_sequence": 12})]


@pytest.mark.parametrize("make", AMENDMENTS)
def test_amendment_is_in_the_line_of_its_chat(make: Callable[..., SubmitFrame]) -> None:
    """What may be retried holds the later ones back, of whatever kind they are."""
    talk = Talk.ready()
    first, second = make("r1", key=1), fakes.send("r2", key=2)
    talk.receive(first)
    assert errors(talk.stored(first, StoreUnavailable("away"))) == [("SERVICE_UNAVAILABLE", {})]
    [(code, details)] = errors(talk.receive(second))
    assert (code, details["after"]) == ("SERVICE_UNAVAILABLE", first.payload.client_message_id)
    again = make("r3", key=1)
    assert talk.receive(again) == (Submit(again, 3),)
    assert talk.receive(fakes.send("r4", key=2)) != ()


@pytest.mark.parametrize("make", AMENDMENTS)
def test_amendment_waits_for_a_message_before_it(make: Callable[..., SubmitFrame]) -> None:
    talk = Talk.ready()
    first = fakes.send("r1", key=1)
    talk.receive(first)
    talk.stored(first, StoreUnavailable("away"))
    [(_, details)] = errors(talk.receive(make("r2", key=2)))
    assert details["after"] == first.payload.client_message_id


def test_amendments_use_the_allowance_of_messages() -> None:
    talk = Talk.ready(GatewayOptions(send_chat_rate_per_second=1, send_chat_burst=3))
    for number, make in enumerate(AMENDMENTS):
        assert errors(talk.receive(make(f"r{number}", key=number))) == []
    [(code, _)] = errors(talk.receive(fakes.send("r9", key=9)))
    assert code == "RATE_LIMITED"


def test_reactions_have_a_limit_of_their_own() -> None:
    """Half as fast as messages to one chat, to all chats together."""
    talk = Talk.ready(
        GatewayOptions(send_chat_rate_per_second=10, send_chat_burst=20, send_user_burst=60)
    )
    for number in range(20):
        chat_id = f"chat_{number % 4}"
        assert errors(talk.receive(fakes.react(f"r{number}", chat_id=chat_id, key=number))) == []
    [(code, details)] = errors(talk.receive(fakes.react("r20", chat_id="chat_5", key=20)))
    assert (code, details) == ("RATE_LIMITED", {"retry_after_seconds": 1})
    assert errors(talk.receive(fakes.send("r21", chat_id="chat_6", key=21))) == []
    talk.now_ms += 200
    assert errors(talk.receive(fakes.react("r22", chat_id="chat_5", key=20))) == []
    [(code, _)] = errors(talk.receive(fakes.react("r23", chat_id="chat_7", key=23)))
    assert code == "RATE_LIMITED"


@pytest.mark.parametrize("make", AMENDMENTS)
def test_amendment_is_one_of_the_requests_that_may_wait(make: Callable[..., SubmitFrame]) -> None:
    talk = Talk.ready(GatewayOptions(requests_waiting_max=1))
    talk.receive(fakes.sync())
    [(code, _)] = errors(talk.receive(make()))
    assert code == "SERVER_BUSY"


@pytest.mark.parametrize("make", AMENDMENTS)
def test_amendment_that_comes_too_early_is_refused_under_its_id(
    make: Callable[..., SubmitFrame],
) -> None:
    talk = Talk()
    talk.core.opened()
    effects = talk.receive(make("r1"))
    [frame] = sent(effects)
    assert isinstance(frame, ErrorFrame)
    assert (frame.request_id, frame.payload.code) == ("r1", "INVALID_MESSAGE")


# With everything behind it.


def key(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


async def amend_all(peer: Peer, chat_id: ChatId) -> None:
    """A message, then on it: an edit, a reaction, its deletion."""
    peer.sends("a", chat_id, 1)
    await turns(SETTLED)
    common = {"chat_id": chat_id, "target": 1}
    peer.says("edit_message", "e", client_message_id=key(2), content="better", **common)
    peer.says("react", "r", client_message_id=key(3), emoji="👍", **common)
    peer.says("delete_message", "d", client_message_id=key(4), reason="slip", **common)
    await turns(SETTLED)


def payloads(peer: Peer) -> list[dict[str, Any]]:
    return [{"type": frame["type"], **frame["payload"]} for frame in peer.new_frames()]


def said(items: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(item.get(name) for name in names) for item in items]


async def test_entries_are_pushed_in_the_form_that_each_connection_knows(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    sender = await stage.connect(ann, features=("entries",))
    other = await stage.connect(ann, device_id=OTHER_DEVICE, features=("batch", "entries"))
    old = await stage.connect(ben)
    await amend_all(sender, chat_id)
    acks = sender.new_frames()
    assert [(ack["type"], ack["request_id"]) for ack in acks] == [
        ("send_message_ack", name) for name in "aerd"
    ], "its own entries are not pushed to it"
    names = ("type", "kind", "sequence", "prev_sequence", "target", "content")
    new_items, old_items = payloads(other), payloads(old)
    assert said(new_items, *names) == [
        ("message", None, 1, 0, None, "hello"),
        ("entry", "edit", 2, 1, 1, "better"),
        ("entry", "react", 3, 2, 1, None),
        ("entry", "delete", 4, 3, 1, None),
    ]
    assert said(new_items, "emoji", "is_on", "count", "reason") == [
        (None, None, None, None),
        (None, None, None, None),
        ("👍", True, 1, None),
        (None, None, None, "slip"),
    ]
    assert said(old_items, *names) == [
        ("message", None, 1, 0, None, "hello"),
        ("message", "edit", 2, 1, None, ""),
        ("message", "react", 3, 2, None, ""),
        ("message", "delete", 4, 3, None, ""),
    ]
    assert not any(item.keys() & {"emoji", "is_on", "count", "reason"} for item in old_items)
    counts = stage.hub.counters.pushes_by_type
    assert (counts["message"], counts["entry"]) == (2 + 3, 3)


async def test_plain_form_is_made_once_for_all_who_need_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = await stage.world.people(4)
    chat_id = await stage.world.group(*people)
    sender = await stage.connect(people[0])
    others = [await stage.connect(one, features=("batch",)) for one in people[1:]]
    made: list[bytes] = []

    def encode(entry: bytes) -> bytes:
        made.append(entry)
        return b'{"type":"message","payload":{}}'

    monkeypatch.setattr("tidewire.gateway.hub.encode_plain_push", encode)
    sender.sends("a", chat_id, 1)
    await turns(SETTLED)
    sender.says("react", "r", client_message_id=key(3), emoji="👍", chat_id=chat_id, target=1)
    await turns(SETTLED)
    assert [peer.new_types() for peer in others] == [["message", "message"]] * 3
    assert len(made) == 1
    assert made[0].startswith(b'{"type":"entry"')


@pytest.mark.parametrize("features", [("entries",), ("batch", "entries")])
async def test_sync_has_entries_for_those_who_know_them(
    stage: Stage, features: tuple[str, ...]
) -> None:
    ann, ben, chat_id = await stage.pair()
    sender = await stage.connect(ann)
    await amend_all(sender, chat_id)
    names = ("kind", "sequence", "target", "content", "is_deleted")
    peer = await stage.connect(ben, features=features)
    [page] = await peer.asks("sync_request", "s", chat_id=chat_id, last_acked_sequence=0)
    assert said(page["payload"]["messages"], *names) == [
        (None, 1, None, None, True),
        ("edit", 2, 1, None, True),
        ("react", 3, 1, None, None),
        ("delete", 4, 1, None, None),
    ]
    old = await stage.connect(ben, device_id=OTHER_DEVICE)
    [page] = await old.asks("sync_request", "s", chat_id=chat_id, last_acked_sequence=0)
    assert said(page["payload"]["messages"], *names[:4]) == [
        (None, 1, None, ""),
        ("edit", 2, None, ""),
        ("react", 3, None, ""),
        ("delete", 4, None, ""),
    ]


async def test_refusals_of_amendments_are_answers(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer, other = await stage.connect(ann), await stage.connect(ben)
    peer.sends("a", chat_id, 1)
    await turns(SETTLED)
    peer.new_frames(), other.new_frames()
    common = {"chat_id": chat_id}
    other.says("edit_message", "1", client_message_id=key(11), target=1, content="x", **common)
    other.says("delete_message", "2", client_message_id=key(12), target=1, **common)
    other.says("react", "3", client_message_id=key(13), target=9, emoji="👍", **common)
    other.says(
        "send_message",
        "4",
        client_message_id=key(14),
        content="x",
        mentions=["user_of_nowhere"],
        **common,
    )
    other.says("send_message", "5", client_message_id=key(15), content="x", reply_to=8, **common)
    await turns(SETTLED)
    answers = {
        frame["request_id"]: (frame["payload"]["code"], frame["payload"].get("details"))
        for frame in other.new_frames()
    }
    assert answers == {
        "1": ("FORBIDDEN", None),
        "2": ("FORBIDDEN", None),
        "3": ("TARGET_NOT_FOUND", None),
        "4": ("INVALID_MENTION", {"user_ids": ["user_of_nowhere"]}),
        "5": ("TARGET_NOT_FOUND", None),
    }
    assert peer.new_frames() == []


async def test_amendments_are_counted_by_what_they_are(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    await amend_all(peer, chat_id)
    received = stage.hub.counters.frames_received_by_type
    kinds = ("send_message", "edit_message", "react", "delete_message")
    assert [received[kind] for kind in kinds] == [1, 1, 1, 1]
