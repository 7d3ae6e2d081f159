"""A checker that forgets must still notice everything."""

import pytest

from tidewire_bench.book import HELD_MAX, SWEEP_AFTER, Book, Reader
from tidewire_bench.frames import Item, message_key
from tidewire_bench.ledger import Faults

ANN, BOB, CLEO = 0, 1, 2


def item(sequence: int, sender: int, number: int, prev: int | None = None) -> Item:
    before = sequence - 1 if prev is None else prev
    return Item(sequence, before, message_key(sender, number))


@pytest.fixture
def book() -> Book:
    return Book(Faults())


def reader(book: Book, sender: int = BOB, joined: int = 0) -> Reader:
    return book.open("chat", f"client {sender}", sender=sender, joined=joined)


def push(to: Reader, what: Item, *, is_awaiting: bool = False) -> None:
    to.pushed(what, is_awaiting=is_awaiting)


def test_pushes_in_order_are_fine(book: Book) -> None:
    bob = reader(book)
    for number in range(5):
        push(bob, item(number + 1, ANN, number))
    book.check_complete()
    assert book.faults.count == 0
    assert (bob.last, bob.cursor, book.taken_count) == (5, 5, 5)


@pytest.mark.parametrize(
    ("pushed", "words"),
    [
        ([item(1, ANN, 0), item(1, ANN, 0)], "was pushed sequence 1 after 1"),
        ([item(1, ANN, 0), item(2, ANN, 2)], "got message 2 of sender 0, not 1"),
        ([item(1, ANN, 0), item(2, ANN, 0)], "got message 0 of sender 0, not 1"),
        ([item(1, ANN, 1)], "got message 1 of sender 0, not 0"),
        ([item(1, ANN, 0), item(3, ANN, 1, 2), item(2, CLEO, 0)], "pushed sequence 2 after 3"),
    ],
)
def test_pushes_that_are_wrong_are_noticed(book: Book, pushed: list[Item], words: str) -> None:
    bob = reader(book)
    for each in pushed:
        push(bob, each)
    assert any(words in fault for fault in book.faults.first), book.faults.first


def test_push_of_what_a_page_of_this_connection_has_brought_is_no_fault(book: Book) -> None:
    bob = reader(book)
    bob.paged([item(1, ANN, 0), item(2, ANN, 1)], 2)
    push(bob, item(2, ANN, 1))
    assert book.faults.count == 0
    bob.connected()
    push(bob, item(2, ANN, 1))
    assert "got sequence 2 again after 2" in book.faults.first[0]


def test_own_message_may_be_pushed_after_its_ack(book: Book) -> None:
    """It was sent on a connection that is gone, and again on this one."""
    bob = reader(book)
    bob.acked(1, 0, message_key(BOB, 0))
    push(bob, item(1, BOB, 0))
    assert book.faults.count == 0


def test_push_before_the_ack_of_its_predecessor_is_held(book: Book) -> None:
    bob = reader(book)
    push(bob, item(2, ANN, 0), is_awaiting=True)
    bob.check_gap(now_s=1.0, patience_s=5.0)
    assert bob.last == 0
    bob.acked(1, 0, message_key(BOB, 0))
    assert bob.last == 2
    bob.check_gap(now_s=100.0, patience_s=5.0)
    assert book.faults.count == 0


def test_push_whose_predecessor_was_lost_is_noticed_at_once(book: Book) -> None:
    bob = reader(book)
    push(bob, item(2, ANN, 0))
    push(bob, item(3, ANN, 1))
    assert book.faults.first == ["client 1 in chat got sequence 2, whose predecessor is 1, after 0"]


def test_push_that_was_lost_beside_a_message_of_ones_own_is_noticed_by_its_ack(book: Book) -> None:
    bob = reader(book)
    push(bob, item(3, ANN, 1), is_awaiting=True)
    assert book.faults.count == 0
    bob.acked(2, 1, message_key(BOB, 0))
    assert "got sequence 3, whose predecessor is 2, after 0" in book.faults.first[0]


def test_ack_may_overtake_the_push_before_it(book: Book) -> None:
    bob = reader(book)
    bob.acked(2, 1, message_key(BOB, 0))
    bob.check_held(is_awaiting=False)
    push(bob, item(1, ANN, 0))
    assert bob.last == 2
    assert book.faults.count == 0


def test_what_never_comes_is_a_fault_after_a_while(book: Book) -> None:
    bob = reader(book)
    bob.acked(2, 1, message_key(BOB, 0))
    for now_s in (1.0, 6.0):
        bob.check_gap(now_s, patience_s=5.0)
    assert book.faults.count == 0
    bob.check_gap(6.1, patience_s=5.0)
    assert "waits for sequence 1 after 0" in book.faults.first[0]


def test_page_fills_a_gap_and_lets_go_of_what_it_brought(book: Book) -> None:
    bob = reader(book)
    push(bob, item(3, ANN, 1), is_awaiting=True)
    push(bob, item(5, ANN, 3), is_awaiting=True)
    bob.paged([item(1, CLEO, 0), item(2, ANN, 0), item(3, ANN, 1), item(4, ANN, 2)], 4)
    assert bob.last == 5
    book.check_complete()
    assert book.faults.count == 0


def test_held_message_that_a_page_has_passed_is_forgotten(book: Book) -> None:
    bob = reader(book)
    push(bob, item(3, ANN, 1), is_awaiting=True)
    bob.paged([item(1, CLEO, 0), item(2, ANN, 0), item(3, ANN, 1), item(4, ANN, 2)], 4)
    bob.check_gap(0.0, 1.0)
    bob.check_gap(100.0, 1.0)
    assert book.faults.count == 0


def test_page_with_a_hole_is_noticed(book: Book) -> None:
    reader(book).paged([item(1, ANN, 0), item(3, ANN, 1)], 3)
    assert "whose predecessor is 2, after 1" in book.faults.first[0]


def test_page_moves_the_cursor_past_numbers_without_messages(book: Book) -> None:
    bob = reader(book)
    bob.paged([item(1, ANN, 0)], 7)
    assert (bob.last, bob.cursor) == (1, 7)


def test_page_may_overlap_with_what_was_pushed_meanwhile(book: Book) -> None:
    bob = reader(book)
    push(bob, item(1, ANN, 0))
    bob.paged([item(1, ANN, 0), item(2, ANN, 1)], 2)
    assert bob.last == 2
    assert book.faults.count == 0


def test_held_messages_are_bounded(book: Book) -> None:
    bob = reader(book)
    for at in range(HELD_MAX + 1):
        push(bob, item(at + 2, ANN, at), is_awaiting=True)
    assert f"holds {HELD_MAX} messages" in book.faults.first[0]


def test_two_readers_must_meet_the_same(book: Book) -> None:
    push(reader(book, BOB), item(1, ANN, 0))
    push(reader(book, CLEO), item(1, BOB, 0))
    assert "sequence 1 of chat is both" in book.faults.first[0]


def test_ack_must_name_the_sequence_that_others_have_met(book: Book) -> None:
    push(reader(book, BOB), item(1, ANN, 0))
    reader(book, ANN).acked(1, 0, message_key(ANN, 1))
    assert "sequence 1 of chat is both" in book.faults.first[0]


def test_ack_of_what_was_met_otherwise_is_noticed(book: Book) -> None:
    ann = reader(book, ANN)
    ann.paged([item(1, ANN, 0), item(2, ANN, 1)], 2)
    ann.acked(2, 1, message_key(ANN, 1))
    assert book.faults.count == 0
    ann.acked(1, 0, message_key(ANN, 1))
    assert any("but had met 1 as 2" in fault for fault in book.faults.first)


def test_acked_message_that_did_not_arrive_is_noticed_in_the_end(book: Book) -> None:
    ann, bob = reader(book, ANN), reader(book, BOB)
    ann.acked(1, 0, message_key(ANN, 0))
    ann.acked(2, 1, message_key(ANN, 1))
    push(bob, item(1, ANN, 0))
    book.check_complete()
    assert [fault.split(" in chat ")[0] for fault in book.faults.first] == ["client 1"] * 2
    assert "ends at sequence 1 of 2" in book.faults.first[0]
    assert "never got message 1 of sender 0" in book.faults.first[1]


def test_acked_message_that_the_chain_leaves_out_is_noticed(book: Book) -> None:
    ann, bob = reader(book, ANN), reader(book, BOB)
    ann.acked(1, 0, message_key(ANN, 0))
    ann.acked(2, 1, message_key(ANN, 1))
    push(ann, item(3, CLEO, 0))
    push(bob, item(1, ANN, 0))
    push(bob, item(3, CLEO, 0, prev=1))
    book.check_complete()
    assert "client 1 in chat never got message 1 of sender 0" in book.faults.first[0]


def test_whoever_joins_later_begins_there(book: Book) -> None:
    ann, bob = reader(book, ANN), reader(book, BOB, joined=2)
    for number in range(3):
        ann.acked(number + 1, number, message_key(ANN, number))
    push(ann, item(4, CLEO, 8))
    push(bob, item(3, ANN, 2))
    push(bob, item(4, CLEO, 8))
    assert bob.last == 4
    ann.acked(5, 4, message_key(ANN, 3))
    book.check_complete()
    assert any("client 1 in chat never got message 3" in fault for fault in book.faults.first)


def test_whoever_leaves_is_not_waited_for(book: Book) -> None:
    ann, bob = reader(book, ANN), reader(book, BOB)
    ann.acked(1, 0, message_key(ANN, 0))
    book.close(bob)
    book.check_complete()
    assert book.faults.count == 0
    book.close(ann)
    assert book.chats == {}


def test_what_all_have_passed_is_forgotten(book: Book) -> None:
    ann, bob = reader(book, ANN), reader(book, BOB)
    for number in range(20 * SWEEP_AFTER):
        ann.acked(number + 1, number, message_key(ANN, number))
        push(bob, item(number + 1, ANN, number))
    assert book.remembered_count <= SWEEP_AFTER
    assert book.acked_count == 20 * SWEEP_AFTER
    assert book.faults.count == 0


def test_slowest_reader_keeps_what_it_has_not_seen(book: Book) -> None:
    ann = reader(book, ANN)
    reader(book, BOB)
    for number in range(2 * SWEEP_AFTER):
        ann.acked(number + 1, number, message_key(ANN, number))
    assert book.remembered_count == 2 * SWEEP_AFTER


def test_book_that_keeps_all_forgets_nothing() -> None:
    book = Book(Faults(), keeps_all=True)
    ann = reader(book, ANN)
    for number in range(2 * SWEEP_AFTER):
        ann.acked(number + 1, number, message_key(ANN, number))
    book.close(ann)
    assert book.remembered_count == 2 * SWEEP_AFTER
