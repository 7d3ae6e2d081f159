"""Carries a request out once, however often it comes with the same Idempotency-Key (A-05).

A key names one request of one user to one endpoint, for a day. The same again is answered from what
is there now, with 200 and `X-Idempotent-Replay`; the same key for something else is refused.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from litestar import Response

from tidewire.domain.accounts import (
    RequestClaimed,
    RequestKey,
    RequestMismatch,
    RequestPending,
    RequestReplayed,
)
from tidewire.domain.errors import Refused, RequestInProgress, RequestKeyReused
from tidewire.domain.ids import UserId, is_uuid
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.services import RestServices
from tidewire.wire.rest_requests import IDEMPOTENCY_FIELD

REPLAYED: Final = {"x-idempotent-replay": "true"}

View = TypeVar("View")
Carry = Callable[[RequestClaimed], Awaitable[tuple[Response[View], str]]]
"""Does what is asked; the answer, and the id of what was made."""
Replay = Callable[[str], Awaitable[View]]
"""What is there now, by that id."""


async def carry_out_once(
    services: RestServices,
    user_id: UserId,
    *,
    endpoint: str,
    key: str | None,
    request: Any,
    new_id: str | None,
    carry: Carry[View],
    replay: Replay[View],
) -> Response[View]:
    """Carry a request out, or answer for the time it was. Without a key it is simply carried out.

    `request` is all that makes it the same request. `new_id` is what the thing to be made shall be
    called; one that resumes an earlier try gets that one's. What is refused has made nothing, and
    its key is free again. If the outcome is not known, the key stays taken until it has aged.
    """
    if key is None:
        return (await carry(RequestClaimed(new_id)))[0]
    if not is_uuid(key):
        raise invalid_field(IDEMPOTENCY_FIELD, "a UUID is expected")
    request_key = RequestKey(user_id=user_id, endpoint=endpoint, key=key.lower())
    claim = await services.store.claim_request(
        request_key,
        hashlib.sha256(msgspec.json.encode(request)).digest(),
        resource_id=new_id,
        now_ms=services.clock.wall_ms(),
    )
    match claim:
        case RequestMismatch():
            raise RequestKeyReused
        case RequestPending():
            raise RequestInProgress
        case RequestReplayed(resource_id=made_id):
            return Response(await replay(made_id or ""), status_code=200, headers=REPLAYED)
        case RequestClaimed():
            pass
    try:
        answer, made_id = await carry(claim)
    except Refused:
        await services.store.release_request(request_key)
        raise
    await services.store.finish_request(
        request_key, http_status=answer.status_code or 200, resource_id=made_id
    )
    return answer
