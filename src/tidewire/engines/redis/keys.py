"""The names of keys in Redis, and which of them one call may touch. PURE.

Redis Cluster places a key by the text between braces, the tag, and runs a script only on keys of
one tag's slot. Keys that are used together have one tag: a gateway's own keys have its id. Users
share a few hundred tags: with a tag for each user, each asserted route would be a call of its own.
A single Redis has no tags: its names are those of 0.1, whose processes still run in an upgrade.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from tidewire.domain.ids import ChatId, UserId, is_safe_token

ROUTE_TAGS: Final = 512
LIMIT_TAGS: Final = 16
LIST_TAGS: Final = ("list0", "list1", "list3")
"""Their slots are in the first, second and third part of all: as a rule on three servers."""

Item = TypeVar("Item")


class Keys(NamedTuple):
    prefix: str
    is_tagged: bool

    def route(self, user_id: UserId) -> str:
        if self.is_tagged:
            return f"{self.prefix}route:{{{route_tag(user_id)}}}:{user_id}"
        return f"{self.prefix}route:{user_id}"

    def gateway(self, gateway_id: str) -> str:
        return f"{self.prefix}gateway:{self._tag(gateway_id)}"

    def stream(self, gateway_id: str, incarnation: str) -> str:
        """In a cluster one key for all incarnations: the caller that appends must name the key,
        and knows no incarnation."""
        name = f"{self.prefix}stream:{self._tag(gateway_id)}"
        return name if self.is_tagged else f"{name}:{incarnation}"

    def appending(self, gateway_id: str, router_id: str) -> tuple[str, str, str]:
        """The keys that `append` gets for a gateway. The script itself adds the incarnation to the
        stream's name if it is part of the name."""
        tag = self._tag(gateway_id)
        return (
            f"{self.prefix}gateway:{tag}",
            f"{self.prefix}stream:{tag}",
            f"{self.prefix}router:{tag}:{router_id}",
        )

    def lists(self) -> list[str]:
        """In a cluster three copies of the list of gateways, because one may be lost."""
        if self.is_tagged:
            return [f"{self.prefix}gateways:{{{tag}}}" for tag in LIST_TAGS]
        return [f"{self.prefix}gateways"]

    @property
    def lists_min(self) -> int:
        """How many lists a gateway has to be on, and how many have to answer a request for all
        gateways: more than half, so that both have a list in common."""
        return 2 if self.is_tagged else 1

    def lease(self, chat_id: ChatId) -> str:
        return f"{self.prefix}lease:{self._tag(chat_id)}"

    def limit(self, name: str) -> str:
        if self.is_tagged:
            return f"{self.prefix}limit:{{{limit_tag(name)}}}:{name}"
        return f"{self.prefix}limit:{name}"

    def groups(self, items: Sequence[Item], tag_of: Callable[[Item], int]) -> list[Sequence[Item]]:
        """Items in groups of one call each: by tag; on a single Redis all together."""
        if not self.is_tagged:
            return [items]
        found: dict[int, list[Item]] = {}
        for item in items:
            found.setdefault(tag_of(item), []).append(item)
        return list(found.values())

    def _tag(self, name: str) -> str:
        return f"{{{name}}}" if self.is_tagged else name


def route_tag(user_id: str) -> int:
    return crc32(user_id.encode()) % ROUTE_TAGS


def limit_tag(name: str) -> int:
    return crc32(name.encode()) % LIMIT_TAGS


def gateway_named(told: bytes) -> str | None:
    """The id of a gateway as Redis returned it; None if it is damaged, and so no id."""
    name = told.decode("ascii", "replace")
    return name if is_safe_token(name) else None
