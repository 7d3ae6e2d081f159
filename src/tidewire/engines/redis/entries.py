"""Which entries go to which gateway: from what is to be told and where users are. PURE."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidewire.domain.ids import UserId
from tidewire.engines.redis.keys import Keys
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind, Parcel

FIELDS: Final = 5
"""Words of an entry, as the script takes them."""

Words = list[bytes | str]
"""The entries of one gateway: kind, users, except connection, body and news of each."""


def appending_words(keys: Keys, number: int, options: RedisOptions) -> list[bytes | str | int]:
    """What the script is told before the entries; `number` of the batch, or 0."""
    is_named = 0 if keys.is_tagged else 1
    return [number, options.stream_entries_max, options.life_ms, is_named]


def entries_by_gateway(
    parcels: Sequence[Parcel],
    homes: Mapping[UserId, Sequence[str] | None],
    everybody: Sequence[str],
    *,
    own_id: str,
) -> dict[str, Words]:
    """`homes` are the gateways at which users are connected; None where that could not be found
    out: then every gateway is told, and those without the user do nothing. News are for others
    than the one that tells them."""
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
