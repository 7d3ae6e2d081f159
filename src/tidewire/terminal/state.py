"""What the terminal shows: the chats, the open chat, the text that is being written.

This module knows no widgets. The screen asks it for rows and lists, and tells it what the user
does.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from tidewire.client import (
    MENTION_ALL,
    Chat,
    ChatUpdated,
    Client,
    ClientError,
    EntryKind,
    Event,
    Message,
    MessageChanged,
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
from tidewire.domain.chats import ChatType, Role
from tidewire.domain.delivery import Tick
from tidewire.terminal.lines import Listed, Mark, Row, activity, ordered
from tidewire.terminal.window import PAGE, WINDOW_MAX, Window
from tidewire.terminal.words import DELETED, Typists, mentioned, text_of

YOU: Final = "you"
NAMELESS: Final = "…"
BELL_MS_MIN: Final = 2_000
"""The least time between two rings: many messages at once, after a pause, ring once."""
SAY_TYPING_MS: Final = 3_000
"""How often the others are told that the user is still typing."""
UNREAD_CONTEXT: Final = 10
"""How many messages are loaded above the first unread one."""


class TerminalState:
    def __init__(
        self, client: Client, now_ms: Callable[[], int], window_max: int = WINDOW_MAX
    ) -> None:
        self.client = client
        self._window_max = window_max
        self.window = Window(window_max)
        self.chat: Chat | None = None
        """The one that is open."""
        self.new_after: int | None = None
        """The messages that were unread when the chat was opened begin after this."""
        self.found: int | None = None
        """The message that a search led to."""
        self._now_ms = now_ms
        self._typists = Typists()
        self._active: dict[str, int] = {}
        self._drafts: dict[str, str] = {}
        self._sent: dict[str, Sent] = {}
        self._told_typing_at_ms: int | None = None
        self._rang_at_ms = 0
        self._heard = 0
        """The last message of the open chat that came while it was open."""
        self.is_list_old = True
        """Names or activity are missing that only the server knows."""
        self.answering: Message | None = None
        """The message that the text being written replies to."""
        self.editing: Message | Sent | None = None
        """The message that is being edited."""
        self.is_edit_over = False
        """The message that was being edited was deleted: the screen has to remove its text."""
        self.chosen: int | None = None
        """The message of the open chat that keys act on."""
        self._members: dict[str, dict[str, str]] = {}

    async def load(self) -> None:
        """Load activity from the store, before the server is asked."""
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
                mentions=chat.mentions_unread,
                has_failed=chat.chat_id in failed,
                is_open=chat == self.chat,
                active_at_ms=self._active.get(chat.chat_id, 0),
            )
            for chat in self.client.known_chats()
        )

    def title(self, chat: Chat) -> str:
        """The name of a chat. It comes with the list of chats, a moment after the chat."""
        return chat.name or NAMELESS

    def failed(self, chat: Chat | None = None) -> list[Sent]:
        """Failed messages, which wait for a decision of the user."""
        pending = self.client.outbox() if chat is None else chat.pending()
        return [sent for sent in pending if sent.tick is Tick.FAILED]

    def waiting_count(self) -> int:
        return sum(sent.tick is Tick.SENDING for sent in self.client.outbox())

    def rows(self) -> list[Row]:
        """The open conversation: its loaded messages, then own messages on their way."""
        if self.chat is None:
            return []
        rows = [self._row(message) for message in self.window.messages]
        for sent in self.chat.pending():
            if sent.amends is not None:
                rows = [_changing(row, sent) for row in rows]
        if not self.window.has_newer:
            rows += map(self._pending_row, self._on_the_way(self.chat))
        return rows

    def _row(self, message: Message) -> Row:
        own_id = self.client.user_id or ""
        return Row(
            key=str(message.sequence),
            sequence=message.sequence,
            name=YOU if message.is_own else self._name_in(message.sender_id),
            is_own=message.is_own,
            text=text_of(message),
            at_ms=message.created_at_ms,
            tick=message.tick,
            is_found=message.sequence == self.found,
            is_gone=message.is_deleted or message.is_damaged,
            is_edited=message.is_edited,
            quote=self._quote(message.reply_to, message.quoted),
            reactions=tuple(
                Mark(one.emoji, str(one.count), one.is_own) for one in message.reactions
            ),
            mentions=self._mention_names(message.mentions),
            is_mention=not message.is_own
            and any(one in (own_id, MENTION_ALL) for one in message.mentions),
            is_chosen=message.sequence == self.chosen,
        )

    def _mention_names(self, mentions: Sequence[str]) -> tuple[str, ...]:
        names = (self.client.people.names.get(one) for one in mentions if one != MENTION_ALL)
        known = [name for name in names if name]
        return (*known, "all") if MENTION_ALL in mentions else tuple(known)

    def _quote(self, reply_to: int | None, quoted: Message | None) -> str | None:
        """The author and the current text of the message that a message answers."""
        if reply_to is None:
            return None
        if quoted is None:
            return f"an earlier message (#{reply_to})"
        return self.described(quoted)

    def described(self, message: Message) -> str:
        """A message in a line: its author and its text."""
        name = YOU if message.is_own else self._name_in(message.sender_id)
        return f"{name}: {text_of(message)}"

    def _pending_row(self, sent: Sent) -> Row:
        quoted = None if sent.reply_to is None else self.window.get(sent.reply_to)
        return replace(
            _pending_row(sent),
            quote=self._quote(sent.reply_to, quoted),
            mentions=self._mention_names(sent.mentions),
        )

    def _name_in(self, user_id: str) -> str:
        chat = self.chat
        if chat is not None and chat.type is ChatType.DIRECT and chat.name is not None:
            return chat.name
        return self.client.people.names.get(user_id) or user_id

    def _on_the_way(self, chat: Chat) -> list[Sent]:
        """Own messages that are not among the stored ones yet. One that the server has just stored
        leaves the outbox before its event comes: it stays on the screen meanwhile."""
        stored = {message.client_message_id for message in self.window.messages if message.is_own}
        pending = {
            sent.client_message_id: sent
            for sent in chat.pending()
            if sent.kind is EntryKind.MESSAGE
        }
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

    def enter(self, chat: Chat, *, at: Message | None = None) -> None:
        """Open a chat, without loading anything yet. Text that is written from now on is for it."""
        self.chat, self.found = chat, None if at is None else at.sequence
        self.forget_context()
        self.chosen = None
        self.new_after = chat.last_read if chat.unread else None
        self._told_typing_at_ms = None
        self.window, self._heard = Window(self._window_max), 0

    async def fill(self, at: Message | None = None) -> None:
        """Load the end of the open chat, or the messages around one that is in the store."""
        chat = self.chat
        if chat is None or at is None:
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
        """A page may lack messages that came while it was being read: then there are newer ones."""
        self.window.has_newer |= (self.window.last or 0) < self._heard

    async def older(self) -> bool:
        """Load a page above; False if there is none, or no server to ask."""
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
        """Some people in the open chat are known by their ids only."""
        return bool(self.client.people.unknown(self._strangers()))

    async def learn_names(self) -> bool:
        """Ask for the names of the authors; True if there is something new."""
        chat = self.chat
        if chat is None:
            return False
        return await self.client.people.learn(chat.chat_id, self._strangers())

    def _strangers(self) -> list[str]:
        chat = self.chat
        if chat is None or chat.type is ChatType.DIRECT:
            return []
        senders: list[str] = [one.sender_id for one in self.window.messages if not one.is_own]
        return senders + self._typists.typing_in(chat.chat_id)

    # What the user does.

    async def send(self, text: str) -> None:
        """Send a message. Raises ClientError, and Refused for a text that cannot be one."""
        chat = self.chat
        assert chat is not None
        # A user who writes may not have seen new messages: only those on the screen count.
        sent = await chat.send(
            text,
            seen=chat.last_read,
            reply_to=self.answering,
            mentions=mentioned(text, self._people_in(chat)),
        )
        self.forget_context()
        self._sent[sent.client_message_id] = sent
        self._active[chat.chat_id] = self._now_ms()
        self._told_typing_at_ms = None
        self.new_after = None
        if self.window.has_newer:
            await self.newest()

    def _people_in(self, chat: Chat) -> dict[str, str]:
        """The known users whom a text in this group can mention, by name."""
        if chat.type is not ChatType.GROUP:
            return {}
        names = self.client.people.names
        known = {names.get(one.sender_id) or "": one.sender_id for one in self.window.messages}
        people = {**known, **self._members.get(chat.chat_id, {})}
        return {name: user_id for name, user_id in people.items() if name}

    async def learn_members(self) -> None:
        """Ask who is in the open group, so that a text can mention them."""
        chat = self.chat
        if chat is None or chat.type is not ChatType.GROUP:
            return
        try:
            members = await chat.members()
        except ClientError:
            return
        found = {one.display_name: str(one.user_id) for one in members}
        own = next((one for one in members if one.user_id == self.client.user_id), None)
        if own is not None and own.role is not Role.MEMBER:
            found["all"] = MENTION_ALL
        self._members[chat.chat_id] = found

    # Changing messages.

    def choose(self, step: int, seen: int = 0) -> int | None:
        """Choose the message `step` further down; at first the one in `seen`, or the last one."""
        shown = [one.sequence for one in self.window.messages]
        if not shown:
            self.chosen = None
        elif self.chosen not in shown:
            self.chosen = seen if seen in shown else shown[-1]
        else:
            at = min(max(shown.index(self.chosen) + step, 0), len(shown) - 1)
            self.chosen = shown[at]
        return self.chosen

    @property
    def chosen_message(self) -> Message | None:
        return None if self.chosen is None else self.window.get(self.chosen)

    def answer(self, message: Message) -> None:
        """Text that is written from now on replies to this message."""
        self.forget_context()
        self.answering = message

    def edit(self, message: Message | Sent) -> str:
        """Text written from now on replaces this message; returns the text to begin with."""
        self.forget_context()
        self.editing = message
        return message.text

    def last_own(self) -> Message | Sent | None:
        """The last own message that can be edited, also one that is on its way."""
        if self.chat is None or self.window.has_newer:
            return None
        pending = self._on_the_way(self.chat)
        if pending:
            return pending[-1]
        own = [one for one in self.window.messages if one.is_own and not one.is_deleted]
        return own[-1] if own else None

    def forget_context(self) -> bool:
        """End a reply or an edit: text is a new message again; False if there was neither."""
        had_one = self.answering is not None or self.editing is not None
        self.answering = self.editing = None
        return had_one

    async def finish_edit(self, text: str) -> None:
        """Edit the message. Raises as `send` does."""
        chat, editing = self.chat, self.editing
        assert chat is not None
        assert editing is not None
        if text != editing.text:
            if isinstance(editing, Sent):
                await editing.edit(text)
            else:
                # Another device may have edited it meanwhile: that edit must not be lost unseen.
                await chat.edit(editing, text, base=editing.now.edited_sequence)
        self.forget_context()

    async def toggle_reaction(self, message: Message, emoji: str) -> None:
        chat = self.chat
        assert chat is not None
        is_on = any(one.emoji == emoji and one.is_own for one in message.reactions)
        await (chat.unreact(message, emoji) if is_on else chat.react(message, emoji))

    def context_words(self) -> str:
        """Says whether the text being written edits a message or replies to one."""
        if self.editing is not None:
            return "✎ editing your message (Esc: leave it as it is)"
        if self.answering is not None:
            return f"↪ {self.described(self.answering)}"
        return ""

    def is_unseen(self, sequence: int) -> bool:
        """This message of the open chat is not marked as read yet."""
        return (
            self.chat is not None and self.chat.type is not None and sequence > self.chat.last_read
        )

    async def saw(self, sequence: int) -> None:
        """Everything up to here was on the screen: mark it as read."""
        if self.chat is not None and self.is_unseen(sequence):
            await self.chat.read(sequence)

    def typed(self, text: str) -> None:
        """The text that is being written has changed: tell the others if needed."""
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
                # A device that was offline may have missed changes.
                self.is_list_old |= event.status.state is ConnectionState.READY
            case MessageChanged():
                self._changed(event)
            case MessageRefused():
                pass

    def _changed(self, event: MessageChanged) -> None:
        if self.chat is None or event.chat_id != self.chat.chat_id:
            return
        own_id = self.client.user_id or ""
        # The window remembers the change for a while: not the event, which has the old text.
        change = event.change
        self.window.changed(event.target, lambda one: change.applied_to(one, own_id))
        about = self.editing or self.answering
        if about is None or about.sequence != event.target:
            return
        if event.change.kind is EntryKind.DELETE:
            # Neither its text nor a quote of it stays on the screen.
            self.is_edit_over = self.editing is not None
            self.forget_context()
        elif self.answering is not None:
            self.answering = event.change.applied_to(self.answering, own_id)

    def wants_bell(self, event: Event, *, is_looking: bool) -> bool:
        """Whether to ring: another user's message came, and it is not on the screen right now."""
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


def _changing(row: Row, sent: Sent) -> Row:
    """A row with a change applied that is on its way."""
    amends = sent.amends
    if amends is None or not row.sequence or amends.target != row.sequence:
        return row
    if sent.tick is Tick.FAILED:
        why = sent.reason or "left days ago, and it is unknown whether it arrived"
        return replace(row, note=f"edit not sent: {why} (^r: retry or drop)")
    tick = Tick.SENDING if row.is_own else row.tick
    match amends.kind:
        case EntryKind.EDIT:
            return replace(row, text=sent.text, is_edited=True, tick=tick)
        case EntryKind.DELETE:
            return replace(
                row, text=DELETED, is_gone=True, is_edited=False, reactions=(), tick=tick
            )
        case _:
            emoji = amends.emoji or ""
            counts = {one.emoji: f"{one.count} " for one in row.reactions if one.emoji == emoji}
            mark = Mark(emoji, counts.get(emoji, "") + "○", is_own=amends.is_on)
            others = tuple(one for one in row.reactions if one.emoji != emoji)
            return replace(row, reactions=(*others, mark))


def _pending_row(sent: Sent) -> Row:
    note = None
    if sent.tick is Tick.FAILED:
        why = sent.reason or "left days ago, and it is unknown whether it arrived"
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
