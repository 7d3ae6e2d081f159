"""What the model's people wish to change: edits, deletions, reactions, replies and mentions, each
about something that is there, most of the time."""

from typing import Any, Final

from hypothesis import strategies as st

from tests.model.storage_model import ModelChat
from tests.support.views import view_of
from tests.support.world import World
from tidewire.domain.ids import SYSTEM, ClientMessageId, UserId
from tidewire.domain.messages import MENTION_ALL, SendMessage

PEOPLE: Final = 5
"""Four who exist, and one whom the store does not know."""
KEYS: Final = [ClientMessageId(f"{n:08x}-1111-4000-8000-000000000000") for n in range(6)]

# Who and where, as numbers that the machine turns into somebody who fits, most of the time: acts of
# people picked blindly would nearly all be refused. From RANDOM on they are picked blindly.
RANDOM: Final = 12
who = st.integers(0, RANDOM + PEOPLE - 1)
keys = st.sampled_from(KEYS) | st.none()


def some(*kinds: str) -> st.SearchStrategy[list[Any]]:
    """Some wishes: what, who, under which key, which text; the last number picks about what."""
    wish = st.tuples(
        st.sampled_from(kinds), who, keys, st.sampled_from(["d", "e" * 40]), st.integers(0, 40)
    )
    return st.lists(wish, min_size=2, max_size=8)


def change_of(
    world: World,
    chat: ModelChat,
    kind: str,
    author: UserId,
    meant: UserId,
    key: ClientMessageId | None,
    content: str,
    number: int,
) -> SendMessage:
    """The send of a wish. `meant` is who is mentioned, if that is what is wished."""
    chat_id, target = chat.chat_id, _target(chat, number)
    if target is None:
        return world.draft(chat_id, author, content, key=key)
    authors = [one.sender_id for one in chat.log if one.sequence == target]
    if number % 3 and authors and kind in {"edit", "rebase", "delete"}:
        # Their own mostly; others' may be deleted by some, and edited by none.
        author = authors[0]
    match kind:
        case "edit":
            return world.edit(chat_id, author, target, content, key=key)
        case "rebase":
            seen = view_of(chat.log, author).get(target)
            base = seen[1].edited_sequence if seen is not None and number % 4 else number
            return world.edit(chat_id, author, target, content, base=base, key=key)
        case "delete":
            reason = "a mistake" if number % 2 else None
            # Now and then by the server itself, as if a person was erased.
            by = SYSTEM if number % 10 == 0 else author
            return world.deletion(chat_id, by, target, reason=reason, key=key)
        case "react" | "unreact":
            emoji, is_on = "👍" if number % 2 else "🎉", kind == "react"
            return world.reaction(chat_id, author, target, emoji, is_on=is_on, key=key)
        case "reply":
            return world.draft(chat_id, author, content, reply_to=target, key=key)
        case "mention":
            mentions = (MENTION_ALL if number % 5 == 0 else meant,)
            return world.draft(chat_id, author, content, mentions=mentions, key=key)
        case _:
            raise AssertionError(f"no such wish: {kind}")


def _target(chat: ModelChat, number: int) -> int | None:
    """A message mostly, if there is one; from 36 on any number, also of what is no message or not
    there, but none that the same batch may give out: no client knows it by then."""
    messages = [one.sequence for one in chat.log if one.amends is None]
    if not messages:
        return None
    if number >= 39:
        return chat.counter + 50
    # One of the last few: others do something to it as well.
    few = messages[-3:]
    return 1 + number % chat.head if number >= 36 else few[number % len(few)]
