"""What a gateway knows of a chat: never above what is stored, never past the roster it knows."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.delivery import Floors, Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.news import ChatNews, ChatStanding, Move
from tidewire.fanout.standings import LOOK_MS, LOOKS_MAX, Standing, Standings

CHAT, OTHER = ChatId("chat_1"), ChatId("chat_2")
ANN, BEN, CLEO = UserId("ann"), UserId("ben"), UserId("cleo")


def a_read(
    many: int = 0,
    *,
    version: int = 1,
    head: int = 10,
    chat_id: ChatId = CHAT,
    **positions: tuple[int, int],
) -> ChatStanding:
    named = positions or {"ann": (10, 10), "ben": (4, 2)}
    if many:
        named = {f"user{number}": (1, 1) for number in range(many)}
    return ChatStanding(
        chat_id,
        version,
        head,
        {UserId(name): 0 for name in named},
        {UserId(name): Positions(*one) for name, one in named.items()},
    )


def learned(book: Standings, read: ChatStanding, now_ms: int = 0) -> Standing:
    book.begin(read.chat_id)
    standing = book.learn(read.chat_id, read, now_ms, is_kept=True)
    assert standing is not None
    return standing


def a_book() -> Standings:
    return Standings(chats_max=10, members_max=100)


def boundaries(standing: Standing, viewer: UserId) -> tuple[int, int]:
    floors: Floors = standing.floors()
    return (
        floors.delivered.boundary(viewer, floors.head),
        floors.read.boundary(viewer, floors.head),
    )


def news(version: int = 0, head: int = 0, **moves: tuple[int, int]) -> ChatNews:
    told = tuple(Move(UserId(name), *one) for name, one in moves.items())
    return ChatNews(CHAT, version, head, told)


def test_news_of_moves_raise_the_boundary_and_never_lower_it() -> None:
    book = a_book()
    standing = learned(book, a_read())
    assert boundaries(standing, ANN) == (4, 2)
    assert book.heard(news(ben=(8, 3)), 0)
    assert boundaries(standing, ANN) == (8, 3)
    assert not book.heard(news(ben=(7, 1)), 0)
    assert boundaries(standing, ANN) == (8, 3)
    assert book.find(CHAT) is standing


def test_boundary_stays_at_the_head_up_to_which_the_roster_is_known() -> None:
    book = a_book()
    standing = learned(book, a_read(head=10))
    assert book.heard(news(ben=(15, 15)), 0)
    assert boundaries(standing, ANN) == (10, 10)
    # A head of the same version raises it; nobody is told of one that changes nothing.
    assert book.heard(news(version=1, head=12), 0)
    assert boundaries(standing, ANN) == (12, 12)
    assert book.heard(news(version=1, head=20), 0)
    assert boundaries(standing, ANN) == (15, 15)
    assert not book.heard(news(version=1, head=21), 0)


def test_another_version_has_the_chat_read_before_the_boundary_moves() -> None:
    book = a_book()
    standing = learned(book, a_read(head=10))
    assert book.heard(news(version=2, head=30), 0)
    assert book.find(CHAT) is None
    assert standing.head == 10
    assert not book.heard(news(version=2, head=31), 0)
    read_again = learned(book, a_read(version=2, head=31, ann=(31, 31), ben=(31, 4)))
    assert book.find(CHAT) is read_again
    # An older version is old news.
    assert not book.heard(news(version=1, head=40), 0)
    assert read_again.head == 31


def test_mover_whom_the_roster_does_not_have_counts_for_nothing() -> None:
    book = a_book()
    standing = learned(book, a_read())
    assert not book.heard(news(cleo=(1, 1)), 0)
    assert CLEO not in standing.positions


def test_news_that_come_while_the_chat_is_read_are_not_lost() -> None:
    book = a_book()
    book.begin(CHAT)
    assert not book.heard(news(ben=(9, 9)), 0)
    standing = book.learn(CHAT, a_read(), 0, is_kept=True)
    assert standing is not None
    assert boundaries(standing, ANN) == (9, 9)
    book.begin(CHAT)
    book.heard(news(version=3), 0)
    book.learn(CHAT, a_read(version=2), 0, is_kept=True)
    assert book.find(CHAT) is None


def test_chat_that_nothing_tells_of_is_true_now_and_not_remembered() -> None:
    book = a_book()
    book.begin(CHAT)
    assert book.learn(CHAT, a_read(), 0, is_kept=False) is not None
    assert book.find(CHAT) is None
    assert len(book) == 0
    book.begin(CHAT)
    assert book.learn(CHAT, None, 0, is_kept=True) is None
    book.begin(CHAT)
    book.failed(CHAT)
    assert not book.heard(news(ben=(9, 9)), 0)


def test_reading_again_never_lowers_what_is_known() -> None:
    """The reading may be older than a news that came before it began."""
    book = a_book()
    learned(book, a_read(head=10))
    book.heard(news(version=1, head=12, ben=(12, 12)), 0)
    standing = learned(book, a_read(head=11))
    assert boundaries(standing, ANN) == (12, 12)


def test_losses_and_changes_without_news_have_it_read_again() -> None:
    book = a_book()
    learned(book, a_read())
    assert book.outdated(CHAT)
    assert book.find(CHAT) is None
    assert list(book.members_of(CHAT)) == [ANN, BEN]
    assert not book.outdated(OTHER)
    learned(book, a_read())
    book.forget_all()
    assert len(book) == 0
    assert list(book.members_of(CHAT)) == []
    book.begin(CHAT)
    book.forget_all()
    book.learn(CHAT, a_read(), 0, is_kept=True)
    assert book.find(CHAT) is None


def test_chat_is_forgotten_when_no_member_has_a_route_any_more() -> None:
    book = a_book()
    routed = {ANN, BEN}
    learned(book, a_read())
    learned(book, a_read(chat_id=OTHER, ann=(1, 1), cleo=(1, 1)))
    routed.discard(BEN)
    book.unrouted([BEN], routed.__contains__)
    assert book.find(CHAT) is not None
    # Interrupted for a moment: routed again by now.
    book.unrouted([ANN], routed.__contains__)
    assert book.find(CHAT) is None
    assert book.find(OTHER) is None


def test_chat_that_is_being_read_when_a_route_goes_is_not_believed_later() -> None:
    book = a_book()
    book.begin(CHAT)
    book.unrouted([CLEO], lambda _: True)
    assert book.learn(CHAT, a_read(), 0, is_kept=True) is not None
    assert book.find(CHAT) is None


def test_quiet_chat_is_looked_at_each_time_after_twice_as_long() -> None:
    book = a_book()
    learned(book, a_read())
    now_ms, waits = 0, []
    for _ in range(LOOKS_MAX):
        next_ms = book.next_look_at_ms()
        assert next_ms is not None
        assert list(book.looks_due(next_ms - 1)) == []
        waits.append(next_ms - now_ms)
        now_ms = next_ms
        assert list(book.looks_due(now_ms)) == [CHAT]
        assert book.find(CHAT) is None
        learned(book, a_read(), now_ms)
    assert waits == [LOOK_MS << step for step in range(LOOKS_MAX)]
    assert book.next_look_at_ms() is None
    assert book.surprises == 0


def test_news_put_the_look_off_and_a_surprise_is_counted() -> None:
    book = a_book()
    learned(book, a_read())
    assert book.heard(news(ben=(5, 5)), 1_500)
    assert list(book.looks_due(LOOK_MS)) == []
    due_ms = book.next_look_at_ms()
    assert due_ms == 1_500 + LOOK_MS
    assert list(book.looks_due(due_ms)) == [CHAT]
    learned(book, a_read(ann=(10, 10), ben=(7, 5)), due_ms)
    assert book.surprises == 1
    assert book.next_look_at_ms() == due_ms + LOOK_MS


def test_interval_of_looks_grows_with_the_members() -> None:
    book = a_book()
    learned(book, a_read(50))
    assert book.next_look_at_ms() == 50 * 200


def test_chat_used_longest_ago_makes_room() -> None:
    book = Standings(chats_max=2, members_max=5)
    for name in ("chat_1", "chat_2", "chat_3"):
        learned(book, a_read(chat_id=ChatId(name)))
    assert book.find(CHAT) is None
    assert book.find(OTHER) is not None
    learned(book, a_read(chat_id=ChatId("chat_4")))
    assert book.find(ChatId("chat_3")) is None
    # What was forgotten is not looked at.
    assert set(book.looks_due(10**9)) == {OTHER, ChatId("chat_4")}
    learned(book, a_read(9))
    assert len(book) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["move", "told", "late", "join", "read"]),
            st.sampled_from([ANN, BEN]),
            st.integers(1, 5),
        ),
        max_size=40,
    )
)
def test_boundary_never_passes_what_is_stored(steps: list[tuple[str, UserId, int]]) -> None:
    """Whatever news come, late or never: at no time is the boundary above the truth."""
    truth = {ANN: 0, BEN: 0}
    joined = {ANN: 0, BEN: 0}
    head, version = 10, 1
    untold: list[ChatNews] = []
    book = a_book()

    def read() -> None:
        positions = {one: Positions(at, at) for one, at in truth.items()}
        book.begin(CHAT)
        standing = ChatStanding(CHAT, version, head, dict(joined), positions)
        book.learn(CHAT, standing, 0, is_kept=True)

    read()
    for kind, user, number in steps:
        match kind:
            case "move":
                truth[user] = min(head, truth[user] + number)
                untold.append(ChatNews(CHAT, moves=(Move(user, truth[user], truth[user]),)))
                head += number
                untold.append(ChatNews(CHAT, version, head))
            case "join":
                if CLEO not in truth:
                    version += 1
                    truth[CLEO], joined[CLEO] = 0, head
                    untold.append(ChatNews(CHAT, version, head))
                head += number
                untold.append(ChatNews(CHAT, version, head))
            case "told" if untold:
                book.heard(untold.pop(0), 0)
            case "late" if untold:
                book.heard(untold.pop(), 0)
            case _:
                read()
        standing = book.find(CHAT)
        if standing is not None:
            floors = standing.floors()
            for viewer in truth:
                others = [max(truth[one], joined[one]) for one in truth if one != viewer]
                assert floors.delivered.boundary(viewer, floors.head) <= min(others)
