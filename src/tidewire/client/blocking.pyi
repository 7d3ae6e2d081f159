# ruff: noqa: PYI021
"""Made from the async client by tools/blocking_stub.py (`make stubs`): do not edit."""

import ssl as ssl_module
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Self

from tidewire.client.credentials import RegisterWish, TokenSource
from tidewire.client.effects import Status
from tidewire.client.errors import ClientClosed
from tidewire.client.model import Change, Event
from tidewire.client.model import Message as _Message
from tidewire.client.options import ClientOptions
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import Tick
from tidewire.domain.fold import MessageNow, Reaction
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.wire.rest_models import AccountView, FoundUser, MemberView, SessionView, UserView

__all__ = ["Chat", "Client", "ClientClosed", "Message", "Sent"]

class Client:
    """See `tidewire.client.Client`. Use it in `with`."""

    def __init__(
        self,
        url: str,
        *,
        token: TokenSource | None = None,
        store: str | PathLike[str] = ...,
        device_id: str | None = None,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
        moved: bool = False,
    ) -> None: ...
    @classmethod
    def register(
        cls,
        url: str,
        username: str,
        password: str,
        *,
        store: str | PathLike[str] = ...,
        display_name: str | None = None,
        invite: str | None = None,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
    ) -> Self:
        """Make an account, and log this device in: `with Client.register(…) as me`."""

    @classmethod
    def login(
        cls,
        url: str,
        username: str,
        password: str,
        *,
        store: str | PathLike[str] = ...,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
        moved: bool = False,
    ) -> Self:
        """Log this device in. Afterwards `Client(url, store=…)` needs no password."""

    @classmethod
    def open(
        cls,
        url: str,
        username: str,
        password: str,
        *,
        store: str | PathLike[str] = ...,
        register: RegisterWish = "if-missing",
        display_name: str | None = None,
        invite: str | None = None,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
        moved: bool = False,
    ) -> Self:
        """Log in as this user, in every run of a program: `with Client.open(…)`.

        If the store has a login, that is used, also while the server cannot be reached. Otherwise
        this device logs in; if there is no such account, it is made (`register="if-missing"`), or
        that is an error (`"never"`). `"always"` makes an account, and fails if there is one."""

    def logout(self) -> None:
        """End this login, on the server and here. The store keeps its messages."""

    def change_password(self, current: str, new: str) -> int:
        """Change the password, and end all other logins; returns how many. This one stays.

        Raises RefusedByServer (INVALID_CREDENTIALS: the current one is wrong; VALIDATION_ERROR;
        RATE_LIMITED). After ServerUnreachable it is not known which of the two is valid."""

    def sessions(self) -> list[SessionView]:
        """Where this person is logged in, the oldest login first."""

    def end_session(self, session_id: str) -> None:
        """End one of the person's own logins. Raises RefusedByServer (NOT_FOUND)."""

    def end_other_sessions(self) -> int:
        """End all logins except this one and those of bots; returns how many."""

    def delete_account(self, password: str, *, erase_messages: bool = False) -> None:
        """Delete the account, for ever: it leaves its groups, and all its sessions end. Messages
        stay, as those of a deleted account; with `erase_messages` the server deletes them in all
        chats, soon after. This store keeps what it has.

        Raises RefusedByServer (INVALID_CREDENTIALS, RATE_LIMITED)."""

    @property
    def status(self) -> Status:
        """offline, connecting, syncing, ready or closed, and why."""

    @property
    def user_id(self) -> str | None:
        """Our own id; None until the server has said it for the first time."""

    def ready(self, timeout_s: float | None = None) -> None:
        """Wait until this device has everything that the server has, including the names of chats
        unless these take long. Raises ClientClosed."""

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is left to send; failed messages do not count. What was sent is in
        `chat.messages()` then."""

    def reconnect(self) -> None:
        """Connect now, if the client is waiting for its next try."""

    def new_id(self) -> str:
        """A new `client_message_id`."""

    def chat(self, chat_id: str) -> Chat:
        """A chat by its id. Does not ask the server."""

    def known_chats(self) -> list[Chat]:
        """The chats of the user, as far as this device knows them. Does not ask the server."""

    def chats(self) -> list[Chat]:
        """All chats, the one with the newest activity first, with their names; asks the server."""

    def direct(self, username: str) -> Chat:
        """The direct chat with a user, made if there is none. Raises RefusedByServer."""

    def group(self, name: str, *usernames: str) -> Chat:
        """A new group with these people."""

    def me(self) -> AccountView: ...
    def users(self, *usernames: str) -> list[FoundUser]:
        """The users with these user names; names that no user has are left out."""

    def find(self, username: str) -> FoundUser:
        """A user by user name. Raises RefusedByServer (USER_NOT_FOUND)."""

    def id_of(self, who: str) -> str:
        """The id of a user who is named by user name or by id."""

    def user(self, user_id: str) -> UserView:
        """The public view of a user, by id."""

    def confirm(self, event: Event) -> None:
        """Mark this event and all before it as done: they do not come again. The loop does this by
        itself; after a `break` the application has to do it."""

    def reply_id(self, message: Message | _Message, part: int = 0) -> str:
        """The `client_message_id` of our reply to this message, the same in every run."""

    def search(self, text: str, *, chat: Chat | None = None, limit: int = 50) -> list[Message]:
        """Messages in the store that contain a text, newest first. Does not ask the server."""

    def outbox(self) -> list[Sent]:
        """Everything that waits to be sent, changes of messages and failed ones included, oldest
        first."""

    def wait_closed(self, timeout_s: float | None = None) -> Status:
        """Wait until the client is closed, for any reason; returns the status with it."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def close(self, linger_s: float = 0.0) -> None:
        """Close the client. The outbox gets `linger_s` to be sent; the rest stays on the disk."""

    def events(self, timeout_s: float | None = None) -> Iterator[Event]:
        """As in the async client. Ends if nothing comes for `timeout_s`, or the client closes."""

class Chat:
    """See `tidewire.client.Chat`."""

    @property
    def chat_id(self) -> ChatId: ...
    @property
    def type(self) -> ChatType | None:
        """The kind of chat; None while nothing is known of it."""

    @property
    def name(self) -> str | None:
        """The group's name, or the other's name in a direct chat, once it is known."""

    @property
    def is_member(self) -> bool: ...
    @property
    def is_hidden(self) -> bool:
        """This direct chat was hidden, here or on another device, and no message came since."""

    @property
    def unread(self) -> int:
        """Unread messages of others that are not deleted, counted up to 100."""

    @property
    def mentions_unread(self) -> int:
        """How many of the unread messages mention the user, or `@all`."""

    @property
    def last_sequence(self) -> int:
        """The last entry that is held here: a message, or a change of one."""

    @property
    def last_read(self) -> int:
        """The last message that the user has read, on any device."""

    @property
    def is_synced(self) -> bool:
        """This device holds everything that the server is known to have."""

    def send(
        self,
        text: str,
        *,
        reply_to: Message | _Message | int | None = None,
        mentions: Iterable[str] = (),
        client_message_id: str | None = None,
        seen: int | None = None,
    ) -> Sent:
        """Send a text; returns when it is on the disk, however long it takes to reach the server.

        `reply_to` is the message that it answers, or its sequence. `mentions` are members, by user
        name or user id, and `@all` if the user may use it; a user who is no member when the message
        arrives is left out. Only a name that was not looked up before needs the server.

        If the `client_message_id` was used before, nothing is sent, and the result is that of the
        first message. Raises InvalidMessage, MessageTooLarge, OutboxFull and ClientClosed."""

    def reply(
        self, message: Message | _Message, text: str, *, mentions: Iterable[str] = (), part: int = 0
    ) -> Sent:
        """Reply to a message once: a second reply with the same `part`, in any run, is not sent."""

    def edit(
        self,
        message: Message | _Message | Sent | int,
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

        Raises MessageIsDeleted, InvalidMessage, MessageTooLarge, OutboxFull and ClientClosed."""

    def delete(
        self,
        message: Message | _Message | Sent | int,
        *,
        reason: str | None = None,
        client_message_id: str | None = None,
    ) -> Sent:
        """Delete a message for all: an own one, or, as an admin of the group, any. Its text is
        erased on the server and on the devices of all members. A deleted message stays deleted; one
        that has not left yet is dropped. Raises InvalidMessage, OutboxFull and ClientClosed."""

    def react(
        self,
        message: Message | _Message | Sent | int,
        emoji: str,
        *,
        client_message_id: str | None = None,
    ) -> Sent:
        """Put an emoji on a message; a second time changes nothing. Raises as `edit` does."""

    def unreact(
        self,
        message: Message | _Message | Sent | int,
        emoji: str,
        *,
        client_message_id: str | None = None,
    ) -> Sent:
        """Take an own emoji back."""

    def pending(self) -> list[Sent]:
        """The entries for this chat in the outbox, failed ones included, oldest first: messages,
        and changes of messages (`amends`)."""

    def typing(self, is_typing: bool = True) -> None:
        """Tell the others that the user types. Without a connection nothing happens."""

    def read(self, through: Message | _Message | int | None = None) -> None:
        """Mark everything up to here as read; without an argument everything that is held."""

    def messages(
        self, *, before: int | None = None, after: int = 0, limit: int = ...
    ) -> list[Message]:
        """The newest messages of the store (before a sequence, if one is given), oldest first.
        With `after` alone: the oldest above it. The server is asked only for missing names."""

    def message(self, sequence: int) -> Message | None:
        """The message of this sequence, if the store has it."""

    def lost(self, limit: int = ...) -> list[Message]:
        """Messages that the server lost in a restore, and this device still has."""

    def history(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = ...,
    ) -> list[Message]:
        """Messages oldest first, from the store as far as it reaches and from the server beyond.

        Give at most one of `before`, `after` and `around`, a sequence; without one: the newest."""

    def changes(self, *, after: int, limit: int = ...) -> list[Change]:
        """Edits, deletions and reactions above a sequence, in order: from the store if it reaches
        that far down, else from the server."""

    def members(self) -> Sequence[MemberView]: ...
    def add(self, who: str) -> None:
        """Add a person to a group, by user name or user id. A member just stays in."""

    def remove(self, who: str) -> None:
        """Take a person out of a group, by user name or user id (see `members`)."""

    def leave(self, *, do_not_add_again: bool = False) -> None:
        """Leave this group; with `do_not_add_again` others cannot add this user to it again, until
        `allow_adding` takes that back."""

    def allow_adding(self) -> None:
        """Let others add this user again to a group that was left for good."""

    def hand_over(self, user_id: str) -> None:
        """Make another member the owner of this group, by user id. The owner stays as an admin."""

    def close(self) -> None:
        """Close this group for good: all members are removed, the owner included."""

    def hide(self) -> None:
        """Hide this direct chat until there is another message in it, or it is opened again."""

    def unhide(self) -> None: ...
    def rename(self, name: str) -> None: ...

class Sent:
    """See `tidewire.client.Sent`. The waits raise TimeoutError."""

    @property
    def client_message_id(self) -> str: ...
    @property
    def chat_id(self) -> ChatId: ...
    @property
    def sequence(self) -> int | None: ...
    @property
    def code(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def amends(self) -> Amendment | None:
        """What it changes, and how; None for a message. Its `target` is 0 until the sequence of the
        target is known."""

    @property
    def kind(self) -> EntryKind:
        """`message`, `edit`, `delete` or `react`."""

    @property
    def text(self) -> str:
        """The text of a message, or the new text of an edit."""

    @property
    def reply_to(self) -> int | None:
        """The sequence of the message that this one answers."""

    @property
    def mentions(self) -> tuple[UserId, ...]: ...
    @property
    def tick(self) -> Tick: ...
    def stored(self, timeout_s: float | None = None) -> int:
        """Wait until the server has it for good; returns its sequence. `chat.messages()` has it
        then, too. Raises MessageFailed, FateUnknown and ClientClosed."""

    def delivered(self, timeout_s: float | None = None) -> None:
        """Wait until it is on a device of every other member."""

    def read(self, timeout_s: float | None = None) -> None:
        """Wait until every other member has read it."""

    def edit(self, text: str) -> Sent:
        """Replace the text of this message: in the outbox if it surely has not left, else by an
        edit that follows it. Returns what is on its way now. Raises as `Chat.edit` does."""

    def delete(self) -> Sent:
        """Take this message back: drop it from the outbox if it surely has not left, else send a
        deletion after it. Raises as `Chat.delete` does."""

    def retry(self) -> bool:
        """Send it again, if it has failed or its fate is unknown; else False."""

    def drop(self) -> bool:
        """Remove it from the outbox. False: it is on its way, or was, and may arrive."""

class Message:
    """See `tidewire.client.Message`."""

    @property
    def chat_id(self) -> ChatId: ...
    @property
    def sequence(self) -> int: ...
    @property
    def message_id(self) -> MessageId: ...
    @property
    def sender_id(self) -> UserId: ...
    @property
    def client_message_id(self) -> ClientMessageId: ...
    @property
    def text(self) -> str: ...
    @property
    def created_at_ms(self) -> int: ...
    @property
    def is_own(self) -> bool: ...
    @property
    def is_gone(self) -> bool: ...
    @property
    def is_damaged(self) -> bool: ...
    @property
    def is_deleted(self) -> bool: ...
    @property
    def reply_to(self) -> int | None: ...
    @property
    def quoted(self) -> Message | None: ...
    @property
    def mentions(self) -> tuple[UserId, ...]: ...
    @property
    def now(self) -> MessageNow: ...
    @property
    def sender_name(self) -> str | None:
        """The author's display name; None while it is not known."""

    @property
    def created_at(self) -> datetime:
        """When the server stored it, in UTC. For display only: `sequence` gives the order."""

    @property
    def is_edited(self) -> bool: ...
    @property
    def reactions(self) -> tuple[Reaction, ...]:
        """Each has `emoji`, `count`, `is_own` and `users`: ids of some of the users who reacted."""

    @property
    def tick(self) -> Tick | None:
        """The tick of an own message; None for messages of others."""

    def edit(self, text: str, *, base: int | None = None) -> Sent:
        """Give it another text; only its author can. See `Chat.edit`."""

    def delete(self, reason: str | None = None) -> Sent:
        """Delete it for all; its author can, and admins of a group. See `Chat.delete`."""

    def react(self, emoji: str) -> Sent:
        """Put an emoji on it. See `Chat.react`."""

    def unreact(self, emoji: str) -> Sent:
        """Take an emoji back."""
