"""The dialogs: each asks one thing, says what went wrong, and gives its answer back."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from tidewire.client import Chat, Client, Message, Sent
from tidewire.domain.chats import ChatType
from tidewire.domain.errors import TidewireError
from tidewire.terminal.state import TerminalState
from tidewire.terminal.text import cut, one_line
from tidewire.terminal.widgets import start

if TYPE_CHECKING:
    from tidewire.wire.rest_models import MemberView

T = TypeVar("T")

HITS_MAX: Final = 50
EMOJI: Final = ("👍", "❤️", "😂", "🎉", "😮", "😢", "🙏")
"""The emoji that the user can choose with one key."""
HELP: Final = """\
Enter        send                 ^j   new line in a message
↑            edit your last message, where nothing is written yet
Tab  ↑  ↓    choose one; Enter reply, e edit, d delete, r react
@name        that person is meant, in a group
^n           write to a person    ^g   new group
^↑  ^↓       chat above, below    Tab  list, messages, text
PgUp  PgDn   through the past     Esc  back to the newest
^f           find in what this device has stored
^l           who is here; in a group: add, remove, rename, leave
^r           messages that failed: send again, or drop
^q           quit; what is not sent yet is kept and goes out later

○ on its way   ✓ stored by the server   ✓✓ on every member's device
✔✔ (blue) read by all   ✗ failed   ● unread   @ you are meant"""


class Dialog(ModalScreen[T], Generic[T]):
    """A box in the middle with a title and a line for what went wrong. Esc ends it."""

    TITLE_TEXT: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(self.TITLE_TEXT, classes="title", markup=False)
            yield from self.body()
            yield Static("", id="fault", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def fault(self, text: str) -> None:
        """Show what went wrong; an empty text clears it."""
        self.query_one("#fault", Static).update(Content(text))

    def work(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do something in the background; an error is shown in the dialog."""

        async def run() -> None:
            self.fault("…")
            try:
                await act()
            except TidewireError as error:
                self.fault(str(error))
            else:
                self.fault("")

        start(self, run, group="work", exclusive=True)

    @property
    def options(self) -> OptionList:
        """The list of the dialog, if it has one."""
        return self.query_one(OptionList)

    def action_cancel(self) -> None:
        _ = self.dismiss(None)


class Question(Dialog[T], Generic[T]):
    """A few fields; Enter in the last one acts. An error is shown, and the user may try again."""

    def __init__(
        self, title: str, fields: Sequence[str], act: Callable[[list[str]], Awaitable[T]]
    ) -> None:
        super().__init__()
        self._question = title
        self._fields = fields
        self._act = act

    def body(self) -> ComposeResult:
        for number, field in enumerate(self._fields):
            yield Label(field, markup=False)
            # What is in a field stays when the field is entered again.
            yield Input(id=f"field-{number}", compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self.query_one(".title", Label).update(Content(self._question))
        self.query_one("#field-0", Input).focus()

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        inputs = list(self.query(Input))
        if event.input is not inputs[-1]:
            self.focus_next()
            return
        self.fault("…")
        values = [one.value.strip() for one in inputs]
        # What is typed while the server is asked is lost.
        for one in inputs:
            one.disabled = True
        start(self, lambda: self._try(values), group="work", exclusive=True)

    async def _try(self, values: list[str]) -> None:
        try:
            result = await self._act(values)
        except TidewireError as error:
            self.fault(str(error))
            inputs = list(self.query(Input))
            for one in inputs:
                one.disabled = False
            # The last field, in which Enter was pressed; the others were complete before.
            inputs[-1].focus()
        else:
            _ = self.dismiss(result)


class Search(Dialog[Message]):
    """Finds text in the messages that this device has stored."""

    TITLE_TEXT = "Find in messages on this device"

    def __init__(self, client: Client, state: TerminalState, zone: tzinfo | None) -> None:
        super().__init__()
        self._client = client
        self._state = state
        self._zone = zone
        self._hits: list[Message] = []

    def body(self) -> ComposeResult:
        yield Input(placeholder="text", id="needle", compact=True)
        yield OptionList(id="hits", markup=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#needle", Input).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        start(self, lambda: self._search(event.value.strip()), group="work", exclusive=True)

    async def _search(self, text: str) -> None:
        self._hits = await self._client.search(text, limit=HITS_MAX) if text else []
        found = self.options
        width = max(20, found.scrollable_content_region.width)
        found.set_options([Option(Content(self._shown(hit, width))) for hit in self._hits])
        if self._hits:
            found.highlighted = 0
        self.fault("" if self._hits or not text else "nothing found")

    def _shown(self, hit: Message, width: int) -> str:
        at = datetime.fromtimestamp(hit.created_at_ms / 1000, self._zone)
        chat = self._client.chat(hit.chat_id)
        name = "you" if hit.is_own else hit.sender_name or hit.sender_id
        place = chat.name or ""
        if chat.type is ChatType.DIRECT and not hit.is_own:
            name, place = place, ""
        who = one_line(f"{place} {name}")
        return cut(f"{at:%d %b %H:%M} {who}: {one_line(hit.text)}", width, cell_len)

    @on(Input.Submitted)
    def _chosen_first(self) -> None:
        marked = self.options.highlighted
        if marked is not None:
            _ = self.dismiss(self._hits[marked])

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        _ = self.dismiss(self._hits[event.option_index])

    def key_down(self) -> None:
        self.options.focus()


class Confirm(Dialog[bool]):
    """Asks before something that cannot be undone."""

    TITLE_TEXT = "Sure?"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "confirm", "Yes", priority=True),
        Binding("escape", "cancel", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def body(self) -> ComposeResult:
        yield Static(Content(self._question))

    def action_confirm(self) -> None:
        _ = self.dismiss(True)


class React(Dialog[str]):
    """Which emoji to put on a message, or to take back from it."""

    TITLE_TEXT = "React, or take it back"

    def body(self) -> ComposeResult:
        yield OptionList(*EMOJI, id="emoji", markup=False, compact=True)
        yield Label("Another one (then Enter)", markup=False)
        yield Input(id="other", compact=True)

    def on_mount(self) -> None:
        self.options.highlighted = 0
        self.options.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        _ = self.dismiss(EMOJI[event.option_index])

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if event.value.strip():
            _ = self.dismiss(event.value.strip())


class Members(Dialog[bool]):
    """Who is in a chat. A group can be changed here; the server decides who may do that. The result
    is True if the user has left it."""

    TITLE_TEXT = "People in this chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete", "remove", "Remove"),
        Binding("f2", "rename", "Rename"),
        Binding("f3", "leave", "Leave"),
    ]

    def __init__(self, chat: Chat, state: TerminalState) -> None:
        super().__init__()
        self._chat = chat
        self._state = state
        self._members: Sequence[MemberView] = ()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A direct chat has nothing to change."""
        is_of_groups = action in ("remove", "rename", "leave")
        return not is_of_groups or self._chat.type is ChatType.GROUP

    def body(self) -> ComposeResult:
        yield OptionList(id="members", markup=False, compact=True)
        if self._chat.type is ChatType.GROUP:
            yield Label("Add (user name, then Enter)", markup=False)
            yield Input(id="add", compact=True)

    def on_mount(self) -> None:
        self.work(self._load)

    async def _load(self) -> None:
        self._members = members = await self._chat.members()
        own_id = self._state.client.user_id
        self.options.set_options(
            Option(
                Content(
                    one_line(one.display_name)
                    + (" (you)" if one.user_id == own_id else "")
                    + ("" if one.role == "member" else f"  {one.role}")
                )
            )
            for one in members
        )
        self.options.highlighted = 0

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        username = event.value.strip().removeprefix("@")

        async def act() -> None:
            await self._chat.add(username)
            event.input.clear()
            await self._load()

        if username:
            self.work(act)

    async def action_remove(self) -> None:
        marked = self.options.highlighted
        if marked is None or marked >= len(self._members):
            self.fault("choose a person in the list first")
            return
        member = self._members[marked]

        async def act() -> None:
            await self._chat.remove(member.user_id)
            await self._load()

        question = f"Remove {one_line(member.display_name)} from this group?"
        await self._confirm(question, act)

    async def action_rename(self) -> None:
        async def act(values: list[str]) -> bool:
            await self._chat.rename(values[0])
            return True

        await self.app.push_screen(Question("Rename this group", ["New name"], act))

    async def action_leave(self) -> None:
        async def act() -> None:
            await self._chat.leave()
            _ = self.dismiss(True)

        await self._confirm("Leave this group? What you have of it stays on this device.", act)

    async def _confirm(self, question: str, act: Callable[[], Awaitable[None]]) -> None:
        def answered(is_wanted: bool | None) -> None:
            if is_wanted:
                self.work(act)

        await self.app.push_screen(Confirm(question), answered)


class Failed(Dialog[None]):
    """Messages that were not sent. Each is sent again, or dropped."""

    TITLE_TEXT = "Not sent"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "retry", "Send again", priority=True),
        Binding("d", "drop", "Drop"),
    ]

    def __init__(self, state: TerminalState) -> None:
        super().__init__()
        self._state = state
        self._failed: list[Sent] = []

    def body(self) -> ComposeResult:
        yield OptionList(id="failed", markup=False, compact=True)

    def on_mount(self) -> None:
        self._show()

    def _show(self) -> None:
        self._failed = self._state.failed()
        found = self.options
        width = max(20, found.scrollable_content_region.width)
        found.set_options(Option(Content(self._shown(sent, width))) for sent in self._failed)
        if not self._failed:
            self.fault("nothing has failed")
            return
        found.highlighted = 0
        found.focus()

    def _shown(self, sent: Sent, width: int) -> str:
        place = self._state.title(self._state.client.chat(sent.chat_id))
        why = sent.reason or "left days ago, fate unknown"
        return cut(f"{one_line(place)}: {one_line(sent.text)} ({one_line(why)})", width, cell_len)

    async def action_retry(self) -> None:
        sent = self._marked()
        if sent is not None:
            await sent.retry()
            self._show()

    async def action_drop(self) -> None:
        sent = self._marked()
        if sent is not None:
            await self._state.drop(sent)
            self._show()

    def _marked(self) -> Sent | None:
        marked = self.options.highlighted
        return None if marked is None else self._failed[marked]


class Help(Dialog[None]):
    TITLE_TEXT = "Keys and marks"

    def body(self) -> ComposeResult:
        yield Static(Content(HELP))
