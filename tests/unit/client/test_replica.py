"""The chain of a chat: what is given out is always the next part of a whole prefix."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.unit.client.stage import CHAT, ME, THEM, deletion, edit, item, listed, reaction
from tidewire.client.replica import Replica, first_record, replica_from
from tidewire.domain.chats import ChatType
from tidewire.domain.messages import MENTION_ALL
from tidewire.wire.server_frames import StatusUpdatePayload, SyncItem


def replica(
    cursor: int = 0, waiting_max: int = 100, counted_through: int | None = None, **fields: Any
) -> Replica:
    made = Replica(
        chat_id=CHAT,
        chat_type=ChatType.DIRECT,
        cursor=cursor,
        waiting_max=waiting_max,
        **fields,
    )
    made.counted_through = made.cursor if counted_through is None else counted_through
    return made


def chain(gaps: list[int]) -> list[SyncItem]:
    messages: list[SyncItem] = []
    last = 0
    for gap in gaps:
        messages.append(item(last + 1 + gap, last))
        last = messages[-1].sequence
    return messages


@settings(max_examples=200)
@given(
    gaps=st.lists(st.sampled_from([0, 0, 3]), min_size=1, max_size=12),
    steps=st.lists(
        st.tuples(st.just("push"), st.integers(0, 11))
        | st.tuples(st.just("page"), st.integers(1, 4)),
        max_size=40,
    ),
    waiting_max=st.integers(1, 5),
)
def test_any_mess_of_pushes_and_pages_gives_a_whole_prefix_once(
    gaps: list[int], steps: list[tuple[str, int]], waiting_max: int
) -> None:
    messages = chain(gaps)
    here = replica(waiting_max=waiting_max)
    given_out: list[int] = []
    for kind, number in steps:
        if kind == "push":
            taken = here.offer(messages[number % len(messages)])
        else:
            above = [one for one in messages if one.sequence > here.cursor][:number]
            taken = here.offer_page(above, above[-1].sequence if above else here.cursor)
        given_out += [one.sequence for one in taken]
        assert given_out == [one.sequence for one in messages[: len(given_out)]]
        assert len(here.waiting) <= waiting_max
        # What waits does so for a reason.
        assert all(one.prev_sequence > here.cursor for one in here.waiting.values())
    rest = [one for one in messages if one.sequence > here.cursor]
    given_out += [one.sequence for one in here.offer_page(rest, messages[-1].sequence)]
    assert given_out == [one.sequence for one in messages]
    assert not here.is_behind
    assert not here.waiting


def test_page_that_is_no_chain_is_taken_up_to_its_first_hole() -> None:
    here = replica()
    taken = here.offer_page([item(1), item(2), item(5, 4)], 5)
    assert [one.sequence for one in taken] == [1, 2]
    assert here.cursor == 2


def test_page_may_say_that_there_is_nothing_up_to_a_number() -> None:
    here = replica(3)
    assert here.offer_page([item(3)], 9) == []
    assert here.cursor == 9


def test_record_has_what_is_on_the_disk_and_not_more() -> None:
    here = replica(3)
    here.offer(item(4))
    assert here.record().cursor == 3
    here.stored = 4
    assert replica_from(here.record(), waiting_max=1).cursor == 4


def test_numbers_merge_and_never_go_back() -> None:
    here = replica(3, read=2, delivered=3, others_read=2, others_delivered=3, unread=1)
    here.merge_digest(listed(3, delivered=1, read=1, others_delivered=1, others_read=1, unread=9))
    assert (here.delivered, here.read, here.others_delivered, here.others_read) == (3, 2, 3, 2)
    assert here.unread == 1
    status = StatusUpdatePayload(
        chat_id=CHAT, others_delivered=1, others_read=1, own_delivered=9, own_read=1, unread=50
    )
    here.merge_status(status)
    assert (here.delivered, here.read, here.unread) == (9, 2, 1)
    assert (here.others_delivered, here.others_read) == (3, 2)
    status = StatusUpdatePayload(
        chat_id=CHAT, others_delivered=1, others_read=1, own_read=3, unread=0
    )
    here.merge_status(status)
    assert (here.read, here.unread) == (3, 0)
    assert (here.others_delivered, here.others_read) == (3, 2)
    here.merge_status(
        StatusUpdatePayload(chat_id=CHAT, others_delivered=5, others_read=4, own_read=4)
    )
    assert (here.read, here.others_delivered, here.others_read) == (4, 5, 4)
    here.merge_digest(listed(5, delivered=9, read=4, others_delivered=6, others_read=5))
    assert (here.others_delivered, here.others_read) == (6, 5)


def test_unread_counts_messages_of_others_once_and_up_to_a_bound() -> None:
    here = replica()
    here.merge_digest(listed(2, unread=2))
    here.count_unread([item(1), item(2), item(3), item(4, sender=ME), item(5)], ME)
    assert here.unread == 4
    here.count_unread([item(n, sender=THEM) for n in range(6, 300)], ME)
    assert here.unread == 100


def test_new_replica_holds_nothing_and_starts_at_the_head_at_most() -> None:
    made = first_record(CHAT, ChatType.DIRECT, start=6, head=9)
    assert (made.start, made.cursor, made.head) == (6, 6, 9)
    assert first_record(CHAT, ChatType.DIRECT, start=9, head=3).cursor == 3


# What is unread.


def test_only_messages_count_as_unread() -> None:
    here = replica()
    deletions = here.count_unread(
        [
            item(1),
            edit(2, 1, "new"),
            reaction(3, 1, "👍", count=1),
            item(4, kind="poll"),
            item(5, is_deleted=True, content=""),
            deletion(6, 5),
        ],
        ME,
    )
    assert (here.unread, here.counted_through, here.others_through) == (1, 6, 6)
    assert deletions == [6]


def test_deletion_that_the_server_has_counted_is_no_news() -> None:
    here = replica()
    here.merge_digest(listed(3, unread=1))
    assert here.count_unread([item(1), item(2), deletion(3, 1)], ME) == []
    assert here.count_unread([deletion(4, 2)], ME) == [4]


def test_mentions_are_counted_beside_what_is_unread() -> None:
    here = replica(read=1, counted_through=1)
    here.count_unread(
        [
            item(2, mentions=(ME,)),
            item(3, mentions=(THEM,)),
            item(4, mentions=(MENTION_ALL,)),
            item(5, sender=ME, mentions=(ME,)),
        ],
        ME,
    )
    assert (here.unread, here.mentions_unread) == (3, 2)
    here.merge_digest(listed(5, read=1, unread=3, mentions_unread=1))
    assert (here.unread, here.mentions_unread) == (3, 1)
    here.merge_digest(listed(5, read=0, unread=9, mentions_unread=9))
    assert here.mentions_unread == 1
    for unread, mentions in ((2, 1), (1, None)):
        status = StatusUpdatePayload(
            chat_id=CHAT,
            others_delivered=0,
            others_read=0,
            own_read=5,
            unread=unread,
            mentions_unread=mentions,
        )
        here.merge_status(status)
        assert (here.unread, here.mentions_unread) == (unread, mentions or 0)


def test_deleted_message_is_unread_no_longer() -> None:
    here = replica(read=1, unread=2, mentions_unread=1)
    assert not here.uncount(1, is_mention=True)
    assert here.uncount(2, is_mention=False)
    assert (here.unread, here.mentions_unread) == (1, 1)
    assert here.uncount(3, is_mention=True)
    assert (here.unread, here.mentions_unread) == (0, 0)
    here.uncount(4, is_mention=True)
    assert (here.unread, here.mentions_unread) == (0, 0)
    # So many or more: one less of them may be just as many.
    here.unread = here.mentions_unread = 100
    here.uncount(4, is_mention=True)
    assert (here.unread, here.mentions_unread) == (100, 100)


@given(st.data())
def test_entries_of_any_kind_continue_the_chain(data: st.DataObject) -> None:
    kinds = st.sampled_from([None, "edit", "delete", "react", "poll", "message"])
    entries = [
        item(sequence, kind=data.draw(kinds), content="", target=max(1, sequence - 1))
        for sequence in range(1, 6)
    ]
    here = replica()
    taken = [one for made in data.draw(st.permutations(entries)) for one in here.offer(made)]
    assert taken == entries
    assert here.cursor == 5
