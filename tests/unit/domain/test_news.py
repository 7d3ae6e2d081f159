from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.news import ChatNews, Move


def test_news_say_nothing_unless_told() -> None:
    news = ChatNews(ChatId("chat_1"))
    assert (news.membership_version, news.head, news.moves) == (0, 0, ())
    assert Move(UserId("ann"), 3, 2).positions == Positions(3, 2)
