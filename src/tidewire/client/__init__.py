"""The Python client: messages that are sent once, arrive once, and survive the process.

    async with Client("https://chat.example.org", store="alice.db") as me:
        chat = await me.direct("bob")
        sent = await chat.send("hi")
        await sent.delivered()
        async for event in me.events():
            ...

`tidewire.client.blocking` has the same without `async`. See docs/client.md.
"""

from tidewire.client.chat import Chat
from tidewire.client.client import Client
from tidewire.client.effects import ConnectionState, Status
from tidewire.client.errors import (
    ClientClosed,
    ClientError,
    EditConflict,
    FateUnknown,
    InvalidMessage,
    LoginNeeded,
    MessageFailed,
    MessageIsDeleted,
    MessageTooLarge,
    OutboxFull,
    RefusedByServer,
    ServerUnreachable,
    StoreUnusable,
)
from tidewire.client.model import (
    Change,
    ChatUpdated,
    Event,
    Message,
    MessageChanged,
    MessageReceived,
    MessageRefused,
    MessageStored,
    StatusMoved,
    TicksMoved,
    Typing,
)
from tidewire.client.options import ClientOptions
from tidewire.client.sent import Sent
from tidewire.domain.delivery import TICK_MARKS, Tick
from tidewire.domain.fold import Reaction
from tidewire.domain.messages import MENTION_ALL, EntryKind

__all__ = [
    "MENTION_ALL",
    "TICK_MARKS",
    "Change",
    "Chat",
    "ChatUpdated",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "ConnectionState",
    "EditConflict",
    "EntryKind",
    "Event",
    "FateUnknown",
    "InvalidMessage",
    "LoginNeeded",
    "Message",
    "MessageChanged",
    "MessageFailed",
    "MessageIsDeleted",
    "MessageReceived",
    "MessageRefused",
    "MessageStored",
    "MessageTooLarge",
    "OutboxFull",
    "Reaction",
    "RefusedByServer",
    "Sent",
    "ServerUnreachable",
    "Status",
    "StatusMoved",
    "StoreUnusable",
    "Tick",
    "TicksMoved",
    "Typing",
]
