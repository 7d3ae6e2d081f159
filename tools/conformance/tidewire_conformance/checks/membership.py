"""TW-10 and TW-11: how a client knows which chats are its user's.

In a cluster changes of a chat come from several servers and may overtake each other, and a push may
be lost. So a client relies on the membership version, and on being told of its own chats only.
"""

from tidewire.domain.chats import ChatType
from tidewire_conformance.registry import must
from tidewire_conformance.stage import Stage
from tidewire_conformance.truth import OTHER


@must("TW-10", "membership goes by version")
async def the_latest_version_counts(stage: Stage) -> None:
    """The user is removed and added again, and the two pushes arrive in reverse order: the client
    stays in, and shows what is pushed next without asking for anything. In two more chats, one of
    them not known before, the user is added and removed, told in reverse order as well: a
    message from before the removal, pushed next, is not shown."""
    server = stage.server
    back, gone = await stage.begin(chats=2, messages=1, chat_type=ChatType.GROUP)
    new = server.truth.new_chat(ChatType.GROUP)
    new.is_member = False
    server.hold("chat_digest")
    back.membership_version = 5
    server.push_update(back, "member_added", 5)
    server.push_update(back, "member_removed", 4)
    server.say(back, "still here")
    await stage.shows(back)
    gone.is_member = False
    for chat in (gone, new):
        server.push_update(chat, "member_removed", 5)
        server.push_update(chat, "member_added", 4)
        server.say(chat, "late")
    await server.connection.barrier(stage.patience_s)
    await stage.quiet(0.1 + stage.scale)
    for chat in (gone, new):
        shown = await stage.texts(chat)
        stage.expect("late" not in shown, "an old push took a user in who had been removed")
    server.release("chat_digest")


@must("TW-11", "a chat that is heard of is the user's")
async def what_is_heard_of_is_ours(stage: Stage) -> None:
    """The push that tells of the user's being added is lost, for a chat that was left before, and
    for two that the client never knew. Then something of each is pushed: news about another member,
    or a message. The client finds out that the user is in, and shows all of it."""
    server = stage.server
    (again,) = await stage.begin(messages=1, chat_type=ChatType.GROUP)
    again.is_member = False
    server.push_update(again, "member_removed", 2)
    await server.connection.barrier(stage.patience_s)
    again.is_member, again.membership_version = True, 4
    server.say(again, "while you were joining", push=False)
    server.push_update(again, "member_added", 4, OTHER)
    await stage.shows(again)
    by_news = server.truth.new_chat(ChatType.GROUP)
    by_news.membership_version = 3
    server.say(by_news, "unseen", push=False)
    server.push_update(by_news, "role_changed", 3, OTHER)
    await stage.shows(by_news)
    by_push = server.truth.new_chat(ChatType.GROUP)
    server.say(by_push, "seen", push=True)
    await stage.shows(by_push)
