"""One chat, as an application handles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidewire.client.errors import RefusedByServer, not_sendable
from tidewire.client.model import Message, message_of, message_of_view, reply_id
from tidewire.client.sent import Sent
from tidewire.domain.delivery import is_hidden
from tidewire.domain.errors import ErrorCode, Refused
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import CONTENT_TYPE_DEFAULT, HISTORY_MESSAGES_MAX, UNREAD_MAX
from tidewire.domain.messages import SendMessage, check_send
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
from tidewire.wire.rest_requests import AddMember, LeaveChat, RenameChat, TransferChat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidewire.client.client import Client
    from tidewire.client.model import Kept
    from tidewire.client.outbox import Entry
    from tidewire.client.places import Place
    from tidewire.client.tables import Tables
    from tidewire.domain.chats import ChatType

HISTORY_DEFAULT: Final = 50


class Chat:
    """A chat of the user's. Cheap to make, and never out of date: it looks at what is known now."""

    def __init__(self, client: Client, chat_id: str) -> None:
        self.chat_id = ChatId(chat_id)
        self._client = client
        self._driver = client.driver

    # What is known of it.

    @property
    def type(self) -> ChatType | None:
        """None: nothing is known of this chat yet."""
        place = self._place
        return None if place is None else place.chat_type

    @property
    def name(self) -> str | None:
        """The group's name, or the other's name in a direct chat, once it is known."""
        place = self._place
        return None if place is None else place.name

    @property
    def is_member(self) -> bool:
        place = self._place
        return place is not None and place.is_member

    @property
    def is_hidden(self) -> bool:
        """This direct chat was hidden, here or on another device, and no message came since."""
        place = self._place
        return place is not None and is_hidden(place.hidden_through, place.head)

    @property
    def unread(self) -> int:
        """Unread messages of others, counted up to 100."""
        place = self._place
        return 0 if place is None else place.unread

    @property
    def last_sequence(self) -> int:
        """The last message that is held here."""
        place = self._place
        return 0 if place is None else place.cursor

    @property
    def is_synced(self) -> bool:
        """Everything that the server is known to have is held."""
        place = self._place
        return place is not None and not place.is_behind

    # Sending.

    async def send(
        self, text: str, *, client_message_id: str | None = None, seen: int | None = None
    ) -> Sent:
        """Send a text; returns when it is on the disk, however long it takes to reach the server.

        With a `client_message_id` that was used before nothing is sent: what became of that message
        is returned. Raises InvalidMessage, MessageTooLarge, OutboxFull and ClientClosed.

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
        if seen is None:
            place = self._place
            seen = 0 if place is None else place.seen
        try:
            check_send(
                SendMessage(
                    chat_id=self.chat_id,
                    sender_id=UserId(""),
                    client_message_id=key,
                    content=text,
                    message_id=MessageId(""),
                    seen_sequence=seen,
                )
            )
        except Refused as refusal:
            raise not_sendable(refusal) from refusal
        handle = Sent(self._driver, key, self.chat_id, text)
        return await self._driver.send(handle, content_type=CONTENT_TYPE_DEFAULT, seen=seen)

    async def reply(self, message: Message, text: str, *, part: int = 0) -> Sent:
        """Answer a message, once: the same answer again, in this life or another, sends nothing."""
        key = reply_id(self._client.user_id or "", message, part)
        return await self.send(text, client_message_id=key, seen=message.sequence)

    def pending(self) -> list[Sent]:
        """What waits in the outbox for this chat, failed ones included, oldest first."""
        entries: list[Entry] = self._driver.core.outbox.entries(self.chat_id)
        return [self._driver.handle_of(entry) for entry in entries]

    def typing(self, is_typing: bool = True) -> None:
        """Let the others know. Without a connection nothing happens."""
        driver = self._driver
        driver.apply(driver.core.type(self.chat_id, is_typing=is_typing, now=driver.now()))

    async def read(self, through: Message | int | None = None) -> None:
        """The user has seen everything up to here; without an argument: all that is held."""
        driver, place = self._driver, self._place
        if place is None:
            return
        sequence = through.sequence if isinstance(through, Message) else through
        sequence = place.cursor if sequence is None else sequence
        driver.apply(driver.core.read(self.chat_id, sequence, driver.now()))
        above = place.read
        place.unread = await driver.look_up(
            lambda tables: tables.count_unread(self.chat_id, above, UNREAD_MAX)
        )
        driver.place_changed(place)

    # Reading.

    async def messages(
        self, *, before: int | None = None, after: int = 0, limit: int = HISTORY_DEFAULT
    ) -> list[Message]:
        """The newest messages of the store (before a sequence, if one is given), oldest first.
        With `after` alone: the oldest above it. Nobody is asked, but for names not known yet."""
        newest_first = before is not None or after == 0
        return await self._stored(
            lambda tables: tables.messages(
                self.chat_id, before=before, after=after, limit=limit, newest_first=newest_first
            )
        )

    async def _stored(self, look: Callable[[Tables], list[Kept]]) -> list[Message]:
        people = self._client.people
        kept = await self._driver.look_up(look)
        await people.know(kept)
        place = self._place
        return [message_of(one, place, people.names) for one in kept]

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

        `before` a sequence (or the end), `after` one, or `around` one: one of the three.
        """
        if (before, after, around).count(None) < 2:
            raise ValueError("give one of before, after and around")
        if around is not None:
            return await self._around(around, limit)
        place = self._place
        start = 0 if place is None else place.start
        if after is not None:
            if after >= start and place is not None:
                return (
                    await self.messages(after=after, limit=limit)
                    if after
                    else (await self._oldest(limit))
                )
            return await self._ask(limit, after_sequence=after, direction="forward")
        held = await self.messages(before=before, limit=limit) if place is not None else []
        missing = limit - len(held)
        if missing <= 0 or (place is not None and start == 0):
            return held
        bound = held[0].sequence if held else before
        if place is not None and not held:
            bound = min(start + 1, before) if before is not None else start + 1
        older = await self._ask(missing, before_sequence=bound, direction="backward")
        return [*reversed(older), *held]

    async def _oldest(self, limit: int) -> list[Message]:
        return await self._stored(
            lambda tables: tables.messages(
                self.chat_id, before=None, after=0, limit=limit, newest_first=False
            )
        )

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
            page = await self._client.rest.call(
                Page[MessageView],
                "GET",
                f"/chats/{self.chat_id}/messages",
                params={**chosen, "limit": count},
            )
            messages += [self._shown(view) for view in page.data]
            cursor = page.pagination.next_cursor
            if cursor is None:
                break
        return messages

    async def _around(self, sequence: int, limit: int) -> list[Message]:
        view = await self._client.rest.call(
            Envelope[AroundView],
            "GET",
            f"/chats/{self.chat_id}/messages/around/{sequence}",
            params={"context": max(1, min(limit // 2, 50))},
        )
        return [self._shown(one) for one in view.data.messages]

    def _shown(self, view: MessageView) -> Message:
        people = self._client.people
        if not view.is_damaged:
            people.take({view.sender_id: view.sender.display_name})
        return message_of_view(view, self._place, self._client.user_id, people.names)

    # Members.

    async def members(self) -> Sequence[MemberView]:
        return (await self._view()).members

    async def add(self, who: str) -> None:
        """Add somebody to a group, by user name or user id. Who is in already stays in."""
        user_id = await self._client.id_of(who)
        try:
            await self._client.rest.call(
                Envelope[AddedMember],
                "POST",
                f"/chats/{self.chat_id}/members",
                AddMember(user_id=user_id),
                is_once=True,
            )
        except RefusedByServer as refusal:
            if refusal.reason != ErrorCode.ALREADY_A_MEMBER:
                raise

    async def remove(self, who: str) -> None:
        """Take somebody out of a group, by user name or user id (see `members`)."""
        user_id = await self._client.id_of(who)
        await self._client.rest.call(
            type(None), "DELETE", f"/chats/{self.chat_id}/members/{user_id}"
        )

    async def leave(self, *, do_not_add_again: bool = False) -> None:
        """Leave this group; with `do_not_add_again` nobody can add this user to it again, until
        `allow_adding` takes that back."""
        await self._client.rest.call(
            type(None),
            "POST",
            f"/chats/{self.chat_id}/leave",
            LeaveChat(do_not_add_again=do_not_add_again),
        )

    async def allow_adding(self) -> None:
        """Let others add this user again to a group that was left for good."""
        await self._client.rest.call(
            type(None), "DELETE", f"/users/me/refused-groups/{self.chat_id}"
        )

    async def hand_over(self, user_id: str) -> None:
        """Make another member the owner of this group, by user id. The owner stays as an admin."""
        await self._client.rest.call(
            Envelope[ChangedMember],
            "POST",
            f"/chats/{self.chat_id}/transfer",
            TransferChat(user_id=user_id),
        )

    async def close(self) -> None:
        """Close this group for good: all members are removed, the owner included."""
        await self._client.rest.call(type(None), "POST", f"/chats/{self.chat_id}/close")

    async def hide(self) -> None:
        """Hide this direct chat until there is another message in it, or it is opened again."""
        await self._client.rest.call(type(None), "POST", f"/chats/{self.chat_id}/hide")
        if self._place is not None:
            self._place.hidden_through = self._place.head

    async def unhide(self) -> None:
        await self._client.rest.call(type(None), "POST", f"/chats/{self.chat_id}/unhide")
        if self._place is not None:
            self._place.hidden_through = None

    async def rename(self, name: str) -> None:
        await self._client.rest.call(
            Envelope[ChatSummary], "PATCH", f"/chats/{self.chat_id}", RenameChat(name=name)
        )

    async def _view(self) -> ChatView:
        answer = await self._client.rest.call(Envelope[ChatView], "GET", f"/chats/{self.chat_id}")
        self._client.people.take_view(answer.data)
        return answer.data

    @property
    def _place(self) -> Place | None:
        return self._driver.core.places.get(self.chat_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chat) and other.chat_id == self.chat_id

    def __hash__(self) -> int:
        return hash(self.chat_id)

    def __repr__(self) -> str:
        return f"Chat({self.chat_id})"
