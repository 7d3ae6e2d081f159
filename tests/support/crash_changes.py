"""Edits, deletions, reactions, replies and mentions for the load of the crash tests."""

from collections import defaultdict, deque
from random import Random
from typing import Any, Final

from tests.support import history
from tests.support.crash_cast import Cast
from tests.support.crash_records import content_of
from tidewire.domain.errors import (
    EditConflict,
    InvalidMention,
    MessageDeleted,
    NotAMember,
    Refused,
    TooManyEdits,
)
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind

EMOJIS: Final = ("👍", "🎉", "🌊")
KNOWN_MAX: Final = 12
"""How many of a chat's last messages are changed: few, so that several changes meet on one."""
WEIGHTS: Final = {"edit": 8, "delete": 4, "react": 12, "reply": 3, "mention": 3}


def new_draft(user_id: UserId, chat_id: ChatId, random: Random, **more: Any) -> history.Sent:
    """A new entry to send under a key of its own; its text, if it has one, follows from the key."""
    digits = f"{random.getrandbits(128):032x}"
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    key = ClientMessageId("-".join(parts))
    amends: Amendment | None = more.get("amends")
    has_text = amends is None or amends.kind is EntryKind.EDIT
    length = random.choice((20, 40, 80, 160, 160, 1000, 2000)) if has_text else 0
    return history.Sent(
        op=0,
        chat_id=chat_id,
        user_id=user_id,
        client_message_id=key,
        content=content_of(key, length),
        **more,
    )


class Changes:
    """The messages that can be changed, as far as this life knows them."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._owners = {chat_id: members[0] for chat_id, members in cast.groups}
        self._messages: defaultdict[ChatId, deque[tuple[int, UserId]]] = defaultdict(
            lambda: deque(maxlen=KNOWN_MAX)
        )
        """The last messages of each chat, with their authors."""
        self._edits: dict[tuple[ChatId, int], int] = {}

    def placed(self, sent: history.Sent, sequence: int) -> None:
        """Note that an entry was stored: from now on it can be changed."""
        if sent.amends is None:
            self._messages[sent.chat_id].append((sequence, sent.user_id))
        elif sent.amends.kind is EntryKind.EDIT:
            self._edits[sent.chat_id, sent.amends.target] = sequence

    def may_refuse(self, sent: history.Sent, refusal: Refused) -> bool:
        """Whether the load has given a reason for this refusal."""
        if isinstance(refusal, NotAMember):
            return sent.user_id == self._cast.guest
        if isinstance(refusal, InvalidMention):
            return self._cast.guest in sent.mentions
        if sent.amends is None:
            return False
        is_edit = sent.amends.kind is EntryKind.EDIT
        return isinstance(refusal, MessageDeleted) or (
            is_edit and (isinstance(refusal, TooManyEdits) or self._may_conflict(sent, refusal))
        )

    def _may_conflict(self, sent: history.Sent, refusal: Refused) -> bool:
        return isinstance(refusal, EditConflict) and sent.base is not None

    def draft(self, user_id: UserId, chat_id: ChatId, random: Random) -> history.Sent:
        """A change of a known message; a plain message if there is none to change."""
        known = list(self._messages[chat_id])
        own = [sequence for sequence, author in known if author == user_id]
        [kind] = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        more: dict[str, Any] = {}
        if kind == "mention":
            more["mentions"] = (self._meant(user_id, chat_id, random),)
        elif kind == "reply" and known:
            more["reply_to"] = random.choice(known)[0]
        elif kind == "react" and known:
            emoji, is_on = random.choice(EMOJIS), random.random() < 0.7
            target = random.choice(known)[0]
            more["amends"] = Amendment(
                kind=EntryKind.REACT, target=target, emoji=emoji, is_on=is_on
            )
        elif kind == "edit" and own:
            target = random.choice(own)
            more["amends"] = Amendment(kind=EntryKind.EDIT, target=target)
            more["base"] = random.choice((None, self._edits.get((chat_id, target), 0)))
        elif kind == "delete":
            is_owner = self._owners.get(chat_id) == user_id
            mine = [sequence for sequence, _ in known] if is_owner else own
            if mine:
                reason = random.choice((None, "a mistake"))
                target = random.choice(mine)
                more["amends"] = Amendment(kind=EntryKind.DELETE, target=target, reason=reason)
        return new_draft(user_id, chat_id, random, **more)

    def _meant(self, user_id: UserId, chat_id: ChatId, random: Random) -> UserId:
        if self._owners.get(chat_id) == user_id and random.random() < 0.3:
            return MENTION_ALL
        if chat_id == self._cast.open_group and random.random() < 0.3:
            return self._cast.guest
        members = [*dict(self._cast.groups).get(chat_id, ())]
        members += [one for chat, *pair in self._cast.directs if chat == chat_id for one in pair]
        return random.choice(members)
