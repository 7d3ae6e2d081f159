"""Decides which entries go to which gateway, from what is to be told and where users are connected;
reads the entries that have come. PURE."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.engines.redis.keys import Keys
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind, Parcel

FIELDS: Final = 5
"""How many words an entry has, as the script takes them."""

_OF_TEXT: Final = frozenset({Kind.RESYNC, Kind.REVOKE, Kind.DUPLICATE, Kind.FORGET_ROSTER})

Words = list[bytes | str]
"""The entries of one gateway: kind, users, except connection, body and news of each."""


class Received(NamedTuple):
    """An entry of a gateway's stream."""

    number: int
    kind: str
    user_ids: list[UserId]
    except_connection: ConnectionId | None
    body: bytes
    text: str
    """The body as text, if it holds ids or a reason."""
    news: bytes


def received(fields: Mapping[bytes, bytes]) -> Received | None:
    """None if the entry cannot be read."""
    try:
        kind, body = fields[b"k"].decode(), fields[b"f"]
        return Received(
            int(fields[b"n"]),
            kind,
            [UserId(one) for one in fields[b"u"].decode().split()],
            ConnectionId(fields[b"x"].decode()) if fields[b"x"] else None,
            body,
            body.decode() if kind in _OF_TEXT else "",
            fields.get(b"w", b""),
        )
    except (KeyError, ValueError):
        return None


def appending_words(keys: Keys, number: int, options: RedisOptions) -> list[bytes | str | int]:
    """The arguments of the script before the entries; `number` is the batch's, or 0."""
    is_named = 0 if keys.is_tagged else 1
    return [number, options.stream_entries_max, options.life_ms, is_named]


def entries_by_gateway(
    parcels: Sequence[Parcel],
    homes: Mapping[UserId, Sequence[str] | None],
    everybody: Sequence[str],
    *,
    own_id: str,
) -> dict[str, Words]:
    """`homes` are the gateways at which each user is connected, or None if that is not known: then
    every gateway gets the entry, and those without the user do nothing. News go only to gateways
    other than `own_id`, which sends them."""
    found: dict[str, Words] = {}
    for kind, user_ids, body, except_connection, news in parcels:
        users_by_gateway: dict[str, list[UserId]] = {}
        if user_ids is None:
            users_by_gateway = {gateway: [] for gateway in everybody}
        else:
            for user_id in user_ids:
                gateways = homes[user_id]
                for gateway in everybody if gateways is None else gateways:
                    users = users_by_gateway.get(gateway)
                    if users is None:
                        users_by_gateway[gateway] = [user_id]
                    else:
                        users.append(user_id)
        is_news = kind is Kind.NEWS
        for gateway, named in users_by_gateway.items():
            if is_news and gateway == own_id:
                continue
            words = found.get(gateway)
            if words is None:
                words = found[gateway] = []
            words += (
                kind.value,
                "" if is_news else " ".join(named),
                except_connection or "",
                body,
                news,
            )
    return found
