"""The widgets of the chat: they show spans and lines, and decide nothing."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Size
from textual.message import Message as TextualMessage
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from tidewire.terminal.lines import (
    Line,
    Listed,
    Look,
    Span,
    anchor_at,
    last_seen,
    listed_line,
    top_of,
)

if TYPE_CHECKING:
    from textual.worker import Worker

LOOKS: Final[dict[Look, str]] = {
    Look.TEXT: "",
    Look.OWN_NAME: "bold",
    Look.NAME: "bold $accent",
    Look.QUIET: "$foreground 60%",
    Look.RULE: "$foreground 60%",
    Look.NEW: "bold $warning",
    Look.FOUND: "reverse",
    Look.SENDING: "$foreground 60%",
    Look.SENT: "",
    Look.DELIVERED: "",
    Look.READ: "bold #58a6ff",
    Look.FAILED: "bold $error",
    Look.UNREAD: "bold $success",
    Look.OPEN: "bold underline",
    Look.MENTION: "bold $warning",
    Look.OWN_REACTION: "bold",
    Look.CHOSEN: "reverse",
}
"""The style of each look, as Textual writes it."""


def content(spans: Sequence[Span]) -> Content:
    """Spans as Textual shows them. Nothing in a text is taken for markup."""
    return Content.assemble(*(Content.styled(span.text, LOOKS[span.look]) for span in spans))


def start(
    node: DOMNode, work: Callable[[], Awaitable[object]], group: str, *, exclusive: bool = False
) -> None:
    """Do something in the background; the widget keeps reacting, and cancels it when it ends.
    `exclusive`: other work of the same group is cancelled first."""

    async def run() -> None:
        await work()

    _: Worker[None] = node.run_worker(run, group=group, exclusive=exclusive)


class MessageView(ScrollView, can_focus=True):
    """The conversation. If it shows the end, it follows the end; otherwise it stays where it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "screen.choose(-1)", "Above", show=False),
        Binding("down", "screen.choose(1)", "Below", show=False),
        Binding("enter", "screen.reply", "Reply"),
        Binding("e", "screen.edit", "Edit"),
        Binding("d,delete", "screen.delete", "Delete"),
        Binding("r", "screen.react", "React"),
    ]

    class Moved(TextualMessage):
        """The lines on the screen have changed."""

    class Entered(TextualMessage):
        """A message is to be chosen: the last one, or the one that was clicked."""

        def __init__(self, sequence: int = 0) -> None:
            super().__init__()
            self.sequence = sequence

    class Left(TextualMessage):
        """No message is to be chosen any more."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._lines: Sequence[Line] = []
        self._is_at_end = True
        self._styles: dict[Look, Style] = {}

    @property
    def text_width(self) -> int:
        return max(20, self.scrollable_content_region.width)

    @property
    def is_at_end(self) -> bool:
        return self._is_at_end

    @property
    def bottom(self) -> int:
        """The first line below the screen."""
        return round(self.scroll_y) + self.scrollable_content_region.height

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    def seen(self) -> int:
        """The newest message that is on the screen to its end."""
        height = self.scrollable_content_region.height
        return last_seen(self._lines, round(self.scroll_y), height)

    def show(self, lines: Sequence[Line], *, top_key: str | None = None) -> None:
        """Show these lines. The line at the top stays there, unless the end was on the screen;
        `top_key` names a line that has to be at the top instead."""
        size = Size(self.text_width, len(lines))
        if lines == self._lines and size == self.virtual_size and top_key is None:
            return
        was_at_end = self._is_at_end
        anchor = anchor_at(self._lines, round(self.scroll_y))
        self._lines = lines
        self.virtual_size = size
        top = None
        if top_key is not None:
            top = next((index for index, line in enumerate(lines) if line.key == top_key), None)
        elif not was_at_end and anchor is not None:
            top = top_of(lines, anchor)
        if top is None:
            self.to_end()
        else:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._moved()
        self.refresh()

    def on_focus(self) -> None:
        self.post_message(self.Entered())

    def on_blur(self) -> None:
        self.post_message(self.Left())

    def on_click(self, event: events.Click) -> None:
        index = event.y + round(self.scroll_y)
        if index < len(self._lines) and self._lines[index].sequence:
            self.post_message(self.Entered(self._lines[index].sequence))

    def reveal(self, key: str) -> None:
        """Scroll as little as it takes to have all lines of a message on the screen."""
        height = self.scrollable_content_region.height
        at = [index for index, line in enumerate(self._lines) if line.key == key]
        if not at:
            return
        top = round(self.scroll_y)
        if at[0] < top:
            self.scroll_to(y=at[0], animate=False, immediate=True, force=True)
        elif at[-1] >= top + height:
            top = min(at[0], at[-1] - height + 1)
            self.scroll_to(y=top, animate=False, immediate=True, force=True)

    def on_resize(self) -> None:
        if self._is_at_end:
            self.to_end()

    def to_end(self) -> None:
        self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        self._is_at_end = True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._moved()

    def _moved(self) -> None:
        self._is_at_end = self.scroll_y >= self.max_scroll_y
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        index = y + round(self.scroll_y)
        base = self.rich_style
        width = self.scrollable_content_region.width
        if index >= len(self._lines):
            return Strip.blank(width, base)
        segments = [Segment(span.text, self._style(span.look)) for span in self._lines[index].spans]
        return Strip(segments).adjust_cell_length(width, base)

    def _style(self, look: Look) -> Style:
        style = self._styles.get(look)
        if style is None:
            # The current theme turns the words of a style into colours.
            look_style = self.visual_style + VisualStyle.parse(LOOKS[look])
            style = self._styles[look] = look_style.rich_style
        return style

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()


class ChatList(OptionList):
    """All chats. Enter or a click opens one."""

    _shown: tuple[int, Sequence[Listed]] | None = None

    def show(self, chats: Sequence[Listed]) -> None:
        width = max(8, self.scrollable_content_region.width)
        if (width, chats) == self._shown:
            return
        self._shown = width, chats
        marked = self._marked_id()
        options = [
            Option(content(listed_line(chat, width, cell_len)), id=chat.chat_id) for chat in chats
        ]
        with self.prevent(OptionList.OptionHighlighted):
            self.set_options(options)
            ids = [chat.chat_id for chat in chats]
            if marked is None:
                marked = next((chat.chat_id for chat in chats if chat.is_open), None)
            if marked in ids:
                self.highlighted = ids.index(marked)

    def mark(self, chat_id: str) -> None:
        with self.prevent(OptionList.OptionHighlighted):
            self.highlighted = self.get_option_index(chat_id)

    def _marked_id(self) -> str | None:
        if self.highlighted is None:
            return None
        return self.get_option_at_index(self.highlighted).id


class Composer(TextArea):
    """The field for new messages. Enter sends; ^j begins a new line; ↑ in the empty field edits the
    last own message."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "new_line", "New line", show=False),
    ]

    class Submitted(TextualMessage):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class EditLast(TextualMessage):
        """The last own message is to be edited."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "up" and not self.text:
            event.stop()
            event.prevent_default()
            self.post_message(self.EditLast())
            return
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Submitted(self.text))
            return
        await super()._on_key(event)

    def action_new_line(self) -> None:
        self.insert("\n")
