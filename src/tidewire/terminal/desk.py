"""What lies on the user's desk: the chats, the one that is open, what is being written.

No widget is known here. The screen asks for rows and lists, and tells what the user does.
"""

from collections.abc import Callable
from typing import Final

from tidewire.client import (
    Chat,
    ChatUpdated,
    Client,
    ClientError,
    Event,
    Message,
    MessageReceived,
    MessageRefused,
    MessageStored,
    Sent,
    ServerUnreachable,
    StatusMoved,
    TicksMoved,
    Typing,
)
from tidewire.client.effects import ConnectionState
from tidewire.client.places import Place
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import Tick
from tidewire.terminal.lines import Row
from tidewire.terminal.listing import Listed, activity, ordered
from tidewire.terminal.people import People
from tidewire.terminal.window import PAGE, WINDOW_MAX, Window
from tidewire.terminal.words import DAMAGED, Typists

YOU: Final = "you"
NAMELESS: Final = "…"
BELL_MS_MIN: Final = 2_000
"""Many messages at once, after a pause, ring once."""
SAY_TYPING_MS: Final = 3_000
"""How often it is told that one is still typing."""
KEEP_TYPING_MS: Final = 6_000
TYPISTS_MAX: Final = 1_000
UNREAD_CONTEXT: Final = 10
"""How many messages are loaded above the first unread one."""


class Desk:
    def __init__(
        self, client: Client, now_ms: Callable[[], int], window_max: int = WINDOW_MAX
    ) -> None:
        self.client = client
        self.people = People(client)
        self._window_max = window_max
        self.window = Window(window_max)
        self.chat: Chat | None = None
        """The one that is open."""
        self.new_after: int | None = None
        """What was unread when it was opened begins after this."""
        self.found: int | None = None
        """The message that a search led to."""
        self._now_ms = now_ms
        self._typists = Typists(keep_ms=KEEP_TYPING_MS, typists_max=TYPISTS_MAX)
        self._active: dict[str, int] = {}
        self._drafts: dict[str, str] = {}
        self._sent: dict[str, Sent] = {}
        self._told_typing_at_ms: int | None = None
        self._rang_at_ms = 0
        self._heard = 0
        """The last message of the open chat that came while it was open."""
        self.is_list_old = True
        """Names or activity are missing that only the server knows."""

    async def load(self) -> None:
        """What the store knows, before anybody is asked."""
        await self.people.load()
        for chat in self.client.known_chats():
            for last in await chat.messages(limit=1):
                self._active[chat.chat_id] = last.created_at_ms

    async def refresh_list(self) -> bool:
        """Ask the server for names and order; False if it did not answer."""
        try:
            chats = await self.client.chats()
        except ClientError:
            return False
        self.is_list_old = False
        self._active = activity([chat.chat_id for chat in chats], self._active)
        return True

    # What there is to see.

    def listed(self) -> list[Listed]:
        failed = {sent.chat_id for sent in self.failed()}
        return ordered(
            Listed(
                chat_id=chat.chat_id,
                name=self.title(chat),
                is_group=chat.type is ChatType.GROUP,
                unread=chat.unread,
                has_failed=chat.chat_id in failed,
                is_open=chat == self.chat,
                active_at_ms=self._active.get(chat.chat_id, 0),
            )
            for chat in self.client.known_chats()
        )

    def title(self, chat: Chat) -> str:
        """What a chat is called. Its name comes with the list of chats, a moment after the chat."""
        return chat.name or NAMELESS

    def failed(self, chat: Chat | None = None) -> list[Sent]:
        """Messages that wait for a decision of their user."""
        pending = self.client.outbox() if chat is None else chat.pending()
        return [sent for sent in pending if sent.tick is Tick.FAILED]

    def waiting_count(self) -> int:
        return sum(sent.tick is Tick.SENDING for sent in self.client.outbox())

    def rows(self) -> list[Row]:
        """The open conversation: what is loaded of it, then what is on its way."""
        if self.chat is None:
            return []
        rows = [self._row(message) for message in self.window.messages]
        if not self.window.has_newer:
            rows += map(_pending_row, self._on_the_way(self.chat))
        return rows

    def _row(self, message: Message) -> Row:
        return Row(
            key=str(message.sequence),
            sequence=message.sequence,
            name=YOU if message.is_own else self._name_in(message.sender_id),
            is_own=message.is_own,
            text=DAMAGED if message.is_damaged else message.text,
            at_ms=message.created_at_ms,
            tick=message.tick,
            is_found=message.sequence == self.found,
        )

    def _name_in(self, user_id: str) -> str:
        chat = self.chat
        if chat is not None and chat.type is ChatType.DIRECT and chat.name is not None:
            return chat.name
        return self.people.name(user_id)

    def _on_the_way(self, chat: Chat) -> list[Sent]:
        """Own messages that are not among the stored ones yet. One that the server has just stored
        is out of the outbox already, and its event is still to come: it is shown all along."""
        stored = {message.client_message_id for message in self.window.messages if message.is_own}
        pending = {sent.client_message_id: sent for sent in chat.pending()}
        held = {
            key: sent
            for key, sent in self._sent.items()
            if sent.chat_id == chat.chat_id and (key in pending or sent.sequence is not None)
        }
        return [sent for key, sent in {**held, **pending}.items() if key not in stored]

    def typing_names(self) -> list[str]:
        if self.chat is None:
            return []
        return [self._name_in(user_id) for user_id in self._typists.typing_in(self.chat.chat_id)]

    def forget_typists(self) -> bool:
        return self._typists.forget(self._now_ms())

    # Going about in the history.

    async def open(self, chat: Chat, *, at: Message | None = None) -> None:
        """Open a chat at its end, or at a message that is in the store."""
        place = self._place(chat)
        self.chat, self.found = chat, None if at is None else at.sequence
        self.new_after = None if place is None or not chat.unread else place.read
        self._told_typing_at_ms = None
        self.window, self._heard = Window(self._window_max), 0
        if at is None:
            await self.newest()
            return
        before = await chat.messages(before=at.sequence + 1, limit=PAGE)
        after = await chat.messages(after=at.sequence, limit=PAGE)
        if chat == self.chat:
            self.window.replace([*before, *after], has_older=True, has_newer=len(after) == PAGE)
            self._check_end()

    def close(self) -> None:
        """No chat is open."""
        self.chat, self.found, self.new_after = None, None, None
        self.window, self._heard = Window(self._window_max), 0

    async def newest(self) -> None:
        """Load the end of the open chat, from the store."""
        chat = self.chat
        if chat is None:
            return
        limit = max(PAGE, chat.unread + UNREAD_CONTEXT)
        messages = await chat.messages(limit=limit)
        if chat == self.chat:
            self.window.replace(messages, has_older=True)
            self._check_end()

    def _check_end(self) -> None:
        """What came while a page was being read may be missing from it: then there is more."""
        self.window.has_newer |= (self.window.last or 0) < self._heard

    async def older(self) -> bool:
        """Load a page above; False if there is none, or nobody to ask."""
        chat, window = self.chat, self.window
        if chat is None or not window.has_older:
            return False
        try:
            page = await chat.history(before=window.first, limit=PAGE)
            has_older = len(page) == PAGE
        except ServerUnreachable:
            page = await chat.messages(before=window.first, limit=PAGE)
            has_older = True
        if window is not self.window:
            return False
        window.prepend(page, has_older=has_older)
        return bool(page) or not has_older

    async def newer(self) -> bool:
        """Load a page below, if the end is not loaded."""
        chat, window = self.chat, self.window
        if chat is None or not window.has_newer or window.last is None:
            return False
        try:
            page = await chat.history(after=window.last, limit=PAGE)
        except ServerUnreachable:
            return False
        if window is not self.window:
            return False
        window.append(page, has_newer=len(page) == PAGE)
        self._check_end()
        return True

    def has_nameless(self) -> bool:
        """Somebody in the open chat is only known by his id."""
        return bool(self.people.unknown(self._strangers()))

    async def learn_names(self) -> bool:
        """Ask for the names of those who wrote; True if there is something new."""
        chat = self.chat
        return chat is not None and await self.people.learn(chat, self._strangers())

    def _strangers(self) -> list[str]:
        chat = self.chat
        if chat is None or chat.type is ChatType.DIRECT:
            return []
        senders: list[str] = [one.sender_id for one in self.window.messages if not one.is_own]
        return senders + self._typists.typing_in(chat.chat_id)

    # What the user does.

    async def send(self, text: str) -> None:
        """Raises ClientError, and Refused for what can be no message."""
        chat = self.chat
        assert chat is not None
        place = self._place(chat)
        # Writing is no proof that what came meanwhile was seen: only what was on the screen counts.
        sent = await chat.send(text, seen=0 if place is None else place.read)
        self._sent[sent.client_message_id] = sent
        self._active[chat.chat_id] = self._now_ms()
        self._told_typing_at_ms = None
        self.new_after = None
        if self.window.has_newer:
            await self.newest()

    def is_unseen(self, sequence: int) -> bool:
        """It is not known yet that the user has seen this message of the open chat."""
        place = None if self.chat is None else self._place(self.chat)
        return place is not None and sequence > place.read

    async def saw(self, sequence: int) -> None:
        """Everything up to here was on the screen."""
        if self.chat is not None and self.is_unseen(sequence):
            await self.chat.read(sequence)

    def typed(self, text: str) -> None:
        """The text of the line that is being written has changed."""
        chat = self.chat
        if chat is None:
            return
        now_ms, told = self._now_ms(), self._told_typing_at_ms
        if text and (told is None or now_ms - told >= SAY_TYPING_MS):
            self._told_typing_at_ms = now_ms
            chat.typing()
        elif not text and told is not None:
            self._told_typing_at_ms = None
            chat.typing(False)

    def keep_draft(self, text: str) -> None:
        if self.chat is not None:
            self._drafts.pop(self.chat.chat_id, None)
            if text:
                self._drafts[self.chat.chat_id] = text

    def draft(self) -> str:
        return "" if self.chat is None else self._drafts.get(self.chat.chat_id, "")

    async def drop(self, sent: Sent) -> bool:
        self._sent.pop(sent.client_message_id, None)
        return await sent.drop()

    # What happens.

    def happened(self, event: Event) -> None:
        match event:
            case MessageReceived() | MessageStored():
                self._arrived(event.message)
            case TicksMoved():
                chat = self.client.chat(event.chat_id)
                self.is_list_old |= chat.is_member and chat.name is None
            case Typing():
                self._typists.typed(event.chat_id, event.user_id, event.is_typing, self._now_ms())
            case ChatUpdated():
                self.is_list_old = True
                self._active.setdefault(event.chat_id, self._now_ms())
            case StatusMoved():
                # Whoever was offline may have missed who changed what.
                self.is_list_old |= event.status.state is ConnectionState.READY
            case MessageRefused():
                pass

    def wants_bell(self, event: Event, *, is_looking: bool) -> bool:
        """A message of another person came that is not on the screen right now."""
        if not isinstance(event, MessageReceived) or event.message.is_own:
            return False
        is_shown = self.chat is not None and event.message.chat_id == self.chat.chat_id
        now_ms = self._now_ms()
        if (is_looking and is_shown) or now_ms - self._rang_at_ms < BELL_MS_MIN:
            return False
        self._rang_at_ms = now_ms
        return True

    def _arrived(self, message: Message) -> None:
        self._sent.pop(message.client_message_id, None)
        self._typists.typed(message.chat_id, message.sender_id, False, self._now_ms())
        known = self._active.get(message.chat_id, 0)
        self._active[message.chat_id] = max(known, message.created_at_ms)
        if self.chat is not None and message.chat_id == self.chat.chat_id:
            self._heard = max(self._heard, message.sequence)
            self.window.arrived(message)

    def _place(self, chat: Chat) -> Place | None:
        return self.client.driver.core.places.get(chat.chat_id)


def _pending_row(sent: Sent) -> Row:
    note = None
    if sent.tick is Tick.FAILED:
        why = sent.reason or "left days ago, and nobody knows whether it arrived"
        note = f"not sent: {why} (^r: retry or drop)"
    return Row(
        key=sent.client_message_id,
        name=YOU,
        is_own=True,
        text=sent.text,
        at_ms=None,
        tick=sent.tick,
        note=note,
    )
