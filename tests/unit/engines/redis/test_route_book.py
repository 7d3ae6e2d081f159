"""Routes: registered once, forgotten for good, and asserted until then."""

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.engines.redis.route_book import RouteBook
from tidewire.ports.router import Route


def route(name: str) -> Route:
    return Route(ConnectionId(name), UserId("ann"), "phone")


A, B, C = route("a"), route("b"), route("c")


def registered(*routes: Route) -> RouteBook:
    book = RouteBook()
    for one in routes:
        book.register(one)
    book.registered(book.take_to_register(10))
    return book


def test_route_is_registered_once() -> None:
    book = RouteBook()
    book.register(A)
    book.register(B)
    assert [book.has_wishes, len(book)] == [True, 2]
    assert book.take_to_register(1) == [A]
    assert book.take_to_register(1) == [B]
    assert book.take_to_register(1) == []
    assert not book.has_wishes
    assert len(book) == 2


def test_only_what_was_answered_is_asserted() -> None:
    book = RouteBook()
    book.register(A)
    taken = book.take_to_register(10)
    # Asserted now, it would be missing, and its connection told for nothing.
    assert book.chunks(10) == []
    book.registered(taken)
    assert book.chunks(10) == [["a"]]
    assert book.asserted([A], set()) == []


def test_chunks_hold_everything_in_order() -> None:
    book = registered(A, B, C)
    assert book.chunks(2) == [["a", "b"], ["c"]]
    assert book.still_known([ConnectionId("a"), ConnectionId("x")]) == [A]


def test_missing_route_means_a_resync_for_it_alone() -> None:
    book = registered(A, B)
    assert book.asserted([A, B], {ConnectionId("b")}) == ["b"]
    assert book.asserted([A, B], set()) == []


def test_route_that_went_during_the_assertion_is_not_told() -> None:
    book = registered(A)
    book.unregister(A)
    assert book.asserted([A], {ConnectionId("a")}) == []
    assert book.take_to_unregister(10) == [A]


def test_route_without_an_answer_is_told_once_it_was_asserted() -> None:
    book = RouteBook()
    book.register(A)
    book.not_registered(book.take_to_register(10))
    # It may have been registered after all, so it need not be missing.
    assert book.asserted([A], set()) == ["a"]
    assert book.asserted([A], set()) == []


def test_connection_that_could_not_wait_is_told_once_it_was_asserted() -> None:
    book = RouteBook()
    book.register(A)
    book.doubt(A)
    book.registered(book.take_to_register(10))
    assert book.asserted([A], set()) == ["a"]


def test_doubt_about_what_is_gone_is_forgotten() -> None:
    book = RouteBook()
    book.doubt(A)
    book.register(A)
    book.registered(book.take_to_register(10))
    assert book.asserted([A], set()) == []


def test_unregistered_before_it_was_registered_leaves_nothing_to_do() -> None:
    book = RouteBook()
    book.register(A)
    book.unregister(A)
    assert not book.has_wishes
    assert len(book) == 0


def test_unregistered_while_under_way_is_forgotten_afterwards() -> None:
    for answer in (RouteBook.registered, RouteBook.not_registered):
        book = RouteBook()
        book.register(A)
        taken = book.take_to_register(10)
        book.unregister(A)
        answer(book, taken)
        assert book.chunks(10) == []
        assert book.take_to_unregister(1) == [A]
        assert book.take_to_unregister(1) == []
        assert len(book) == 0
