"""`tidewire chat`: the screen, and what its keys do."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static, TextArea

from tidewire.client import Chat, Client, ClientClosed, EntryKind, Message, MessageRefused, Sent
from tidewire.domain.errors import TidewireError
from tidewire.terminal.dialogs import Confirm, Failed, Help, Members, Question, React, Search
from tidewire.terminal.lines import NEW_KEY, conversation, count_below
from tidewire.terminal.state import TerminalState
from tidewire.terminal.text import cut, one_line
from tidewire.terminal.widgets import ChatList, Composer, MessageView, start
from tidewire.terminal.window import WINDOW_MAX
from tidewire.terminal.words import state_words, typing_words

PAINT_S: Final = 0.03
"""Changes within this time are painted together."""
EMPTY: Final = "No chat yet: ^n writes to a person, ^g makes a group."
CLOSED: Final = "No chat is open: ^↓ opens the next one."
OLDER: Final = "↑ older messages"
BEGINNING: Final = "This is the beginning of the chat."
TYPED_S_MAX: Final = 5.0
"""How long a key waits for the keys that were pressed before it."""
NEAR: Final = 3
"""How many lines from an end the next page is loaded."""


class ChatScreen(Screen[None]):
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (70, "-wide")]  # noqa: RUF012 - Textual's own type
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new_direct", "Write to", priority=True),
        Binding("ctrl+g", "new_group", "Group", priority=True),
        Binding("ctrl+f", "search", "Find", priority=True),
        Binding("ctrl+l", "members", "People", priority=True),
        Binding("ctrl+r", "failed", "Failed", priority=True),
        Binding("escape", "newest", "Newest", priority=True),
        Binding("f1", "help", "Help", priority=True),
        Binding("ctrl+q", "quit", "Quit", priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("ctrl+up", "step(-1)", show=False, priority=True),
        Binding("ctrl+down", "step(1)", show=False, priority=True),
    ]

    def __init__(
        self, state: TerminalState, *, username: str, zone: tzinfo | None, has_bell: bool = True
    ) -> None:
        super().__init__()
        self.state = state
        self._has_bell = has_bell
        self._username = username
        self._zone = zone
        self._is_paint_due = False
        self._top_key: str | None = None
        self._is_loading = False
        self._is_learning = False
        self._is_first = True
        """No chat was opened so far."""
        self._kept_text = ""
        """The text that was being written when an edit began."""
        self.head_line = Static("", id="head", markup=False)
        self.chat_list = ChatList(id="chats", markup=False, compact=True)
        self.message_view = MessageView(id="messages")
        self.notice_line = Static("", id="notice", markup=False)
        self.composer = Composer(
            id="composer",
            compact=True,
            placeholder="Write a message; Enter sends it",
            highlight_cursor_line=False,
        )

    def compose(self) -> ComposeResult:
        yield self.head_line
        with Horizontal(id="middle"):
            yield self.chat_list
            with Vertical(id="right"):
                yield self.message_view
                yield self.notice_line
                yield self.composer
        yield Footer(compact=True, show_command_palette=False)

    async def on_mount(self) -> None:
        await self.state.load()
        await self._open_first()
        self.touch()
        start(self, self._listen, group="events")
        self.set_interval(1.0, self._second)

    # What happens.

    async def _listen(self) -> None:
        try:
            async for event in self.state.client.events():
                self.state.happened(event)
                if self.state.is_edit_over:
                    self.state.is_edit_over = False
                    self._write(self._kept_text)
                    self.notify("the message was deleted meanwhile", markup=False)
                if isinstance(event, MessageRefused) and event.kind is not EntryKind.MESSAGE:
                    self.notify(event.reason or "a change was not sent", markup=False)
                is_looking = self.is_current and self.app.app_focus
                if self._has_bell and self.state.wants_bell(event, is_looking=is_looking):
                    self.app.bell()
                self.touch()
        except ClientClosed:
            # The head says why.
            self.touch()

    def _second(self) -> None:
        if self.state.forget_typists():
            self.touch()

    def touch(self) -> None:
        """Something has changed: paint it soon."""
        if not self._is_paint_due:
            self._is_paint_due = True
            self.set_timer(PAINT_S, self._paint)

    def _paint(self) -> None:
        self._is_paint_due = False
        if not self.is_attached:
            # The timer was set before the screen ended.
            return
        state = self.state
        self._paint_head()
        chats = state.listed()
        self.chat_list.show(chats)
        if self._is_first and chats:
            start(self, self._open_first, group="first", exclusive=True)
        view = self.message_view
        has_chat = state.chat is not None
        lines = conversation(
            state.rows(),
            width=view.text_width,
            measure=cell_len,
            zone=self._zone,
            new_after=state.new_after,
            older=None if not has_chat else OLDER if state.window.has_older else BEGINNING,
        )
        top_key, self._top_key = self._top_key, None
        view.show(lines, top_key=self._fitting_top(view, lines_key=top_key, count=len(lines)))
        self.composer.disabled = not has_chat
        self._paint_notice()
        if state.is_list_old:
            state.is_list_old = False
            start(self, self._refresh_list, group="list", exclusive=True)
        if state.has_nameless() and not self._is_learning:
            self._is_learning = True
            start(self, self._learn_names, group="names")

    def _fitting_top(self, view: MessageView, *, lines_key: str | None, count: int) -> str | None:
        """Unread messages begin at the top only if the conversation does not fit the screen."""
        if lines_key == NEW_KEY and count <= view.scrollable_content_region.height:
            return None
        return lines_key

    def _paint_head(self) -> None:
        state = self.state
        chat = state.chat
        title = "tidewire" if chat is None else one_line(state.title(chat))
        words = state_words(state.client.status, state.waiting_count())
        width = max(20, self.size.width - 2)
        left = cut(f"{self._username} · {title}", max(8, width - cell_len(words) - 1), cell_len)
        gap = " " * max(1, width - cell_len(left) - cell_len(words))
        self.head_line.update(Content(left + gap + words))

    def _paint_notice(self) -> None:
        state, view = self.state, self.message_view
        notice = state.context_words() or typing_words(state.typing_names())
        if state.chat is None:
            notice = CLOSED if state.listed() else EMPTY
        if state.context_words():
            pass
        elif state.window.has_newer:
            notice = "↓ newer messages (Esc)"
        elif not view.is_at_end:
            below = count_below(view.lines, view.bottom, lambda line: True)
            if below:
                notice = f"↓ {below} more below (Esc)" + (f" · {notice}" if notice else "")
        self.notice_line.update(Content(cut(one_line(notice), max(8, view.text_width), cell_len)))

    async def _refresh_list(self) -> None:
        await self.state.refresh_list()
        self.touch()

    async def _learn_names(self) -> None:
        try:
            has_news = await self.state.learn_names()
        finally:
            self._is_learning = False
        if has_news:
            self.touch()

    # The conversation.

    @on(MessageView.Moved)
    def look(self) -> None:
        """Mark messages on the screen as read if the user looks at it; load more if needed."""
        self._paint_notice()
        view = self.message_view
        if self.is_current and self.app.app_focus:
            seen = view.seen()
            if self.state.is_unseen(seen):
                start(self, lambda: self.state.saw(seen), group="seen")
        if not self._is_loading and self.state.chat is not None:
            is_above = view.scroll_y <= NEAR and self.state.window.has_older
            is_below = view.bottom >= len(view.lines) - NEAR and self.state.window.has_newer
            if is_above or is_below:
                self._is_loading = True
                start(self, lambda: self._load(is_above), group="pages")

    async def _load(self, is_above: bool) -> None:
        window = self.state.window
        try:
            has_more = await (self.state.older() if is_above else self.state.newer())
        except TidewireError as error:
            has_more = False
            self._tell(error)
        finally:
            self._is_loading = False
        if has_more:
            self.touch()
        elif window is not self.state.window:
            # A chat was opened meanwhile, and could not load its own page.
            self.look()

    def on_resize(self) -> None:
        self.touch()

    @on(OptionList.OptionSelected, "#chats")
    async def _chosen(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            await self._open(self.state.client.chat(event.option_id))
            self.composer.focus()

    async def _open_first(self) -> None:
        """Open the chat on top. A new device gets its chats only after the screen is there."""
        chats = self.state.listed()
        if self._is_first and chats:
            await self._open(self.state.client.chat(chats[0].chat_id))
            self.composer.focus()

    async def _open(self, chat: Chat, at: Message | None = None) -> None:
        self._is_first = False
        composer = self.composer
        is_edit = self.state.editing is not None
        self.state.keep_draft(self._kept_text if is_edit else composer.text)
        # In one step: the text for one chat must not be there when another chat is open.
        self.state.enter(chat, at=at)
        composer.disabled = False
        self._write(self.state.draft())
        await self.state.fill(at)
        start(self, self.state.learn_members, group="members", exclusive=True)
        self.message_view.to_end()
        self._top_key = str(at.sequence) if at is not None else NEW_KEY
        if at is None and self.state.new_after is None:
            self._top_key = None
        self._paint()
        self.chat_list.mark(chat.chat_id)

    # Writing.

    def _write(self, text: str) -> None:
        """Replace the text in the composer."""
        composer = self.composer
        with composer.prevent(TextArea.Changed):
            composer.load_text(text)
        composer.move_cursor(composer.document.end)

    @on(Composer.Submitted)
    async def _submitted(self, event: Composer.Submitted) -> None:
        if self.state.chat is None:
            return
        is_edit = self.state.editing is not None
        try:
            await (self.state.finish_edit if is_edit else self.state.send)(event.text)
        except TidewireError as error:
            self._tell(error)
            return
        self._write(self._kept_text if is_edit else "")
        if not is_edit:
            self.message_view.to_end()
        self.touch()

    @on(Composer.EditLast)
    def _edit_last(self) -> None:
        last = self.state.last_own()
        if last is not None:
            self._edit(last)

    def _edit(self, message: Message | Sent) -> None:
        if self.state.editing is None:
            self._kept_text = self.composer.text
        self._write(self.state.edit(message))
        self.composer.focus()
        self.touch()

    # A chosen message.

    @on(MessageView.Entered)
    def _message_entered(self, event: MessageView.Entered) -> None:
        if event.sequence:
            self.state.chosen = event.sequence
        else:
            self.state.choose(0, self.message_view.seen())
        self._paint()

    @on(MessageView.Left)
    def _message_left(self) -> None:
        # A dialog about the chosen message may have the focus for a while.
        if self.is_current and self.state.chosen is not None:
            self.state.chosen = None
            self.touch()

    def action_choose(self, step: int) -> None:
        chosen = self.state.choose(step, self.message_view.seen())
        self._paint()
        if chosen is not None:
            self.message_view.reveal(str(chosen))

    def action_reply(self) -> None:
        message = self.state.chosen_message
        if message is not None:
            self.state.answer(message)
            self.composer.focus()
            self.touch()

    def action_edit(self) -> None:
        message = self.state.chosen_message
        if message is None or message.is_deleted:
            return
        if not message.is_own:
            self.notify("only its author can edit a message", markup=False)
            return
        self._edit(message)

    async def action_delete(self) -> None:
        message, chat = self.state.chosen_message, self.state.chat
        if message is None or chat is None or message.is_deleted:
            return

        async def answered(is_wanted: bool | None) -> None:
            if is_wanted:
                await self._try(lambda: chat.delete(message))

        shown = cut(one_line(self.state.described(message)), 60, cell_len)
        question = f"Delete this message for all? It cannot be undone.\n\n{shown}"
        await self.app.push_screen(Confirm(question), answered)

    async def action_react(self) -> None:
        message = self.state.chosen_message
        if message is None or message.is_deleted:
            return

        async def answered(emoji: str | None) -> None:
            if emoji is not None:
                await self._try(lambda: self.state.toggle_reaction(message, emoji))

        await self.app.push_screen(React(), answered)

    async def _try(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await act()
        except TidewireError as error:
            self._tell(error)
        self.touch()

    @on(TextArea.Changed, "#composer")
    def _typed(self, event: TextArea.Changed) -> None:
        self.state.typed(event.text_area.text)

    # Keys.

    async def _typed_before(self) -> None:
        """Wait until the keys that were typed before this one are handled. A key of the screen
        overtakes keys that are on their way to the composer. Over a slow line many come at once,
        and the text for one person would be sent to the next."""
        # A screen that has failed never handles them.
        with suppress(TimeoutError):
            async with asyncio.timeout(TYPED_S_MAX):
                # The composer twice: a key may post a message, which is queued behind the key.
                for pump in (self.composer, self.composer, *self.composer.ancestors):
                    is_done = asyncio.Event()
                    if pump.call_later(is_done.set):
                        await is_done.wait()
                    if pump is self:
                        break

    async def action_quit(self) -> None:
        await self._typed_before()
        await self.app.action_quit()

    def action_page(self, direction: int) -> None:
        view = self.message_view
        if direction < 0:
            view.scroll_page_up(animate=False)
        else:
            view.scroll_page_down(animate=False)

    async def action_step(self, step: int) -> None:
        await self._typed_before()
        ids = [chat.chat_id for chat in self.state.listed()]
        if not ids:
            return
        chat = self.state.chat
        index = 0
        if chat is not None and chat.chat_id in ids:
            index = (ids.index(chat.chat_id) + step) % len(ids)
        await self._open(self.state.client.chat(ids[index]))

    async def action_newest(self) -> None:
        await self._typed_before()
        was_edit = self.state.editing is not None
        if self.state.forget_context():
            if was_edit:
                self._write(self._kept_text)
            self.composer.focus()
            self.touch()
            return
        if self.state.window.has_newer:
            await self.state.newest()
        self.state.found = None
        self.message_view.to_end()
        self.composer.focus()
        self._paint()

    async def action_new_direct(self) -> None:
        async def act(values: list[str]) -> Chat:
            return await self.state.client.direct(values[0].removeprefix("@"))

        await self.app.push_screen(Question("Write to", ["User name"], act), self._opened)

    async def action_new_group(self) -> None:
        async def act(values: list[str]) -> Chat:
            name, people = values
            usernames = [one.removeprefix("@") for one in people.replace(",", " ").split()]
            return await self.state.client.group(name, *usernames)

        fields = ["Name of the group", "User names, with spaces between"]
        await self.app.push_screen(Question("New group", fields, act), self._opened)

    async def _opened(self, chat: Chat | None) -> None:
        if chat is not None:
            self.state.is_list_old = True
            self._paint()
            await self._open(chat)
            self.composer.focus()

    async def action_search(self) -> None:
        await self.app.push_screen(Search(self.state.client, self.state, self._zone), self._found)

    async def _found(self, message: Message | None) -> None:
        if message is not None:
            await self._open(self.state.client.chat(message.chat_id), message)

    async def action_members(self) -> None:
        if self.state.chat is not None:
            await self.app.push_screen(Members(self.state.chat, self.state), self._members_closed)

    async def action_failed(self) -> None:
        await self.app.push_screen(Failed(self.state), self._dialog_closed)

    async def action_help(self) -> None:
        await self.app.push_screen(Help())

    async def _members_closed(self, has_left: bool | None) -> None:
        chat = self.state.chat
        # The update that the user has left may come later than the answer to the request.
        if chat is not None and (has_left or not chat.is_member):
            await self._leave_view(chat)
        self._dialog_closed(None)

    async def _leave_view(self, left: Chat) -> None:
        """The user is not in the open chat any more: show another one."""
        others = [one for one in self.state.listed() if one.chat_id != left.chat_id]
        if others:
            await self._open(self.state.client.chat(others[0].chat_id))
        else:
            self.state.close()

    def _dialog_closed(self, _: None) -> None:
        self.look()
        self.touch()

    def _tell(self, error: TidewireError) -> None:
        self.notify(str(error), severity="error", markup=False)


class ChatApp(App[None]):
    """The application, around a client that is open already."""

    CSS_PATH = Path(__file__).with_name("chat.tcss")
    TITLE = "tidewire"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        client: Client,
        *,
        username: str,
        zone: tzinfo | None,
        now_ms: Callable[[], int],
        window_max: int = WINDOW_MAX,
        has_bell: bool = True,
    ) -> None:
        super().__init__()
        # Over a slow line an animation is only lag.
        self.animation_level = "none"
        state = TerminalState(client, now_ms, window_max)
        self.screen_of_chats = ChatScreen(state, username=username, zone=zone, has_bell=has_bell)

    async def on_mount(self) -> None:
        await self.push_screen(self.screen_of_chats)

    def on_app_focus(self) -> None:
        self.screen_of_chats.look()
