"""Opening a client for a command: which store, which login, and whether a password is needed."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tidewire.client import Client, ClientOptions, LoginNeeded, StoreUnusable
from tidewire.client.store import Store
from tidewire.client.tables import Tables
from tidewire.terminal.addresses import STORES_MAX, store_name

T = TypeVar("T")

_BUSY: Final = "in use by another process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line says about the user, the server and the store."""

    url: str
    username: str | None
    directory: Path
    """The directory of the stores, if no store is named."""
    store: Path | None = None
    is_new: bool = False
    """Make the account."""
    invite: str | None = None
    options: ClientOptions | None = None
    ssl_context: ssl.SSLContext | None = None
    """The authorities to trust instead of the system's."""


AskPassword = Callable[[str], str]
"""Gives the password of a user name. Called only if there is no login yet."""


async def open_session(
    wish: Wish, ask_password: AskPassword, tell: Callable[[str], None]
) -> Client:
    """A client with a login, not started yet. Raises ClientError.

    If no store is named, the first free one is used: a chat and a `tail` of the same person may run
    side by side, each as a device of its own.
    """
    busy: StoreUnusable | None = None

    def ask(username: str) -> str:
        if busy is not None:
            tell(f"{username} is active here already; this is one more device, with its own login")
        return ask_password(username)

    for path in _candidates(wish):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return await _open(wish, path, ask)
        except StoreUnusable as error:
            if wish.store is not None or _BUSY not in str(error):
                raise
            busy = error
    assert busy is not None
    raise busy


def _candidates(wish: Wish) -> list[Path]:
    if wish.store is not None:
        return [wish.store]
    if wish.username is None:
        raise LoginNeeded("say who you are: --user NAME (or --store FILE with a login in it)")
    return [
        wish.directory / store_name(wish.url, wish.username, number)
        for number in range(1, STORES_MAX + 1)
    ]


async def _open(wish: Wish, path: Path, ask_password: AskPassword) -> Client:
    known, has_login = await _with_store(
        str(path),
        lambda tables: (tables.meta("username"), tables.meta("refresh_token") is not None),
    )
    username = wish.username or known
    how: dict[str, Any] = {
        "store": path,
        "options": wish.options,
        "ssl_context": wish.ssl_context,
    }
    if has_login and not wish.is_new:
        if username and known and username.casefold() != known.casefold():
            raise StoreUnusable(f"the store {path} is {known}'s; name another with --store")
        return Client(wish.url, **how)
    if username is None:
        raise LoginNeeded(f"there is no login in {path}: say who you are with --user NAME")
    password = ask_password(username)
    if wish.is_new:
        return await Client.register(wish.url, username, password, invite=wish.invite, **how)
    return await Client.login(wish.url, username, password, **how)


async def forget_login(client_store: str) -> None:
    """Remove a login that the server refuses for good: the next start asks for the password."""
    await _with_store(
        client_store, lambda tables: tables.set_meta(refresh_token=None, access_token=None)
    )


async def _with_store(path: str, job: Callable[[Tables], T]) -> T:
    """Do something with a store that no client has open. Raises StoreUnusable if one has."""
    store = Store(path)
    try:
        return await store.do(job)
    finally:
        await store.close()
