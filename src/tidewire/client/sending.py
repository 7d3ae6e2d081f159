"""Puts what the application sends into the outbox on the disk; changes, retries and drops it there.

An edit or a deletion of a message that surely has not left changes the outbox in place. If the
message may have left, the change waits behind it, and gets its sequence once the server tells it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from tidewire.client.connection import CLOSED, READY
from tidewire.client.errors import InvalidMessage, not_sendable
from tidewire.client.outbox import FAILED, FLYING, QUEUED, OutboxEntry, name_target
from tidewire.client.sent import Sent
from tidewire.domain.errors import ErrorCode, Refused
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, MessageBody, check_send, new_send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidewire.client.driver import Driver
    from tidewire.client.outbox import Outbox
    from tidewire.client.writing import Written

NO_TEXT: Final = MessageBody(content="")
_ANY_SEQUENCE: Final = 1


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Something to send: a message, or a change of one (`amends`)."""

    key: ClientMessageId
    chat_id: ChatId
    body: MessageBody
    seen: int = 0
    amends: Amendment | None = None
    base: int | None = None
    target_key: ClientMessageId | None = None

    def check(self) -> None:
        """Raises InvalidMessage and MessageTooLarge."""
        amends = self.amends
        if amends is not None and self.target_key is not None:
            amends = replace(amends, target=_ANY_SEQUENCE)
        send = new_send(
            self.body,
            chat_id=self.chat_id,
            sender_id=UserId(""),
            client_message_id=self.key,
            message_id=MessageId(""),
            seen_sequence=self.seen,
        )
        try:
            check_send(replace(send, amends=amends, base=self.base))
        except Refused as refusal:
            raise not_sendable(refusal) from refusal


class Sending:
    """The outbox of one client, from the application's side."""

    def __init__(self, driver: Driver, new_id: Callable[[], str]) -> None:
        self._driver = driver
        self.new_id = new_id
        """A new `client_message_id`."""
        self.handles: WeakValueDictionary[str, Sent] = WeakValueDictionary()
        self._number = 0
        # Entries that are not on the disk yet, each with a future that is done when it is.
        self._entering: dict[ClientMessageId, tuple[OutboxEntry, asyncio.Future[None]]] = {}

    @property
    def _outbox(self) -> Outbox:
        return self._driver.core.outbox

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be sent or is on its way; failed entries do not count."""
        return not self._entering and not self._outbox.waiting_chats()

    def load(self, entries: Iterable[OutboxEntry]) -> None:
        """Number new entries after these, which earlier runs left."""
        self._number = max((entry.number for entry in entries), default=0)

    # In.

    async def send(self, draft: Draft) -> Sent:
        """Put something into the outbox; returns when it is on the disk. If the key was used
        before, nothing is sent, and the returned handle tells what became of the first one."""
        draft.check()
        driver, key = self._driver, draft.key
        driver.check_open()
        known = self._outbox.get(key) or self._entering.get(key, (None,))[0]
        if known is not None:
            return self.handle_of(known)
        self._outbox.check_room(1 + len(self._entering))
        self._number += 1
        now = driver.now()
        entry = OutboxEntry(
            client_message_id=key,
            chat_id=draft.chat_id,
            body=draft.body,
            seen_sequence=draft.seen,
            created_at_ms=now.wall_ms,
            number=self._number,
            # The entry may leave once it is written; marking it here saves a second write.
            left_at_ms=now.wall_ms if driver.status.state is READY else None,
            amends=draft.amends,
            base=draft.base,
            target_key=draft.target_key,
        )
        handle = Sent(driver, entry)
        self.handles[key] = handle
        entered = driver.writing.enter(entry)
        self._entering[key] = entry, entered
        # A caller that gives up waiting does not cancel the send.
        await asyncio.shield(entered)
        return handle

    async def edit(
        self,
        chat_id: ChatId,
        target: int | Sent,
        text: str,
        *,
        base: int | None = None,
        key: str | None = None,
    ) -> Sent:
        body = MessageBody(content=text)
        return await self._amend(chat_id, target, EntryKind.EDIT, key, body=body, base=base)

    async def delete(
        self,
        chat_id: ChatId,
        target: int | Sent,
        *,
        reason: str | None = None,
        key: str | None = None,
    ) -> Sent:
        return await self._amend(chat_id, target, EntryKind.DELETE, key, reason=reason)

    async def react(
        self,
        chat_id: ChatId,
        target: int | Sent,
        emoji: str,
        *,
        is_on: bool,
        key: str | None = None,
    ) -> Sent:
        return await self._amend(chat_id, target, EntryKind.REACT, key, emoji=emoji, is_on=is_on)

    async def _amend(
        self,
        chat_id: ChatId,
        target: int | Sent,
        kind: EntryKind,
        key: str | None,
        *,
        body: MessageBody = NO_TEXT,
        base: int | None = None,
        **what: Any,
    ) -> Sent:
        draft = Draft(
            key=ClientMessageId((key or self.new_id()).lower()),
            chat_id=chat_id,
            body=body,
            base=base,
            amends=Amendment(kind=kind, target=0, **what),
        )
        return await self._change(draft, target)

    async def _change(self, draft: Draft, target: int | Sent) -> Sent:
        """Change a message: one that the server has, or one that is on its way."""
        assert draft.amends is not None
        if isinstance(target, Sent) and target.sequence is None:
            return await self._amend_unsent(draft, target)
        sequence = target if isinstance(target, int) else target.sequence
        assert sequence is not None
        draft = replace(draft, amends=replace(draft.amends, target=sequence))
        draft.check()
        assert draft.amends is not None
        if draft.amends.kind is EntryKind.DELETE:
            await self._drop_edits(draft.chat_id, sequence)
        elif draft.amends.kind is EntryKind.EDIT:
            pending = self._outbox.last_edit(draft.chat_id, sequence)
            if pending is not None and pending.state is QUEUED:
                changed = await self._rewrite(pending.client_message_id, draft.body.content)
                if changed is not None:
                    return changed
            if pending is not None and pending.state is FAILED:
                await self.drop(pending.client_message_id)
            elif pending is not None:
                # The author saw the pending edit last, and its sequence is not known.
                draft = replace(draft, base=None)
        return await self.send(draft)

    async def _amend_unsent(self, draft: Draft, target: Sent) -> Sent:
        assert draft.amends is not None
        key = ClientMessageId(target.client_message_id)
        kind = draft.amends.kind
        draft = replace(draft, target_key=key, base=None)
        draft.check()
        entering = self._entering.get(key)
        if entering is not None:
            await asyncio.shield(entering[1])
        if target.sequence is not None:
            return await self._change(replace(draft, target_key=None), target.sequence)
        if key not in self._outbox:
            raise _not_there("this message was not sent, or was dropped")
        if kind is EntryKind.EDIT:
            changed = await self._rewrite(key, draft.body.content)
            if changed is not None:
                return changed
            pending = self._outbox.last_edit(draft.chat_id, key)
            if pending is not None:
                changed = await self._rewrite(pending.client_message_id, draft.body.content)
                if changed is not None:
                    return changed
        elif kind is EntryKind.DELETE:
            if await self.drop(key):
                return target
            await self._drop_edits(draft.chat_id, key)
        return await self.send(draft)

    async def _drop_edits(self, chat_id: ChatId, target: int | ClientMessageId) -> None:
        """Drop edits of a message that is deleted now, if they surely have not left."""
        while pending := self._outbox.last_edit(chat_id, target):
            if not await self.drop(pending.client_message_id):
                return

    async def _rewrite(self, key: ClientMessageId, content: str) -> Sent | None:
        """Change the text of an entry in place; None if it may have left."""
        entry = self._outbox.rewrite(key, content)
        if entry is None:
            return None
        # Kept from here on, so that it is told if the entry leaves meanwhile.
        handle = self.handle_of(entry)
        # Queued before all later jobs of the store, also before the mark that it leaves.
        await self._driver.store.do(lambda tables: tables.save_entries([entry]))
        return handle

    def handle_of(self, entry: OutboxEntry) -> Sent:
        handle = self.handles.get(entry.client_message_id)
        if handle is None:
            handle = Sent(self._driver, entry)
            if entry.state not in (QUEUED, FLYING):
                handle._refuse(entry.code, entry.reason)
            self.handles[entry.client_message_id] = handle
        return handle

    async def retry(self, client_message_id: str) -> bool:
        entries = self._outbox.retry(ClientMessageId(client_message_id), self._number + 1)
        if not entries:
            return False
        self._number += len(entries)
        self.handle_of(entries[0])._requeue()
        driver = self._driver
        saved = driver.store.do(lambda tables: tables.save_entries(entries))
        # At once, so that it leaves also if the caller gives up waiting: the mark without which it
        # does not leave is written after this.
        driver.apply(driver.core.resubmit(entries[0], driver.now()))
        await saved
        return True

    async def drop(self, client_message_id: str) -> bool:
        entries = self._outbox.drop(ClientMessageId(client_message_id))
        if not entries:
            return False
        for entry in entries:
            handle = self.handles.get(entry.client_message_id)
            if handle is not None:
                handle._refuse(ErrorCode.MESSAGE_DELETED, "it was dropped before it was sent")
                self._driver.waits.changed(entry.client_message_id)
        # With all other writes, in their order: its refusal may still wait to be written, and would
        # put the entry back.
        self._driver.writing.end(entries, is_kept=False)
        await self._driver.look_up(lambda _: None)
        self._driver.waits.changed()
        return True

    # What became of it.

    def written(self, written: Written) -> None:
        """New entries are on the disk: hand them to the core."""
        driver = self._driver
        for entry in written.sends:
            del self._entering[entry.client_message_id]
            row = written.known.get(entry.client_message_id)
            if row is not None:
                # The server stored it in an earlier run.
                self.settled(entry.client_message_id, row.sequence)
            elif driver.status.state is not CLOSED:
                driver.apply(driver.core.submit(entry, driver.now()))

    def settled(self, client_message_id: str, sequence: int) -> None:
        """The server has stored an entry."""
        for entry, _ in self._entering.values():
            if entry.target_key == client_message_id:
                name_target(entry, sequence)
        handle = self.handles.get(client_message_id)
        if handle is not None:
            handle._settle(sequence)
            self._driver.waits.changed(client_message_id)

    def refused(self, entry: OutboxEntry) -> None:
        """An entry has failed, or was dropped because it has no effect any more."""
        handle = self.handles.get(entry.client_message_id)
        if handle is not None and handle.sequence is None:
            handle._refuse(entry.code, entry.reason)
            self._driver.waits.changed(entry.client_message_id)


def _not_there(sentence: str) -> InvalidMessage:
    invalid = InvalidMessage(sentence)
    invalid.code = ErrorCode.TARGET_NOT_FOUND
    return invalid
