"""One chat, as an application handles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from tidewire.client.errors import MessageIsDeleted, RefusedByServer
from tidewire.client.model import Message, MessageRow, change_of, message_of, reply_id
from tidewire.client.replica import Replica
from tidewire.client.sending import Draft
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import is_hidden
from tidewire.domain.errors import ErrorCode
from tidewire.domain.fold import AS_WRITTEN
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.limits import HISTORY_MESSAGES_MAX
from tidewire.domain.messages import MENTION_ALL, EntryKind, MessageBody
from tidewire.wire.rest_models import (
    AddedMember,
    AroundView,
    ChangedMember,
    ChatSummary,
    ChatView,
    Envelope,
    MemberView,
    MessageView,
    Page,
)
from tidewire.wire.rest_requests import AddMember, LeaveChat, RenameChat, RequestBody, TransferChat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidewire.client.client import Client
    from tidewire.client.model import Change
    from tidewire.client.outbox import OutboxEntry
    from tidewire.client.sent import Sent
    from tidewire.client.tables import Tables

HISTORY_DEFAULT: Final = 50
_UNKNOWN: Final = Replica(
    chat_id=ChatId(""),
    chat_type=ChatType.DIRECT,
    is_member=False,
    is_in_doubt=True,
    waiting_max=1,
)

T = TypeVar("T")
Answer = type[T]
"""The type of a request's answer. Inside of `Chat` the name `type` is a property."""


class Chat:
    """A chat of the user. Cheap to make, and never out of date: it reads the current state."""

    chat_id: ChatId

    def __init__(self, client: Client, chat_id: str) -> None:
        self.chat_id = ChatId(chat_id)
        self._client = client
        self._driver = client.driver

    # What is known of it.

    @property
    def type(self) -> ChatType | None:
        """The kind of chat; None while nothing is known of it."""
        replica = self._replica
        return None if replica is None else replica.chat_type

    @property
    def name(self) -> str | None:
        """The group's name, or the other's name in a direct chat, once it is known."""
        return self._known.name

    @property
    def is_member(self) -> bool:
        return self._known.is_member

    @property
    def is_hidden(self) -> bool:
        """This direct chat was hidden, here or on another device, and no message came since."""
        return is_hidden(self._known.hidden_through, self._known.head)

    @property
    def unread(self) -> int:
        """Unread messages of others that are not deleted, counted up to 100."""
        return self._known.unread

    @property
    def mentions_unread(self) -> int:
        """How many of the unread messages mention the user, or `@all`."""
        return self._known.mentions_unread

    @property
    def last_sequence(self) -> int:
        """The last entry that is held here: a message, or a change of one."""
        return self._known.cursor

    @property
    def last_read(self) -> int:
        """The last message that the user has read, on any device."""
        return self._known.read

    @property
    def is_synced(self) -> bool:
        """This device holds everything that the server is known to have."""
        return not self._known.is_behind

    # Sending.

    async def send(
        self,
        text: str,
        *,
        reply_to: Message | int | None = None,
        mentions: Iterable[str] = (),
        client_message_id: str | None = None,
        seen: int | None = None,
    ) -> Sent:
        """Send a text; returns when it is on the disk, however long it takes to reach the server.

        `reply_to` is the message that it answers, or its sequence. `mentions` are members, by user
        name or user id, and `@all` if the user may use it; a user who is no member when the message
        arrives is left out. Only a name that was not looked up before needs the server.

        If the `client_message_id` was used before, nothing is sent, and the result is that of the
        first message. Raises InvalidMessage, MessageTooLarge, OutboxFull and ClientClosed.

        >>> async def talk(me):
        ...     chat = await me.direct("bob")
        ...     sent = await chat.send("hi")
        ...     await sent.stored()
        ...     return TICK_MARKS[sent.tick]
        >>> run(as_alice(talk))
        '✓'
        """
        # In lower case, as it comes back from the server.
        key = ClientMessageId((client_message_id or self._client.new_id()).lower())
        body = MessageBody(
            content=text,
            reply_to=reply_to.sequence if isinstance(reply_to, Message) else reply_to,
            mentions=await self._ids_of(mentions),
        )
        draft = Draft(
            key=key,
            chat_id=self.chat_id,
            body=body,
            seen=self._known.seen if seen is None else seen,
        )
        return await self._driver.sending.send(draft)

    async def _ids_of(self, mentions: Iterable[str]) -> tuple[UserId, ...]:
        found = [one if one == MENTION_ALL else await self._client.id_of(one) for one in mentions]
        return tuple(UserId(one) for one in dict.fromkeys(found))

    async def reply(
        self, message: Message, text: str, *, mentions: Iterable[str] = (), part: int = 0
    ) -> Sent:
        """Reply to a message once: a second reply with the same `part`, in any run, is not sent."""
        key = reply_id(self._client.user_id or "", message, part)
        return await self.send(
            text,
            reply_to=message,
            mentions=mentions,
            client_message_id=key,
            seen=message.sequence,
        )

    async def edit(
        self,
        message: Message | Sent | int,
        text: str,
        *,
        base: int | None = None,
        client_message_id: str | None = None,
    ) -> Sent:
        """Replace the text of an own message, given as such or by its sequence. Returns when the
        edit is on the disk, as `send` does, and works without a connection.

        `base` is the sequence of the edit that was seen last (`message.now.edited_sequence`, 0 if
        there was none): if another one came first, this one fails with EditConflict. Without it the
        later edit wins. A message that has not left yet is changed in place.

        Raises MessageIsDeleted, InvalidMessage, MessageTooLarge, OutboxFull and ClientClosed.
        """
        _check_shown(message)
        return await self._driver.sending.edit(
            self.chat_id, _target(message), text, base=base, key=client_message_id
        )

    async def delete(
        self,
        message: Message | Sent | int,
        *,
        reason: str | None = None,
        client_message_id: str | None = None,
    ) -> Sent:
        """Delete a message for all: an own one, or, as an admin of the group, any. Its text is
        erased on the server and on the devices of all members. A deleted message stays deleted; one
        that has not left yet is dropped. Raises InvalidMessage, OutboxFull and ClientClosed."""
        return await self._driver.sending.delete(
            self.chat_id, _target(message), reason=reason, key=client_message_id
        )

    async def react(
        self, message: Message | Sent | int, emoji: str, *, client_message_id: str | None = None
    ) -> Sent:
        """Put an emoji on a message; a second time changes nothing. Raises as `edit` does."""
        _check_shown(message)
        return await self._driver.sending.react(
            self.chat_id, _target(message), emoji, is_on=True, key=client_message_id
        )

    async def unreact(
        self, message: Message | Sent | int, emoji: str, *, client_message_id: str | None = None
    ) -> Sent:
        """Take an own emoji back."""
        _check_shown(message)
        return await self._driver.sending.react(
            self.chat_id, _target(message), emoji, is_on=False, key=client_message_id
        )

    def pending(self) -> list[Sent]:
        """The entries for this chat in the outbox, failed ones included, oldest first: messages,
        and changes of messages (`amends`)."""
        entries: list[OutboxEntry] = self._driver.core.outbox.entries(self.chat_id)
        return [self._driver.sending.handle_of(entry) for entry in entries]

    def typing(self, is_typing: bool = True) -> None:
        """Tell the others that the user types. Without a connection nothing happens."""
        driver = self._driver
        driver.apply(driver.core.type(self.chat_id, is_typing=is_typing, now=driver.now()))

    async def read(self, through: Message | int | None = None) -> None:
        """Mark everything up to here as read; without an argument everything that is held."""
        driver, replica = self._driver, self._replica
        if replica is None:
            return
        sequence = through.sequence if isinstance(through, Message) else through
        sequence = replica.cursor if sequence is None else sequence
        driver.apply(driver.core.read(self.chat_id, sequence, driver.now()))
        above = replica.read
        replica.unread, replica.mentions_unread = await driver.look_up(
            lambda tables: tables.count_unread(self.chat_id, above)
        )
        driver.replica_changed(replica)

    # Reading.

    async def messages(
        self, *, before: int | None = None, after: int = 0, limit: int = HISTORY_DEFAULT
    ) -> list[Message]:
        """The newest messages of the store (before a sequence, if one is given), oldest first.
        With `after` alone: the oldest above it. The server is asked only for missing names."""
        is_newest = before is not None or after == 0
        return await self._held(before=before, after=after, limit=limit, newest_first=is_newest)

    async def _held(
        self, *, before: int | None = None, after: int, limit: int, newest_first: bool
    ) -> list[Message]:
        return await self._stored(
            lambda tables: tables.messages(
                self.chat_id, before=before, after=after, limit=limit, newest_first=newest_first
            )
        )

    async def _stored(self, look: Callable[[Tables], list[MessageRow]]) -> list[Message]:
        people = self._client.people
        kept = await self._driver.look_up(look)
        await people.know(kept)
        replica = self._replica
        return [message_of(one, replica, people.names, acts=self) for one in kept]

    async def message(self, sequence: int) -> Message | None:
        """The message of this sequence, if the store has it."""
        found = await self._stored(
            lambda tables: list(tables.at(self.chat_id, [sequence]).values())
        )
        return found[0] if found else None

    async def lost(self, limit: int = HISTORY_DEFAULT) -> list[Message]:
        """Messages that the server lost in a restore, and this device still has."""
        return await self._stored(lambda tables: tables.gone(self.chat_id, limit))

    async def history(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = HISTORY_DEFAULT,
    ) -> list[Message]:
        """Messages oldest first, from the store as far as it reaches and from the server beyond.

        Give at most one of `before`, `after` and `around`, a sequence; without one: the newest.
        """
        if (before, after, around).count(None) < 2:
            raise ValueError("give one of before, after and around")
        if around is not None:
            return await self._around(around, limit)
        replica = self._replica
        start = self._known.start
        if after is not None:
            if replica is not None and after >= start:
                return await self._held(after=after, limit=limit, newest_first=False)
            return await self._ask(limit, after_sequence=after, direction="forward")
        held = await self.messages(before=before, limit=limit) if replica is not None else []
        missing = limit - len(held)
        if missing <= 0 or (replica is not None and start == 0):
            return held
        bound = held[0].sequence if held else before
        if replica is not None and not held:
            bound = min(start + 1, before) if before is not None else start + 1
        older = await self._ask(missing, before_sequence=bound, direction="backward")
        return [*reversed(older), *held]

    async def changes(self, *, after: int, limit: int = HISTORY_DEFAULT) -> list[Change]:
        """Edits, deletions and reactions above a sequence, in order: from the store if it reaches
        that far down, else from the server."""
        people, own_id = self._client.people, self._client.user_id
        rows: Sequence[MessageRow | MessageView]
        if self._replica is not None and after >= self._known.start:
            rows = await self._driver.look_up(
                lambda tables: tables.changes(self.chat_id, after=after, limit=limit)
            )
            await people.know(row for row in rows if isinstance(row, MessageRow))
        else:
            rows = await self._views_after(after, limit)
        found = [change_of(row, people.names, own_id) for row in rows]
        return [change for change in found if change is not None]

    async def _views_after(self, after: int, limit: int) -> list[MessageView]:
        """Entries that change messages, from the server."""
        found: list[MessageView] = []
        cursor: str | None = None
        while len(found) < limit:
            params: dict[str, object] = {"after_sequence": after, "direction": "forward"}
            params = params if cursor is None else {"cursor": cursor}
            params["limit"] = HISTORY_MESSAGES_MAX
            page = await self._call(Page[MessageView], "GET", "/messages", params=params)
            self._client.people.take(
                {one.sender_id: one.sender.display_name for one in page.data if not one.is_damaged}
            )
            found += [view for view in page.data if view.kind not in (None, EntryKind.MESSAGE)]
            cursor = page.pagination.next_cursor
            if cursor is None:
                break
        return found[:limit]

    async def _ask(self, limit: int, *, direction: str, **bounds: int | None) -> list[Message]:
        params: dict[str, object] = {
            name: value for name, value in bounds.items() if value is not None
        }
        params["direction"] = direction
        messages: list[Message] = []
        cursor: str | None = None
        while len(messages) < limit:
            count = min(limit - len(messages), HISTORY_MESSAGES_MAX)
            chosen = params if cursor is None else {"cursor": cursor}
            page = await self._call(
                Page[MessageView], "GET", "/messages", params={**chosen, "limit": count}
            )
            messages += await self._shown(page.data)
            cursor = page.pagination.next_cursor
            if cursor is None:
                break
        return messages

    async def _around(self, sequence: int, limit: int) -> list[Message]:
        params = {"context": max(1, min(limit // 2, 50))}
        path = f"/messages/around/{sequence}"
        view = await self._call(Envelope[AroundView], "GET", path, params=params)
        return await self._shown(view.data.messages)

    async def _shown(self, views: Sequence[MessageView]) -> list[Message]:
        """The messages of a page of the server, in the state that follows from page and store.
        Entries that change messages are left out: their effect is in the state of the messages."""
        people, driver, replica = self._client.people, self._driver, self._replica
        views = [view for view in views if view.kind in (None, EntryKind.MESSAGE)]
        people.take({one.sender_id: one.sender.display_name for one in views if not one.is_damaged})
        told = {view.sequence: view.now or AS_WRITTEN for view in views}
        quoted = [view.reply_to for view in views if view.reply_to is not None]
        (nows, erased), held = await driver.look_up(
            lambda tables: (tables.join_page(self.chat_id, told), tables.at(self.chat_id, quoted))
        )
        if replica is not None and erased:
            driver.erased_elsewhere(replica, erased)
        names, own_id = people.names, self._client.user_id
        messages = [
            message_of(view, replica, names, own_id=own_id, acts=self, now=nows[view.sequence])
            for view in views
        ]
        quotes = {message.sequence: message for message in messages}
        for sequence, row in held.items():
            quotes[sequence] = message_of(row, replica, names, acts=self)
        return [
            message
            if message.reply_to is None
            else replace(message, quoted=quotes.get(message.reply_to))
            for message in messages
        ]

    # Members.

    async def members(self) -> Sequence[MemberView]:
        view = (await self._call(Envelope[ChatView], "GET")).data
        self._client.people.take_view(view)
        return view.members

    async def add(self, who: str) -> None:
        """Add a person to a group, by user name or user id. A member just stays in."""
        body = AddMember(user_id=await self._client.id_of(who))
        try:
            await self._call(Envelope[AddedMember], "POST", "/members", body, is_once=True)
        except RefusedByServer as refusal:
            if refusal.reason != ErrorCode.ALREADY_A_MEMBER:
                raise

    async def remove(self, who: str) -> None:
        """Take a person out of a group, by user name or user id (see `members`)."""
        await self._call(type(None), "DELETE", f"/members/{await self._client.id_of(who)}")

    async def leave(self, *, do_not_add_again: bool = False) -> None:
        """Leave this group; with `do_not_add_again` others cannot add this user to it again, until
        `allow_adding` takes that back."""
        body = LeaveChat(do_not_add_again=do_not_add_again)
        await self._call(type(None), "POST", "/leave", body)

    async def allow_adding(self) -> None:
        """Let others add this user again to a group that was left for good."""
        path = f"/users/me/refused-groups/{self.chat_id}"
        await self._client.rest.call(type(None), "DELETE", path)

    async def hand_over(self, user_id: str) -> None:
        """Make another member the owner of this group, by user id. The owner stays as an admin."""
        body = TransferChat(user_id=user_id)
        await self._call(Envelope[ChangedMember], "POST", "/transfer", body)

    async def close(self) -> None:
        """Close this group for good: all members are removed, the owner included."""
        await self._call(type(None), "POST", "/close")

    async def hide(self) -> None:
        """Hide this direct chat until there is another message in it, or it is opened again."""
        await self._call(type(None), "POST", "/hide")
        if self._replica is not None:
            self._replica.hidden_through = self._replica.head

    async def unhide(self) -> None:
        await self._call(type(None), "POST", "/unhide")
        if self._replica is not None:
            self._replica.hidden_through = None

    async def rename(self, name: str) -> None:
        await self._call(Envelope[ChatSummary], "PATCH", "", RenameChat(name=name))

    async def _call(
        self,
        answer: Answer[T],
        method: str,
        path: str = "",
        body: RequestBody | None = None,
        **more: Any,
    ) -> T:
        """Ask the server something about this chat."""
        return await self._client.rest.call(
            answer, method, f"/chats/{self.chat_id}{path}", body, **more
        )

    @property
    def _known(self) -> Replica:
        """The state of the chat; an empty one while nothing is known of it."""
        return self._replica or _UNKNOWN

    @property
    def _replica(self) -> Replica | None:
        return self._driver.core.replicas.get(self.chat_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chat) and other.chat_id == self.chat_id

    def __hash__(self) -> int:
        return hash(self.chat_id)

    def __repr__(self) -> str:
        return f"Chat({self.chat_id})"


def _target(message: Message | Sent | int) -> int | Sent:
    return message.sequence if isinstance(message, Message) else message


def _check_shown(message: Message | Sent | int) -> None:
    if isinstance(message, Message) and message.is_deleted:
        raise MessageIsDeleted(ErrorCode.MESSAGE_DELETED, "this message was deleted")
