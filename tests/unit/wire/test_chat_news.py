from hypothesis import example, given
from hypothesis import strategies as st

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.news import ChatNews, Move
from tidewire.wire.chat_news import decode_news, encode_news

SEQUENCES = st.integers(0, SEQUENCE_MAX)
MOVES = st.builds(Move, st.text(max_size=30).map(UserId), SEQUENCES, SEQUENCES)


@given(
    st.builds(
        ChatNews,
        st.text().map(ChatId),
        SEQUENCES,
        SEQUENCES,
        st.tuples(MOVES, MOVES),
        st.booleans(),
    )
)
def test_news_come_back_as_they_were(news: ChatNews) -> None:
    assert decode_news(encode_news(news)) == news


@given(st.binary(max_size=50))
@example(b"\x91\xa1\x80")  # A text that is none.
@example(b"\x91" * 100_000)
def test_bytes_that_are_no_news_are_none(body: bytes) -> None:
    found = decode_news(body)
    assert found is None or isinstance(found, ChatNews)


def test_more_fields_of_a_newer_server_are_ignored() -> None:
    newer = encode_news(["chat_1", 1, 2, [["ann", 1, 1, "new"]], True, "new"])
    moves = (Move(UserId("ann"), 1, 1),)
    assert decode_news(newer) == ChatNews(ChatId("chat_1"), 1, 2, moves, is_change=True)
    assert decode_news(b"\xc1") is None
