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
    FateUnknown,
    InvalidMessage,
    LoginNeeded,
    MessageFailed,
    MessageTooLarge,
    OutboxFull,
    RefusedByServer,
    ServerUnreachable,
    StoreUnusable,
)
from tidewire.client.model import (
    ChatUpdated,
    Event,
    Message,
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

__all__ = [
    "TICK_MARKS",
    "Chat",
    "ChatUpdated",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "ConnectionState",
    "Event",
    "FateUnknown",
    "InvalidMessage",
    "LoginNeeded",
    "Message",
    "MessageFailed",
    "MessageReceived",
    "MessageRefused",
    "MessageStored",
    "MessageTooLarge",
    "OutboxFull",
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
