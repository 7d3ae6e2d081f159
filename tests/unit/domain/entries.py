"""Sends and entries for tests of messages that change: one chat, a few people."""

from typing import Any

from tidewire.domain.amendments import Target, TargetFacts, amend, judge_amendment
from tidewire.domain.append import message_of
from tidewire.domain.errors import Refused
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message, SendMessage

CHAT, ANNA, BEN, CLEO = ChatId("chat_1"), UserId("user_anna"), UserId("user_ben"), UserId("user_c")
NOW_MS = 1_800_000_000_000
KEY = ClientMessageId("c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1")


def a_send(sender: UserId = ANNA, content: str = "hello", **more: Any) -> SendMessage:
    fields: dict[str, Any] = {
        "chat_id": CHAT,
        "client_message_id": KEY,
        "message_id": MessageId("msg_1"),
        **more,
    }
    return SendMessage(sender_id=sender, content=content, **fields)


def an_edit(
    sender: UserId = ANNA, content: str = "new", target: int = 1, **more: Any
) -> SendMessage:
    return a_send(sender, content, amends=Amendment(kind=EntryKind.EDIT, target=target), **more)


def a_deletion(
    sender: UserId = ANNA, target: int = 1, reason: str | None = None, **more: Any
) -> SendMessage:
    amends = Amendment(kind=EntryKind.DELETE, target=target, reason=reason)
    return a_send(sender, "", amends=amends, **more)


def a_reaction(
    sender: UserId = ANNA, emoji: str = "👍", *, is_on: bool = True, target: int = 1, **more: Any
) -> SendMessage:
    amends = Amendment(kind=EntryKind.REACT, target=target, emoji=emoji, is_on=is_on)
    return a_send(sender, "", amends=amends, **more)


class Log:
    """The entries about one message of Anna, which is the first of its chat."""

    def __init__(self, content: str = "hello") -> None:
        self.target = Target(ANNA, NOW_MS, content)
        self.entries: list[Message] = []

    def append(self, send: SendMessage) -> Refused | None:
        """Store what the rules allow."""
        facts = TargetFacts({(CHAT, 1): self.target})
        refusal = judge_amendment(send, is_admin=False, facts=facts)
        if refusal is None:
            sequence = 2 + len(self.entries)
            count = amend(self.target, send, sequence)
            self.entries.append(message_of(send, sequence, sequence - 1, NOW_MS, count))
        return refusal
