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
    book.registered(book.take_to_register(10), 0)
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
    book.registered(taken, 0)
    assert book.chunks(10) == [["a"]]
    assert book.asserted([A], set(), 0) == []


def test_chunks_hold_everything_in_order() -> None:
    book = registered(A, B, C)
    assert book.chunks(2) == [["a", "b"], ["c"]]
    assert book.still_known([ConnectionId("a"), ConnectionId("x")]) == [A]


def test_missing_route_means_a_resync_for_it_alone() -> None:
    book = registered(A, B)
    assert book.asserted([A, B], {ConnectionId("b")}, 0) == ["b"]
    assert book.asserted([A, B], set(), 0) == []


def test_route_that_went_during_the_assertion_is_not_told() -> None:
    book = registered(A)
    book.unregister(A)
    assert book.asserted([A], {ConnectionId("a")}, 0) == []
    assert book.take_to_unregister(10) == [A]


def test_route_without_an_answer_is_told_once_it_was_asserted() -> None:
    book = RouteBook()
    book.register(A)
    book.not_registered(book.take_to_register(10))
    # It may have been registered after all, so it need not be missing.
    assert book.asserted([A], set(), 0) == ["a"]
    assert book.asserted([A], set(), 0) == []


def test_connection_that_could_not_wait_is_told_once_it_was_asserted() -> None:
    book = RouteBook()
    book.register(A)
    book.doubt(A)
    book.registered(book.take_to_register(10), 0)
    assert book.asserted([A], set(), 0) == ["a"]


def test_doubt_about_what_is_gone_is_forgotten() -> None:
    book = RouteBook()
    book.doubt(A)
    book.register(A)
    book.registered(book.take_to_register(10), 0)
    assert book.asserted([A], set(), 0) == []


def test_unregistered_before_it_was_registered_leaves_nothing_to_do() -> None:
    book = RouteBook()
    book.register(A)
    book.unregister(A)
    assert not book.has_wishes
    assert len(book) == 0


def test_unregistered_while_under_way_is_forgotten_afterwards() -> None:
    for is_answered in (True, False):
        book = RouteBook()
        book.register(A)
        taken = book.take_to_register(10)
        book.unregister(A)
        if is_answered:
            book.registered(taken, 0)
        else:
            book.not_registered(taken)
        assert book.chunks(10) == []
        assert book.take_to_unregister(1) == [A]
        assert book.take_to_unregister(1) == []
        assert len(book) == 0


def test_user_is_routed_from_the_first_sure_route_to_the_last() -> None:
    book = RouteBook()
    other = Route(ConnectionId("z"), A.user_id, "tablet")
    assert book.routed_at_ms(A.user_id) is None
    for route, at_ms in ((A, 5), (other, 9)):
        book.register(route)
        book.registered(book.take_to_register(10), at_ms)
        assert book.routed_at_ms(A.user_id) == 5
    book.unregister(A)
    assert book.routed_at_ms(A.user_id) == 5
    assert book.take_interrupted() == []
    book.unregister(other)
    assert book.routed_at_ms(A.user_id) is None
    assert book.take_interrupted() == [A.user_id]
    assert book.take_interrupted() == []


def test_route_that_was_missing_or_not_answered_interrupts() -> None:
    book = RouteBook()
    book.register(A)
    book.not_registered(book.take_to_register(10))
    assert book.routed_at_ms(A.user_id) is None
    book.asserted([A], set(), 7)
    assert book.routed_at_ms(A.user_id) == 7
    assert book.take_interrupted() == []
    book.asserted([A], {A.connection_id}, 8)
    assert book.routed_at_ms(A.user_id) == 8
    assert book.take_interrupted() == [A.user_id]
    book.doubt(A)
    assert book.routed_at_ms(A.user_id) is None
    assert book.take_interrupted() == [A.user_id]
