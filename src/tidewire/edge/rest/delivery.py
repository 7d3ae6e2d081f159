"""Endpoints of delivered and read positions: one's own, and everybody's for a message."""

from collections.abc import Sequence
from typing import Annotated, Final

from litestar import get, patch
from litestar.params import FromPath, JSONBody, QueryParameter

from tidewire.domain.delivery import Advance, DigestEntry
from tidewire.domain.errors import NotAMember
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import DIGEST_CHATS_MAX, SEQUENCE_MAX
from tidewire.edge.rest.checks import chat_id_of, cursor_of
from tidewire.edge.rest.described import CursorText, limited, refusals
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import Caller, Services
from tidewire.edge.rest.services import RestServices
from tidewire.ports.identity import Identity
from tidewire.wire.rest_cursors import StandingsCursor, encode_cursor
from tidewire.wire.rest_models import (
    DeliveryStateView,
    DeliveryStatusView,
    Envelope,
    Page,
    Pagination,
    WatermarkView,
)
from tidewire.wire.rest_requests import AdvancePositions
from tidewire.wire.rest_views import (
    WHOLE,
    delivery_state_view,
    delivery_status_view,
    watermark_view,
)

CHAT_IDS_MAX: Final = 50
STATES_MAX: Final = 1_000


@get("/delivery-state", tags=["delivery"], responses=refusals(403))
async def list_delivery_states(
    services: Services,
    caller: Caller,
    chat_ids: Annotated[
        list[str] | None,
        QueryParameter(
            description=f"At most {CHAT_IDS_MAX} chats, repeated or separated by commas; "
            "all of them unless told."
        ),
    ] = None,
    cursor: CursorText = None,
    limit: Annotated[
        int, QueryParameter(ge=1, le=STATES_MAX, description=limited(STATES_MAX, STATES_MAX))
    ] = STATES_MAX,
) -> Page[DeliveryStateView]:
    """List how far you have got in your chats."""
    if chat_ids is not None:
        wanted = [each for text in chat_ids for each in text.split(",") if each]
        if len(wanted) > CHAT_IDS_MAX:
            raise invalid_field("chat_ids", f"at most {CHAT_IDS_MAX} chats", "TOO_LONG")
        found = [await _standing(services, caller.user_id, chat_id_of(each)) for each in wanted]
        return Page(await _views(services, caller.user_id, found), WHOLE)
    after = None if cursor is None else cursor_of(cursor, StandingsCursor).after
    entries: list[DigestEntry] = []
    while True:
        page = await services.delivery.digest(
            caller.user_id, after=after, count_max=min(limit - len(entries), DIGEST_CHATS_MAX)
        )
        entries += page.entries
        after = page.next_chat_id
        if after is None or len(entries) >= limit:
            break
    return Page(
        await _views(services, caller.user_id, entries),
        Pagination(
            has_more=after is not None,
            next_cursor=None if after is None else encode_cursor(StandingsCursor(after)),
        ),
    )


@patch("/chats/{chat_id:str}/delivery-state", tags=["delivery"], responses=refusals(403, 413, 422))
async def advance_positions(
    chat_id: FromPath[str], data: JSONBody[AdvancePositions], services: Services, caller: Caller
) -> WatermarkView:
    """Acknowledge messages, or say that they were read. What is not higher changes nothing.

    Answered without an envelope, as ADR-008 Appendix F has it.
    """
    return await _advance(services, caller, chat_id_of(chat_id), data)


@patch("/delivery-state/{chat_id:str}", tags=["delivery"], responses=refusals(403, 413, 422))
async def advance_positions_alias(
    chat_id: FromPath[str], data: JSONBody[AdvancePositions], services: Services, caller: Caller
) -> Envelope[WatermarkView]:
    """Acknowledge messages: the older name of this operation, with an envelope."""
    return Envelope(await _advance(services, caller, chat_id_of(chat_id), data))


@get("/chats/{chat_id:str}/delivery-status", tags=["delivery"], responses=refusals(403, 422))
async def get_delivery_status(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    for_sequence: Annotated[
        int | None,
        QueryParameter(ge=1, le=SEQUENCE_MAX, description="The last message unless told."),
    ] = None,
) -> DeliveryStatusView:
    """Show who has a message: the counts of those who are waited for, and each member's positions.

    Waited for are the current members other than the author who joined before the message. Answered
    without an envelope, as ADR-008 Appendix F has it.
    """
    status = await services.delivery.status(caller.user_id, chat_id_of(chat_id), for_sequence)
    names = await services.people.users([member.user_id for member in status.members])
    return delivery_status_view(status, names)


async def _advance(
    services: RestServices, caller: Identity, chat_id: ChatId, data: AdvancePositions
) -> WatermarkView:
    delivered, read = data.last_acked_sequence or 0, data.last_read_sequence or 0
    if not delivered and not read:
        raise invalid_field("last_acked_sequence", "this field is required", "REQUIRED")
    await services.delivery.advance(
        Advance(user_id=caller.user_id, chat_id=chat_id, delivered=delivered, read=read)
    )
    status = await services.delivery.status(caller.user_id, chat_id)
    own = next((each for each in status.members if each.user_id == caller.user_id), None)
    if own is None:
        raise NotAMember
    return watermark_view(chat_id, own)


async def _views(
    services: RestServices, reader: UserId, entries: Sequence[DigestEntry]
) -> list[DeliveryStateView]:
    """The position of a member is never taken away, so each has a time."""
    moved_at = await services.store.moved_at(reader, [entry.chat_id for entry in entries])
    return [delivery_state_view(entry, moved_at[entry.chat_id]) for entry in entries]


async def _standing(services: RestServices, reader: UserId, chat_id: ChatId) -> DigestEntry:
    entry = await services.store.standing(reader, chat_id)
    if entry is None:
        raise NotAMember
    return entry


HANDLERS = (
    list_delivery_states,
    advance_positions,
    advance_positions_alias,
    get_delivery_status,
)
