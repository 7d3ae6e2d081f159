"""`tidewire chat`: the screen, and what its keys do."""

from collections.abc import Callable
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

from tidewire.client import Chat, Client, ClientClosed, Message
from tidewire.domain.errors import TidewireError
from tidewire.terminal.desk import Desk
from tidewire.terminal.dialogs import Failed, Help, Members, Question, Search
from tidewire.terminal.lines import NEW_KEY, conversation, count_below
from tidewire.terminal.text import cut, one_line
from tidewire.terminal.widgets import ChatList, Composer, MessageView, start
from tidewire.terminal.window import WINDOW_MAX
from tidewire.terminal.words import state_words, typing_words

PAINT_S: Final = 0.03
"""What happens within this time is painted once."""
EMPTY: Final = "No chat yet: ^n writes to somebody, ^g makes a group."
OLDER: Final = "↑ older messages"
BEGINNING: Final = "This is the beginning of the chat."
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
        Binding("ctrl+q", "app.quit", "Quit", priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("ctrl+up", "step(-1)", show=False, priority=True),
        Binding("ctrl+down", "step(1)", show=False, priority=True),
    ]

    def __init__(
        self, desk: Desk, *, username: str, zone: tzinfo | None, has_bell: bool = True
    ) -> None:
        super().__init__()
        self.desk = desk
        self._has_bell = has_bell
        self._username = username
        self._zone = zone
        self._is_paint_due = False
        self._top_key: str | None = None
        self._is_loading = False
        self._is_learning = False
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
        await self.desk.load()
        chats = self.desk.listed()
        if chats:
            await self._open(self.desk.client.chat(chats[0].chat_id))
        self.composer.focus()
        self.touch()
        start(self, self._listen, group="events")
        self.set_interval(1.0, self._second)

    # What happens.

    async def _listen(self) -> None:
        try:
            async for event in self.desk.client.events():
                self.desk.happened(event)
                is_looking = self.is_current and self.app.app_focus
                if self._has_bell and self.desk.wants_bell(event, is_looking=is_looking):
                    self.app.bell()
                self.touch()
        except ClientClosed:
            # The head says why.
            self.touch()

    def _second(self) -> None:
        if self.desk.forget_typists():
            self.touch()

    def touch(self) -> None:
        """Something is other than painted."""
        if not self._is_paint_due:
            self._is_paint_due = True
            self.set_timer(PAINT_S, self._paint)

    def _paint(self) -> None:
        self._is_paint_due = False
        if not self.is_attached:
            # A timer that was set before the end.
            return
        desk = self.desk
        self._paint_head()
        self.chat_list.show(desk.listed())
        view = self.message_view
        has_chat = desk.chat is not None
        lines = conversation(
            desk.rows(),
            width=view.text_width,
            measure=cell_len,
            zone=self._zone,
            new_after=desk.new_after,
            older=None if not has_chat else OLDER if desk.window.has_older else BEGINNING,
        )
        top_key, self._top_key = self._top_key, None
        view.show(lines, top_key=self._fitting_top(view, lines_key=top_key, count=len(lines)))
        self.composer.disabled = not has_chat
        self._paint_notice()
        if desk.is_list_old:
            desk.is_list_old = False
            start(self, self._refresh_list, group="list", exclusive=True)
        if desk.has_nameless() and not self._is_learning:
            self._is_learning = True
            start(self, self._learn_names, group="names")

    def _fitting_top(self, view: MessageView, *, lines_key: str | None, count: int) -> str | None:
        """What is unread begins at the top only if it does not fit the screen."""
        if lines_key == NEW_KEY and count <= view.scrollable_content_region.height:
            return None
        return lines_key

    def _paint_head(self) -> None:
        desk = self.desk
        chat = desk.chat
        title = "tidewire" if chat is None else one_line(desk.title(chat))
        state = state_words(desk.client.status, desk.waiting_count())
        width = max(20, self.size.width - 2)
        left = cut(f"{self._username} · {title}", max(8, width - cell_len(state) - 1), cell_len)
        gap = " " * max(1, width - cell_len(left) - cell_len(state))
        self.head_line.update(Content(left + gap + state))

    def _paint_notice(self) -> None:
        desk, view = self.desk, self.message_view
        notice = EMPTY if desk.chat is None else typing_words(desk.typing_names())
        if desk.window.has_newer:
            notice = "↓ newer messages (Esc)"
        elif not view.is_at_end:
            below = count_below(view.lines, view.bottom, lambda line: True)
            if below:
                notice = f"↓ {below} more below (Esc)" + (f" · {notice}" if notice else "")
        self.notice_line.update(Content(notice))

    async def _refresh_list(self) -> None:
        await self.desk.refresh_list()
        self.touch()

    async def _learn_names(self) -> None:
        try:
            has_news = await self.desk.learn_names()
        finally:
            self._is_learning = False
        if has_news:
            self.touch()

    # The conversation.

    @on(MessageView.Moved)
    def look(self) -> None:
        """What is on the screen has been seen, if somebody looks; more may have to be loaded."""
        self._paint_notice()
        view = self.message_view
        if self.is_current and self.app.app_focus:
            seen = view.seen()
            if self.desk.is_unseen(seen):
                start(self, lambda: self.desk.saw(seen), group="seen")
        if not self._is_loading and self.desk.chat is not None:
            is_above = view.scroll_y <= NEAR and self.desk.window.has_older
            is_below = view.bottom >= len(view.lines) - NEAR and self.desk.window.has_newer
            if is_above or is_below:
                self._is_loading = True
                start(self, lambda: self._load(is_above), group="pages")

    async def _load(self, is_above: bool) -> None:
        try:
            has_more = await (self.desk.older() if is_above else self.desk.newer())
        except TidewireError as error:
            has_more = False
            self._tell(error)
        finally:
            self._is_loading = False
        if has_more:
            self.touch()

    def on_resize(self) -> None:
        self.touch()

    @on(OptionList.OptionSelected, "#chats")
    async def _chosen(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            await self._open(self.desk.client.chat(event.option_id))
            self.composer.focus()

    async def _open(self, chat: Chat, at: Message | None = None) -> None:
        composer = self.composer
        self.desk.keep_draft(composer.text)
        await self.desk.open(chat, at=at)
        composer.disabled = False
        with composer.prevent(TextArea.Changed):
            composer.load_text(self.desk.draft())
        composer.move_cursor(composer.document.end)
        self.message_view.to_end()
        self._top_key = str(at.sequence) if at is not None else NEW_KEY
        if at is None and self.desk.new_after is None:
            self._top_key = None
        self._paint()
        self.chat_list.mark(chat.chat_id)

    # Writing.

    @on(Composer.Submitted)
    async def _submitted(self, event: Composer.Submitted) -> None:
        if self.desk.chat is None:
            return
        try:
            await self.desk.send(event.text)
        except TidewireError as error:
            self._tell(error)
            return
        composer = self.composer
        with composer.prevent(TextArea.Changed):
            composer.load_text("")
        self.message_view.to_end()
        self.touch()

    @on(TextArea.Changed, "#composer")
    def _typed(self, event: TextArea.Changed) -> None:
        self.desk.typed(event.text_area.text)

    # Keys.

    def action_page(self, direction: int) -> None:
        view = self.message_view
        if direction < 0:
            view.scroll_page_up(animate=False)
        else:
            view.scroll_page_down(animate=False)

    async def action_step(self, step: int) -> None:
        ids = [chat.chat_id for chat in self.desk.listed()]
        if not ids:
            return
        chat = self.desk.chat
        index = 0
        if chat is not None and chat.chat_id in ids:
            index = (ids.index(chat.chat_id) + step) % len(ids)
        await self._open(self.desk.client.chat(ids[index]))

    async def action_newest(self) -> None:
        if self.desk.window.has_newer:
            await self.desk.newest()
        self.desk.found = None
        self.message_view.to_end()
        self.composer.focus()
        self._paint()

    async def action_new_direct(self) -> None:
        async def act(values: list[str]) -> Chat:
            return await self.desk.client.direct(values[0].removeprefix("@"))

        await self.app.push_screen(Question("Write to", ["User name"], act), self._opened)

    async def action_new_group(self) -> None:
        async def act(values: list[str]) -> Chat:
            name, people = values
            usernames = [one.removeprefix("@") for one in people.replace(",", " ").split()]
            return await self.desk.client.group(name, *usernames)

        fields = ["Name of the group", "User names, with spaces between"]
        await self.app.push_screen(Question("New group", fields, act), self._opened)

    async def _opened(self, chat: Chat | None) -> None:
        if chat is not None:
            self.desk.is_list_old = True
            self._paint()
            await self._open(chat)
            self.composer.focus()

    async def action_search(self) -> None:
        await self.app.push_screen(Search(self.desk.client, self.desk, self._zone), self._found)

    async def _found(self, message: Message | None) -> None:
        if message is not None:
            await self._open(self.desk.client.chat(message.chat_id), message)

    async def action_members(self) -> None:
        if self.desk.chat is not None:
            await self.app.push_screen(Members(self.desk.chat, self.desk), self._members_closed)

    async def action_failed(self) -> None:
        await self.app.push_screen(Failed(self.desk), self._dialog_closed)

    async def action_help(self) -> None:
        await self.app.push_screen(Help())

    async def _members_closed(self, _: None) -> None:
        chat = self.desk.chat
        if chat is not None and not chat.is_member:
            await self._leave_view()
        self._dialog_closed(None)

    async def _leave_view(self) -> None:
        """The open chat is none of ours any more: show another one."""
        others = self.desk.listed()
        if others:
            await self._open(self.desk.client.chat(others[0].chat_id))
        else:
            self.desk.close()

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
        desk = Desk(client, now_ms, window_max)
        self.screen_of_chats = ChatScreen(desk, username=username, zone=zone, has_bell=has_bell)

    async def on_mount(self) -> None:
        await self.push_screen(self.screen_of_chats)

    def on_app_focus(self) -> None:
        self.screen_of_chats.look()
