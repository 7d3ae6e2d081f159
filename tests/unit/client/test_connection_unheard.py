"""Own messages in chats that the device does not know yet: the push that announces a chat may come
later than the answer to a message into it."""

from tests.unit.client.stage import (
    CHAT,
    ME,
    Stage,
    chat_update,
    digest,
    entry,
    established,
    frames,
    item,
    key,
    listed,
    of,
    page,
    push,
    send_ack,
    sends,
    syncs,
)
from tidewire.client.effects import Dropped, Effect
from tidewire.client.options import ClientOptions
from tidewire.client.replica import first_record
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import DigestRequestFrame


def sent_unheard_of(*sequences: int) -> Stage:
    """Own messages were stored in a chat of which this device has not heard."""
    stage = Stage()
    stage.connect()
    for number, sequence in enumerate(sequences, start=1):
        (sent,) = sends(stage.submit(entry(number)))
        stage.receive(send_ack(sent, sequence))
    assert CHAT not in stage.core.replicas
    assert list(stage.core.awaited_chats) == [CHAT]
    return stage


def told(stage: Stage, *chats: DigestEntry) -> list[Effect]:
    """The digest that such a message asks for."""
    (asked,) = frames(stage.wait(1), DigestRequestFrame)
    return stage.receive(digest(*chats, request_id=asked.request_id))


def check_fetched(stage: Stage, effects: list[Effect], *sequences: int) -> None:
    """The messages are asked for, and their authors wait for them until they are held."""
    replica = stage.core.replicas[CHAT]
    assert replica.is_own_missing
    assert not stage.core.awaited_chats
    (asked,) = syncs(effects)
    assert asked.payload.last_acked_sequence == sequences[0] - 1
    stage.receive(page(asked.request_id, [item(one) for one in sequences]))
    assert stage.kept == list(sequences)
    assert not replica.is_own_missing


def test_own_message_of_a_chat_that_was_not_known_is_awaited_until_it_is_held() -> None:
    stage = sent_unheard_of(1, 2)
    check_fetched(stage, told(stage, listed(2, delivered=2)), 1, 2)


def test_own_message_is_fetched_when_its_chat_is_announced() -> None:
    stage = sent_unheard_of(1)
    # The chat is announced as it was before the message.
    done = stage.receive(chat_update("created", 1, name="team", joined_sequence=0))
    check_fetched(stage, done, 1)


def test_own_message_is_fetched_when_its_chat_is_adopted() -> None:
    stage = sent_unheard_of(5)
    adopted = first_record(CHAT, ChatType.DIRECT, start=4, head=4)
    check_fetched(stage, stage.did(stage.core.adopt(adopted, stage.now)), 5)


def test_chat_begins_below_the_first_own_message_whichever_answer_came_first() -> None:
    stage = sent_unheard_of(6, 5)
    check_fetched(stage, told(stage, listed(6, delivered=6)), 5, 6)


def test_nothing_is_awaited_without_a_connection() -> None:
    stage = sent_unheard_of(1)
    stage.lose()
    assert not stage.core.awaited_chats
    stage.wait(2_000)
    done = stage.receive(established(), digest(listed(1, delivered=1)))
    (asked,) = syncs(done)
    stage.receive(page(asked.request_id, [item(1)]))
    assert stage.kept == [1]


def test_own_message_is_not_awaited_from_a_chat_that_was_left() -> None:
    stage = sent_unheard_of(4)
    stage.receive(chat_update("member_removed", 5, user_id=ME, head=8))
    replica = stage.core.replicas[CHAT]
    assert not replica.is_member
    assert not replica.is_behind
    assert not replica.is_own_missing


def test_own_message_of_a_chat_that_is_none_of_ours_any_more_is_dropped() -> None:
    stage = Stage()
    stage.connect()
    # A digest is on its way that may be older than the chat.
    stage.receive(push(7, chat_id=ChatId("chat_2")))
    (asked,) = frames(stage.wait(1), DigestRequestFrame)
    (sent,) = sends(stage.submit(entry(1)))
    stage.receive(send_ack(sent, 1))
    assert of(stage.receive(digest(request_id=asked.request_id)), Dropped) == []
    (dropped,) = of(told(stage), Dropped)
    assert [one.client_message_id for one in dropped.entries] == [key(1)]
    assert not stage.core.awaited_chats


def test_own_messages_that_are_told_of_when_they_are_dropped_are_bounded() -> None:
    stage = Stage(ClientOptions(waiting_max=2))
    stage.connect()
    for number in (1, 2, 3):
        (sent,) = sends(stage.submit(entry(number)))
        stage.receive(send_ack(sent, number))
    (dropped,) = of(told(stage), Dropped)
    assert [one.client_message_id for one in dropped.entries] == [key(1), key(2)]
