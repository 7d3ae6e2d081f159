"""A client that says "all is well" must be one that notices when it is not."""

from typing import Any

import msgspec
import pytest

from tidewire_bench.book import Book
from tidewire_bench.frames import RISING, decode_frame, message_key
from tidewire_bench.mixed_client import MixedClient
from tidewire_bench.target import Person
from tidewire_bench.workload import Outcome

CHAT = "chat"


@pytest.fixture
async def client() -> MixedClient:
    """It is in one chat and has one message of it."""
    outcome = Outcome()
    one = MixedClient(Person("me", "token", "device"), 1, Book(outcome.faults), outcome)
    digest(one, head=0)
    push(one, 1)
    assert faults(one) == []
    return one


def receive(client: MixedClient, frame_type: str, **payload: Any) -> None:
    """As if it had come over a socket."""
    client.received(decode_frame(msgspec.json.encode({"type": frame_type, "payload": payload})))


def push(client: MixedClient, sequence: int, chat_id: str = CHAT) -> None:
    receive(
        client,
        "message",
        chat_id=chat_id,
        sequence=sequence,
        prev_sequence=sequence - 1,
        sender_id="other",
        client_message_id=message_key(2, sequence - 1),
    )


def digest(client: MixedClient, **numbers: int) -> None:
    entries = [{"chat_id": CHAT, **numbers}] if numbers else []
    receive(client, "chat_digest", page=0, last=True, chats=entries)


def faults(client: MixedClient) -> list[str]:
    return client.outcome.faults.first


@pytest.mark.parametrize("name", RISING)
async def test_digest_below_what_was_shown_is_a_fault(client: MixedClient, name: str) -> None:
    digest(client, **(dict.fromkeys(RISING, 5) | {"head": 5}))
    assert faults(client) == []
    digest(client, **(dict.fromkeys(RISING, 5) | {name: 4}))
    assert f"was shown {name} 5 of chat, but the digest says 4" in faults(client)[0]


async def test_ticks_that_were_pushed_count_as_shown(client: MixedClient) -> None:
    receive(client, "status_update", chat_id=CHAT, others_delivered=9, others_read=8)
    digest(client, head=9, others_delivered=9, others_read=7)
    assert faults(client) == ["client 1 was shown others_read 8 of chat, but the digest says 7"]


async def test_digest_below_what_is_held_is_a_fault(client: MixedClient) -> None:
    digest(client, head=0)
    assert "client 1 has more of chat than the digest says" in faults(client)


async def test_deletion_is_known_when_it_is_acknowledged(client: MixedClient) -> None:
    client.take_number(CHAT, "")
    client.wishes[CHAT] = ("delete_message", {"target": 1})
    assert client.book.deletions.of(CHAT) == frozenset()
    key = message_key(1, 0)
    numbers = {"sequence": 2, "prev_sequence": 1}
    receive(client, "send_message_ack", chat_id=CHAT, client_message_id=key, **numbers)
    assert client.book.deletions.of(CHAT) == {1}
    assert (client.under_way, client.wishes) == ({}, {})
    assert faults(client) == []


async def test_change_that_was_overtaken_becomes_a_message(client: MixedClient) -> None:
    """Its number must not be missing."""
    client.take_number(CHAT, "")
    client.wishes[CHAT] = ("edit_message", {"target": 1, "content": "other"})
    refused = {"type": "error", "request_id": f"{CHAT}:0"}
    for code in ("MESSAGE_DELETED", "FORBIDDEN"):
        payload = {"code": code, "message": "no"}
        client.received(decode_frame(msgspec.json.encode(refused | {"payload": payload})))
    assert client.wishes == {}
    assert list(client.under_way) == [CHAT]
    assert faults(client) == ["client 1 was refused: FORBIDDEN (no)"]


async def test_entry_takes_its_place_in_the_chain(client: MixedClient) -> None:
    numbers = {"sequence": 2, "prev_sequence": 1, "client_message_id": message_key(2, 1)}
    receive(client, "entry", chat_id=CHAT, kind="react", target=1, **numbers)
    assert client.readers[CHAT].last == 2
    push(client, 3)
    assert faults(client) == []


async def test_message_after_the_removal_is_a_fault(client: MixedClient) -> None:
    receive(client, "chat_update", chat_id=CHAT, change="member_removed", head=1, user_id="me")
    assert client.readers == {}
    push(client, 2)
    assert faults(client) == ["client 1 was pushed a message of chat, not its chat"]


async def test_removal_of_somebody_else_changes_nothing(client: MixedClient) -> None:
    receive(client, "chat_update", chat_id=CHAT, change="member_removed", head=1, user_id="other")
    push(client, 2)
    assert faults(client) == []


async def test_chat_is_read_from_where_one_was_added(client: MixedClient) -> None:
    receive(
        client,
        "chat_update",
        chat_id="new",
        change="member_added",
        head=7,
        user_id="me",
        joined_sequence=7,
    )
    push(client, 8, "new")
    assert client.readers["new"].last == 8
    assert faults(client) == []


async def test_chat_that_is_in_no_digest_is_not_ours(client: MixedClient) -> None:
    digest(client)
    assert client.readers == {}
    assert client.book.chats == {}


async def test_ack_that_was_not_waited_for_is_a_fault(client: MixedClient) -> None:
    assert client.take_number(CHAT, "text") == 0
    ack = {"chat_id": CHAT, "client_message_id": message_key(1, 0), "sequence": 2}
    receive(client, "send_message_ack", **ack, prev_sequence=1)
    assert client.under_way == {}
    assert client.book.acked_count == 1
    receive(client, "send_message_ack", **ack, prev_sequence=1)
    assert faults(client) == ["client 1 was sent an ack of 0, not waiting for it"]


@pytest.mark.parametrize(
    ("reason", "count"), [("server_shutdown", 0), ("token_expired", 0), ("protocol_error", 1)]
)
async def test_closing_for_a_fault_of_ours_is_one(
    client: MixedClient, reason: str, count: int
) -> None:
    receive(client, "connection_closing", reason=reason, reconnect_delay_ms=1500)
    assert client.outcome.faults.count == count
    assert client.reconnect_delay_s == 1.5


async def test_refusal_that_no_retry_helps_is_a_fault(client: MixedClient) -> None:
    client.received(
        decode_frame(
            b'{"type":"error","request_id":"chat:0","payload":{"code":"NOT_A_MEMBER","message":""}}'
        )
    )
    assert faults(client) == ["client 1 was refused: NOT_A_MEMBER ()"]
