"""What is held of all chats; the conversation's tests are in test_connection."""

from random import Random
from typing import Any

from tests.unit.client.stage import (
    CHAT,
    ME,
    TIME,
    WALL_MS,
    chat_update,
    entry,
    item,
    listed,
    push,
)
from tidewire.client.effects import PAUSE, RESUME, Effect, Keep, Now, Release, ReplicaChanged
from tidewire.client.options import ClientOptions
from tidewire.client.replicas import EARLY_CHATS_MAX, Replicas
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId, MessageId
from tidewire.wire.server_frames import ChatDigestPayload, SendMessageAckPayload

NOW = Now(1_000, WALL_MS)


def page(*chats: DigestEntry, last: bool = True) -> ChatDigestPayload:
    return ChatDigestPayload(digest_id="d", page=0, last=last, chats=chats)


def connected(*chats: DigestEntry, **options: Any) -> Replicas:
    """Replicas whose first digest has told of these chats."""
    made = Replicas(ClientOptions(**options), Random(1), user_id=ME)
    made.connected(ME, "one", is_new_epoch=False)
    made.digest(page(*chats), NOW)
    return made


def own_stored(made: Replicas, sequence: int, chat_id: ChatId = CHAT) -> list[Effect]:
    sent = entry(sequence, chat_id)
    answer = SendMessageAckPayload(
        client_message_id=sent.client_message_id,
        message_id=MessageId(f"msg_{sequence}"),
        chat_id=chat_id,
        sequence=sequence,
        prev_sequence=sequence - 1,
        created_at=TIME,
        deduplicated=False,
    )
    return made.own_stored(sent, answer, NOW)


def test_messages_on_their_way_to_the_disk_are_bounded() -> None:
    made = connected(listed(0), unstored_max=3, page_messages=3)
    effects = [effect for n in range(1, 4) for effect in made.message(push(n).payload, NOW)]
    assert effects[-2:] == [PAUSE, effects[-1]]
    assert made.is_full
    replica = made.by_chat[CHAT]
    assert made.stored(replica, 1, 1, replica.generation) == []
    assert made.stored(replica, 2, 1, replica.generation) == [RESUME]
    assert [made.is_full] == [False]
    assert replica.stored == 2


def test_digest_in_pages_is_complete_with_its_last() -> None:
    made = connected(listed(0))
    made.disconnected()
    assert [made.is_complete] == [False]
    made.connected(ME, "one", is_new_epoch=False)
    made.digest(page(last=False), NOW)
    assert [made.is_complete] == [False]
    effects = made.digest(page(listed(0)), NOW)
    assert made.is_complete
    assert made.by_chat[CHAT].is_member
    assert effects == [ReplicaChanged(made.by_chat[CHAT]), Release(CHAT)]


def test_what_continues_the_chat_is_kept() -> None:
    made = connected(listed(0))
    (keep,) = made.message(push(1).payload, NOW)
    assert isinstance(keep, Keep)
    assert [one.sequence for one in keep.items] == [item(1).sequence]


def test_digest_is_asked_for_at_the_earliest_wish_and_one_at_a_time() -> None:
    made = connected()
    assert made.next_deadline_ms() is None
    for from_ms in (500, 300, 900):
        made.want_digest(from_ms)
    assert made.next_deadline_ms() == 300
    assert not made.take_digest(299)
    assert made.take_digest(300)
    made.want_digest(300)
    assert not made.take_digest(300)
    assert made.next_deadline_ms() is None
    made.digest(page(), NOW)
    assert made.take_digest(300)
    made.digest_failed(700)
    assert made.next_deadline_ms() == 700


def test_digest_that_failed_is_not_asked_for_before_its_time_again() -> None:
    made = connected()
    made.want_digest(0)
    assert made.take_digest(0)
    # Wanted while it was on its way, and after it failed.
    made.want_digest(5)
    made.digest_failed(700)
    made.message(push(1).payload, Now(10, WALL_MS))
    assert made.next_deadline_ms() == 700
    assert not made.take_digest(699)
    assert made.take_digest(700)
    made.digest(page(), NOW)
    made.want_digest(710)
    assert made.take_digest(710)
    made.digest_failed(1_700)
    made.disconnected()
    made.connected(ME, "one", is_new_epoch=False)
    made.digest(page(), NOW)
    made.want_digest(720)
    assert made.take_digest(720)


def test_only_chats_that_were_held_and_not_heard_of_are_gone() -> None:
    a, b, c = ChatId("a"), ChatId("b"), ChatId("c")
    made = connected(listed(1, a), listed(1, b), listed(1, c))
    made.want_digest(0)
    assert made.take_digest(0)
    made.chat_update(chat_update("renamed", 2, b, name="new").payload, NOW)
    made.digest(page(listed(1, a)), NOW)
    assert [one.chat_id for one in made.by_chat.values() if one.is_member] == [a, b]


def test_older_entry_of_a_digest_is_no_news() -> None:
    made = connected(listed(1, membership_version=3))
    assert made.digest(page(listed(9, membership_version=2)), NOW) == []
    assert made.by_chat[CHAT].head == 1


def test_new_chat_starts_where_its_user_or_the_membership_began() -> None:
    here, there = ChatId("here"), ChatId("there")
    made = connected(listed(9, here, delivered=4, joined_sequence=6), listed(3, there, delivered=9))
    assert (made.by_chat[here].cursor, made.by_chat[there].cursor) == (6, 3)


def test_chat_whose_first_news_is_an_own_message_starts_before_it() -> None:
    made = connected()
    assert own_stored(made, 8) == []
    assert own_stored(made, 9) == []
    assert made.take_digest(NOW.ms)
    # The server moves an author's own position to what the author sends.
    made.digest(page(listed(9, delivered=9)), NOW)
    replica = made.by_chat[CHAT]
    assert (replica.start, replica.cursor) == (7, 7)
    assert made.take_pages(NOW.ms) == [replica]


def test_own_messages_of_chats_that_stay_unknown_are_bounded() -> None:
    made = connected()
    for number in range(EARLY_CHATS_MAX + 5):
        chat = ChatId(f"chat-{number}")
        own_stored(made, 8, chat)
    first, last = ChatId("chat-0"), ChatId(f"chat-{EARLY_CHATS_MAX}")
    made.digest(page(listed(8, first, delivered=8), listed(8, last, delivered=8)), NOW)
    assert (made.by_chat[first].start, made.by_chat[last].start) == (7, 8)


def test_numbers_of_own_messages_mean_nothing_in_a_new_epoch() -> None:
    made = connected()
    own_stored(made, 8)
    made.connected(ME, "two", is_new_epoch=True)
    made.digest(page(listed(9, delivered=9)), NOW)
    assert made.by_chat[CHAT].start == 9


def test_messages_that_leave_are_counted_per_chat_and_the_chat_need_not_be_known() -> None:
    made = connected(listed(0))
    made.own_answered(CHAT)
    made.own_sent(CHAT)
    assert made.by_chat[CHAT].sends_flying == 1
    made.own_answered(CHAT)
    assert made.by_chat[CHAT].sends_flying == 0
    unknown = ChatId("unknown")
    made.own_sent(unknown)
    made.own_answered(unknown)
    assert made.leave(unknown) == []
