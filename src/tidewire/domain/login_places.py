"""Devices and addresses from which an account logged in before: a bounded list of marks. PURE.

A login from one of them is not counted together with the tries of strangers, so strangers cannot
lock the owner out. A mark is a hash: it can be compared, and says nothing to a reader of a backup
who does not know the device or the address already.
"""

import base64
import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from tidewire.domain.ids import UserId

PLACES_MAX: Final = 32
"""Marks of one account. A login adds two at most; the least recently used ones are dropped."""

_MARK_BYTES: Final = 12


class PlaceKind(StrEnum):
    DEVICE = "device"
    ADDRESS = "address"


def place_mark(user_id: UserId, kind: PlaceKind, name: str) -> str:
    """The stored mark of a device or an address: 16 letters, different for every account."""
    text = "\n".join(("tidewire login place", user_id, kind, name))
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest[:_MARK_BYTES]).decode()


def remember_places(known: Sequence[str], seen: Sequence[str]) -> tuple[str, ...]:
    """The marks after a login: those of this login first, and no more than the bound."""
    return tuple(dict.fromkeys((*seen, *known)))[:PLACES_MAX]


def encode_places(marks: Sequence[str]) -> str:
    """The list as it is stored: one text."""
    return " ".join(marks)


def decode_places(text: str) -> tuple[str, ...]:
    return tuple(text.split())
