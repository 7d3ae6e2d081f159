"""What the kit needs of a client: a few verbs, so that any client can be driven.

The kit plays the server, the adapter plays the user. An adapter shows what an application would
show and does what a user would do; it never looks at the wire. `sdk.SdkAdapter` drives our own
client, `lines.LinesAdapter` one of any language over stdin and stdout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, kw_only=True)
class Account:
    """The user that the client logs in as. Log in with the name and the password at the URL's REST
    interface, or use the tokens as they are; both lead to the same user.

    `device_id` is the device of the token that was given out last.
    """

    username: str
    password: str
    user_id: str
    device_id: str
    token: str
    refresh_token: str

    def __repr__(self) -> str:
        return f"Account({self.username!r})"


class SendRefused(Exception):
    """The client itself did not take the text; nothing of it may reach the server."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A stored message as the application shows it."""

    sequence: int
    text: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """An own message as the application shows it, sent or not.

    `tick` is `sending`, `sent`, `delivered`, `read` or `failed`.
    """

    text: str
    tick: str


class Adapter(Protocol):
    """One client on one device with a durable store of its own.

    Calls come one at a time. A method that cannot do what it says raises any exception; that
    fails the check that called it.
    """

    time_scale: float
    """The factor on the client's own waits: those of the backoff (1 s, 2 s, …) and of the
    acknowledgements (5 s). 1.0 is a client as it is shipped; 0.2 makes the kit faster."""

    async def start(self, url: str, account: Account) -> None:
        """Begin with an empty store, connect to `url` (http://host:port, which serves `/v1/ws` and
        `/api/v1`). Does not wait for the connection."""

    async def stop(self) -> None:
        """End as a user ends a program. The store stays."""

    async def kill(self) -> None:
        """End as kill -9 does: no goodbye, nothing more is written. The store stays."""

    async def restart(self) -> None:
        """Begin again on the store that `stop` or `kill` left, at the same URL."""

    async def send(self, chat_id: str, text: str) -> None:
        """The user sends a text. Returns when the client has taken it in, not when it was sent.
        Raises SendRefused if the client does not take it."""

    async def messages(self, chat_id: str) -> Sequence[Shown]:
        """The stored messages of a chat, in the order in which they are shown."""

    async def ticks(self, chat_id: str) -> Sequence[Ticked]:
        """The user's own messages of a chat, those that wait and those that failed included."""

    async def read(self, chat_id: str) -> None:
        """The user has seen everything that is shown of the chat."""

    async def state(self) -> str:
        """`connecting`, `syncing`, `ready`, `offline` or `closed`."""

    async def round_trip_ms(self) -> float | None:
        """The last round trip that the client measured; None if it does not measure any."""

    async def dispose(self) -> None:
        """The check is over: end, and remove the store."""
