"""Erases all messages of a user: every message becomes a tombstone, in every chat.

The server itself (SYSTEM) deletes them, whatever membership and blocks say. The deletions are
entries like any others: they are pushed, synced and logged, and devices erase their copies. A run
that was interrupted is started again: it finds the messages that are left, and the key of a
deletion is derived from the message, so nothing is done twice.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from tidewire.domain.errors import MessageDeleted, StoreDamaged, TargetNotFound
from tidewire.domain.ids import SYSTEM, ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Amendment, Appended, EntryKind, MessageBody
from tidewire.ports.storage import MessageStore

AT_ONCE: Final = 50
"""How many deletions run at once: few enough that sends of users do not wait for them."""
CHATS_PAGE: Final = 100
_NAMESPACE: Final = uuid.UUID("9b1d1a54-6c0e-5f2e-8f0b-8f6a4f0f8a3d")
_NOTHING: Final = MessageBody(content="")


class Deletes(Protocol):
    """The way into the store: `IngestService.send`."""

    async def __call__(
        self,
        body: MessageBody,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        amends: Amendment,
    ) -> Appended: ...


class Erased(msgspec.Struct):
    """What was done so far."""

    chats: int = 0
    messages: int = 0
    damaged: int = 0
    """Messages that could not be deleted, because what is stored is not what was written."""


async def erase_messages(
    store: MessageStore,
    delete: Deletes,
    user_id: UserId,
    progress: Callable[[Erased], None] = lambda _: None,
) -> Erased:
    """Delete all messages of a user, who must not be able to write any more. Raises what a send
    raises; then a part is done, and the next run continues."""
    done = Erased()
    after: ChatId | None = None
    while page := await store.chats_of_author(user_id, after=after, count_max=CHATS_PAGE):
        for chat_id in page:
            before = done.messages
            await _erase_chat(store, delete, user_id, chat_id, done)
            done.chats += done.messages > before
            progress(done)
        after = page[-1]
    return done


async def _erase_chat(
    store: MessageStore, delete: Deletes, user_id: UserId, chat_id: ChatId, done: Erased
) -> None:
    after = 0
    while found := await store.messages_by(user_id, chat_id, after=after, count_max=AT_ONCE):
        are_gone = await asyncio.gather(*(_erase(delete, user_id, chat_id, one) for one in found))
        done.messages += sum(are_gone)
        done.damaged += len(found) - sum(are_gone)
        after = found[-1]


async def _erase(delete: Deletes, user_id: UserId, chat_id: ChatId, sequence: int) -> bool:
    """Erase one message. True if it is a tombstone now; False if damage prevents that, which must
    not prevent the others."""
    key = uuid.uuid5(_NAMESPACE, f"{user_id}\n{chat_id}\n{sequence}")
    try:
        await delete(
            _NOTHING,
            chat_id=chat_id,
            sender_id=SYSTEM,
            client_message_id=ClientMessageId(str(key)),
            amends=Amendment(kind=EntryKind.DELETE, target=sequence),
        )
    except MessageDeleted:
        # It was deleted before, by an admin for example.
        return True
    except (TargetNotFound, StoreDamaged):
        return False
    return True
