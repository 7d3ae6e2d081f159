"""Finds the chat that an argument names, and the file in which a login is kept. PURE."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import CHAT_PREFIX, has_form
from tidewire.domain.users import check_username

STORES_MAX: Final = 4
"""How many processes of one user and server run side by side: each needs a store of its own, and
a server keeps five logins a user."""


class ById(msgspec.Struct, frozen=True):
    chat_id: str


class WithUser(msgspec.Struct, frozen=True):
    username: str


class ByName(msgspec.Struct, frozen=True):
    """A group's name, or a user name."""

    name: str


Address = ById | WithUser | ByName


class Known(msgspec.Struct, frozen=True):
    """A group that its user is in."""

    chat_id: str
    name: str


def parse_address(text: str) -> Address:
    """`chat_01H…`, `@bob`, or a name. Raises InvalidOperation."""
    text = text.strip()
    if has_form(text, CHAT_PREFIX):
        return ById(text)
    if text.startswith("@"):
        return WithUser(check_username(text.removeprefix("@")))
    if not text:
        raise InvalidOperation("say which chat: its id, @user, or a group's name")
    return ByName(text)


def may_be_username(name: str) -> bool:
    try:
        check_username(name)
    except InvalidOperation:
        return False
    return True


def choose(name: str, groups: Sequence[Known], *, is_user: bool) -> ById | WithUser:
    """The chat that a bare name means. Raises InvalidOperation if there is none, or several."""
    named = [group for group in groups if group.name == name] or [
        group for group in groups if group.name.casefold() == name.casefold()
    ]
    if len(named) > 1:
        ids = ", ".join(group.chat_id for group in named)
        raise InvalidOperation(f"several groups are called {name!r}; give the id of one: {ids}")
    if named and is_user:
        raise InvalidOperation(
            f"{name!r} is a user and a group; write @{name}, or the group's id: {named[0].chat_id}"
        )
    if named:
        return ById(named[0].chat_id)
    if is_user:
        return WithUser(name)
    raise InvalidOperation(f"there is no group and no user called {name!r}")


def store_name(url: str, username: str, number: int = 1) -> str:
    """The file of a login, below a directory: `chat.example.org/alice.db`. Characters that a file
    name may not have are spelt out, so that two logins never share a file."""
    parts = urlsplit(url)
    server = _spelt(parts.netloc + parts.path.rstrip("/"))
    suffix = "" if number == 1 else f"-{number}"
    return f"{server}/{_spelt(username)}{suffix}.db"


def _spelt(text: str) -> str:
    """In lower case, because user names that differ only in case belong to one user."""
    return re.sub(r"[^a-z0-9.-]|^\.", lambda match: f"_{ord(match[0]):02x}", text.lower())
