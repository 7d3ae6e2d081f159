"""Endpoints of a chat's history, and of positions in it."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter

from tidewire.domain.delivery import Advance, DigestEntry
from tidewire.domain.errors import MessageNotFound, NotAMember, SequenceAboveHead
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.limits import (
    DIGEST_CHATS_MAX,
    HISTORY_MESSAGES_DEFAULT,
    HISTORY_MESSAGES_MAX,
    SEQUENCE_MAX,
)
from tidewire.domain.messages import Message
from tidewire.edge.rest.endpoints import CursorText, chat_id_of, cursor_of, endpoint, limited
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import Caller, Services
from tidewire.edge.rest.services import RestServices
from tidewire.edge.rest.writing import MessageName, sequence_named
from tidewire.ports.services import Identity
from tidewire.wire import rest_models as models
from tidewire.wire import rest_views as views
from tidewire.wire.history import ESCAPED_BYTES_MAX, Changed, fitting
from tidewire.wire.rest_cursors import HistoryCursor, StandingsCursor, encode_cursor
from tidewire.wire.rest_models import Envelope, Page, Pagination
from tidewire.wire.rest_requests import AdvancePositions

CONTEXT_DEFAULT: Final = 25
CONTEXT_MAX: Final = 50
PAGE_BYTES_MAX: Final = 144 * 1024
"""Limit for content. JSON may write a byte as six letters; even then an answer has at most 1 MB."""
HISTORY_BYTES_MAX: Final = PAGE_BYTES_MAX * ESCAPED_BYTES_MAX
"""Limit for a page with the current state of its messages, as `fitting` counts it."""


@endpoint("messages", "GET /chats/{chat_id:str}/messages", 422)
async def list_messages(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    limit: Annotated[
        int,
        QueryParameter(
            ge=1,
            le=HISTORY_MESSAGES_MAX,
            description=limited(HISTORY_MESSAGES_DEFAULT, HISTORY_MESSAGES_MAX),
        ),
    ] = HISTORY_MESSAGES_DEFAULT,
    cursor: CursorText = None,
    direction: Annotated[
        Literal["forward", "backward"] | None,
        QueryParameter(
            description="`backward` is newest first, `forward` oldest first. `backward` unless "
            "told, but `forward` if only `after_sequence` is given."
        ),
    ] = None,
    before_sequence: Annotated[
        int | None,
        QueryParameter(ge=1, le=SEQUENCE_MAX, description="Only messages below this sequence."),
    ] = None,
    after_sequence: Annotated[
        int | None,
        QueryParameter(ge=0, le=SEQUENCE_MAX, description="Only messages above this sequence."),
    ] = None,
) -> models.HistoryPage:
    """List the messages of a chat, and the edits, deletions and reactions among them (`kind`), a
    page at a time. Members see all of it, also what is older than their membership. Sequences may
    have holes; nothing between two pages is missing.

    `now` says what has become of a message, at least up to `as_of`; it is absent if the message is
    as it was written.
    """
    known_id = chat_id_of(chat_id)
    await services.store.access_chat(caller.user_id, known_id)
    if cursor is None:
        only_after = after_sequence is not None and before_sequence is None
        place = HistoryCursor(
            known_id,
            is_forward=direction == "forward" or (direction is None and only_after),
            after=after_sequence or 0,
            before=before_sequence,
        )
    else:
        if (before_sequence, after_sequence, direction) != (None, None, None):
            raise invalid_field(
                "cursor", "a cursor says the direction and the bounds; give it alone"
            )
        place = cursor_of(cursor, HistoryCursor)
        if place.chat_id != known_id:
            raise invalid_field("cursor", "this is a cursor of another chat")
    return await _page(services, caller, place, limit)


@endpoint("messages", "GET /chats/{chat_id:str}/messages/around/{sequence:int}", 404, 422)
async def messages_around(
    chat_id: FromPath[str],
    sequence: Annotated[int, PathParameter(ge=1, le=SEQUENCE_MAX)],
    services: Services,
    caller: Caller,
    context: Annotated[
        int, QueryParameter(ge=1, le=CONTEXT_MAX, description="How many on each side.")
    ] = CONTEXT_DEFAULT,
) -> Envelope[models.AroundView]:
    """Show a message and those next to it, oldest first."""
    reader, known_id = caller.user_id, chat_id_of(chat_id)
    head = (await services.store.access_chat(reader, known_id)).chat.head
    if sequence > head:
        raise SequenceAboveHead(sequence=sequence, head=head)
    half = HISTORY_BYTES_MAX // 2
    older = await services.store.messages_before(
        reader, known_id, sequence, count_max=context, bytes_max=PAGE_BYTES_MAX // 2
    )
    newer = await services.store.messages_after(
        reader, known_id, sequence - 1, count_max=context + 1, bytes_max=PAGE_BYTES_MAX // 2
    )
    changed = await _changed(services, reader, known_id, [*older.messages, *newer.messages])
    # The nearest messages are taken first; those that do not fit are cut off at the far end.
    before = fitting(older.messages[::-1], changed, bytes_max=half)[::-1]
    after = fitting(newer.messages, changed, bytes_max=half)
    return Envelope(
        models.AroundView(
            target_sequence=sequence,
            messages=await _views(services, [*before, *after], changed),
            has_more_before=older.has_more or len(before) < len(older.messages),
            has_more_after=newer.has_more or len(after) < len(newer.messages),
            as_of=older.head,
        )
    )


@endpoint("messages", "GET /chats/{chat_id:str}/messages/{message_id:str}", 404)
async def get_message(
    chat_id: FromPath[str], message_id: MessageName, services: Services, caller: Caller
) -> Envelope[models.MessageView]:
    """Show one message, or another entry of the chat."""
    reader, known_id = caller.user_id, chat_id_of(chat_id)
    sequence = sequence_named(message_id)
    if sequence is None:
        found = [await services.store.message(reader, known_id, MessageId(message_id))]
    else:
        page = await services.store.messages_before(
            reader, known_id, sequence + 1, count_max=1, bytes_max=PAGE_BYTES_MAX
        )
        found = [message for message in page.messages if message.sequence == sequence]
        if not found:
            raise MessageNotFound
    changed = await _changed(services, reader, known_id, found)
    return Envelope((await _views(services, found, changed))[0])


async def _page(
    services: RestServices, caller: Identity, place: HistoryCursor, limit: int
) -> models.HistoryPage:
    """The messages strictly between the bounds, from the end that the direction begins at."""
    reader, chat_id = caller.user_id, place.chat_id
    if place.is_forward:
        read = await services.store.messages_after(
            reader, chat_id, place.after, count_max=limit, bytes_max=PAGE_BYTES_MAX
        )
        before = SEQUENCE_MAX + 1 if place.before is None else place.before
        messages = [message for message in read.messages if message.sequence < before]
        # If the bound has cut off messages, nothing is left below it.
        has_more = read.has_more and len(messages) == len(read.messages) and bool(messages)
        has_more = has_more and messages[-1].sequence + 1 < before
    else:
        read = await services.store.messages_before(
            reader, chat_id, place.before, count_max=limit, bytes_max=PAGE_BYTES_MAX
        )
        messages = [m for m in reversed(read.messages) if m.sequence > place.after]
        has_more = read.has_more and len(messages) == len(read.messages) and bool(messages)
        has_more = has_more and messages[-1].prev_sequence > place.after
    changed = await _changed(services, reader, chat_id, messages)
    shown = fitting(messages, changed, bytes_max=HISTORY_BYTES_MAX)
    has_more = has_more or len(shown) < len(messages)
    return models.HistoryPage(
        data=await _views(services, shown, changed),
        pagination=_pagination(chat_id, place, shown, has_more=has_more),
        as_of=read.head,
    )


def _pagination(
    chat_id: ChatId, place: HistoryCursor, messages: Sequence[Message], *, has_more: bool
) -> Pagination:
    if not messages:
        return Pagination(has_more=False, next_cursor=None)
    first, last = messages[0].sequence, messages[-1].sequence
    if place.is_forward:
        onward = HistoryCursor(chat_id, is_forward=True, after=last, before=place.before)
        back = HistoryCursor(chat_id, is_forward=False, after=0, before=first)
    else:
        onward = HistoryCursor(chat_id, is_forward=False, after=place.after, before=last)
        back = HistoryCursor(chat_id, is_forward=True, after=first, before=None)
    return Pagination(
        has_more=has_more,
        next_cursor=encode_cursor(onward) if has_more else None,
        prev_cursor=encode_cursor(back),
    )


async def _changed(
    services: RestServices, reader: UserId, chat_id: ChatId, messages: Sequence[Message]
) -> Changed:
    """The current state of those that are messages. Read after them, so it is at least as new."""
    sequences = [message.sequence for message in messages if message.amends is None]
    if not sequences:
        return {}
    return await services.store.messages_now(reader, chat_id, sequences)


async def _views(
    services: RestServices, messages: Sequence[Message], changed: Changed
) -> list[models.MessageView]:
    senders = list({message.sender_id: None for message in messages})
    names = await services.people.users(senders) if senders else {}
    return [
        views.message_view(message, names, changed.get(message.sequence)) for message in messages
    ]


CHAT_IDS_MAX: Final = 50
STATES_MAX: Final = 1_000


@endpoint("delivery", "GET /delivery-state", 403)
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
) -> Page[models.DeliveryStateView]:
    """List how far you have got in your chats."""
    if chat_ids is not None:
        wanted = [each for text in chat_ids for each in text.split(",") if each]
        if len(wanted) > CHAT_IDS_MAX:
            raise invalid_field("chat_ids", f"at most {CHAT_IDS_MAX} chats", "TOO_LONG")
        found = [await _standing_of(services, caller.user_id, chat_id_of(each)) for each in wanted]
        return Page(await _state_views(services, caller.user_id, found), views.WHOLE)
    after = None if cursor is None else cursor_of(cursor, StandingsCursor).after
    entries: list[DigestEntry] = []
    while True:
        page = await services.store.digest(
            caller.user_id, after=after, count_max=min(limit - len(entries), DIGEST_CHATS_MAX)
        )
        entries += page.entries
        after = page.next_chat_id
        if after is None or len(entries) >= limit:
            break
    return Page(
        await _state_views(services, caller.user_id, entries),
        Pagination(
            has_more=after is not None,
            next_cursor=None if after is None else encode_cursor(StandingsCursor(after)),
        ),
    )


@endpoint("delivery", "PATCH /chats/{chat_id:str}/delivery-state", 422)
async def advance_positions(
    chat_id: FromPath[str], data: JSONBody[AdvancePositions], services: Services, caller: Caller
) -> models.WatermarkView:
    """Acknowledge messages, or say that they were read. A lower or equal position changes nothing.

    Answered without an envelope, as ADR-008 Appendix F has it.
    """
    return await _advance(services, caller, chat_id_of(chat_id), data)


@endpoint("delivery", "PATCH /delivery-state/{chat_id:str}", 403, 422)
async def advance_positions_alias(
    chat_id: FromPath[str], data: JSONBody[AdvancePositions], services: Services, caller: Caller
) -> Envelope[models.WatermarkView]:
    """Acknowledge messages: the older name of this operation, with an envelope."""
    return Envelope(await _advance(services, caller, chat_id_of(chat_id), data))


@endpoint("delivery", "GET /chats/{chat_id:str}/delivery-status", 422)
async def get_delivery_status(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    for_sequence: Annotated[
        int | None,
        QueryParameter(ge=1, le=SEQUENCE_MAX, description="The last message unless told."),
    ] = None,
) -> models.DeliveryStatusView:
    """Show who has a message: counts over the members it waits for, and each member's positions.

    It waits for the current members who joined before the message, except the author. Answered
    without an envelope, as ADR-008 Appendix F has it.
    """
    status = await services.store.delivery_status(caller.user_id, chat_id_of(chat_id), for_sequence)
    names = await services.people.users([member.user_id for member in status.members])
    return views.delivery_status_view(status, names)


async def _advance(
    services: RestServices, caller: Identity, chat_id: ChatId, data: AdvancePositions
) -> models.WatermarkView:
    delivered, read = data.last_acked_sequence or 0, data.last_read_sequence or 0
    if not delivered and not read:
        raise invalid_field("last_acked_sequence", "this field is required", "REQUIRED")
    await services.delivery.advance(
        Advance(user_id=caller.user_id, chat_id=chat_id, delivered=delivered, read=read)
    )
    status = await services.store.delivery_status(caller.user_id, chat_id, None)
    own = next((each for each in status.members if each.user_id == caller.user_id), None)
    if own is None:
        raise NotAMember
    return views.watermark_view(chat_id, own)


async def _state_views(
    services: RestServices, reader: UserId, entries: Sequence[DigestEntry]
) -> list[models.DeliveryStateView]:
    """The position of a member is never removed, so each entry has a time."""
    moved_at = await services.store.moved_at(reader, [entry.chat_id for entry in entries])
    return [views.delivery_state_view(entry, moved_at[entry.chat_id]) for entry in entries]


async def _standing_of(services: RestServices, reader: UserId, chat_id: ChatId) -> DigestEntry:
    entry = await services.store.standing(reader, chat_id)
    if entry is None:
        raise NotAMember
    return entry
