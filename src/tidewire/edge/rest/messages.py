"""Endpoints of messages: history, and sending through the same intake as every socket."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter

from tidewire.domain.errors import RateLimited, SequenceAboveHead
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId
from tidewire.domain.limits import (
    HISTORY_MESSAGES_DEFAULT,
    HISTORY_MESSAGES_MAX,
    SEQUENCE_MAX,
)
from tidewire.domain.messages import Message
from tidewire.edge.rest.checks import chat_id_of, cursor_of
from tidewire.edge.rest.described import CursorText, limited, refusals
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import Caller, Services, Tier, counted_as
from tidewire.edge.rest.once import REPLAYED
from tidewire.edge.rest.services import RestServices
from tidewire.ports.identity import Identity
from tidewire.wire.rest_cursors import HistoryCursor, encode_cursor
from tidewire.wire.rest_models import AroundView, Envelope, MessageView, Page, Pagination
from tidewire.wire.rest_requests import PostMessage
from tidewire.wire.rest_views import message_view
from tidewire.wire.server_frames import SendMessageAckPayload
from tidewire.wire.timestamps import format_time_ms

CONTEXT_DEFAULT: Final = 25
CONTEXT_MAX: Final = 50
PAGE_BYTES_MAX: Final = 144 * 1024
"""Of content. JSON may write a byte as six letters; an answer has at most 1 MB all the same."""


@get("/chats/{chat_id:str}/messages", tags=["messages"], responses=refusals(403, 422))
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
) -> Page[MessageView]:
    """List the messages of a chat, a page at a time. Members see all of it, also what is older than
    their membership. Sequences may have holes; none of the messages between two pages is missing.
    """
    known_id = chat_id_of(chat_id)
    await services.chats.access(caller.user_id, known_id)
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


@get(
    "/chats/{chat_id:str}/messages/around/{sequence:int}",
    tags=["messages"],
    responses=refusals(403, 404, 422),
)
async def messages_around(
    chat_id: FromPath[str],
    sequence: Annotated[int, PathParameter(ge=1, le=SEQUENCE_MAX)],
    services: Services,
    caller: Caller,
    context: Annotated[
        int, QueryParameter(ge=1, le=CONTEXT_MAX, description="How many on each side.")
    ] = CONTEXT_DEFAULT,
) -> Envelope[AroundView]:
    """Show a message and those next to it, oldest first."""
    reader, known_id = caller.user_id, chat_id_of(chat_id)
    head = (await services.chats.access(reader, known_id)).chat.head
    if sequence > head:
        raise SequenceAboveHead(sequence=sequence, head=head)
    older = await services.store.messages_before(
        reader, known_id, sequence, count_max=context, bytes_max=PAGE_BYTES_MAX // 2
    )
    newer = await services.store.messages_after(
        reader, known_id, sequence - 1, count_max=context + 1, bytes_max=PAGE_BYTES_MAX // 2
    )
    return Envelope(
        AroundView(
            target_sequence=sequence,
            messages=await _views(services, [*older.messages, *newer.messages]),
            has_more_before=older.has_more,
            has_more_after=newer.has_more,
        )
    )


@get(
    "/chats/{chat_id:str}/messages/{message_id:str}",
    tags=["messages"],
    responses=refusals(403, 404),
)
async def get_message(
    chat_id: FromPath[str], message_id: FromPath[str], services: Services, caller: Caller
) -> Envelope[MessageView]:
    """Show one message."""
    message = await services.store.message(
        caller.user_id, chat_id_of(chat_id), MessageId(message_id)
    )
    return Envelope((await _views(services, [message]))[0])


@post(
    "/chats/{chat_id:str}/messages",
    tags=["messages"],
    opt=counted_as(Tier.SEND),
    responses=refusals(403, 409, 413, 415, again=Envelope[SendMessageAckPayload]),
)
async def send_message(
    chat_id: FromPath[str], data: JSONBody[PostMessage], services: Services, caller: Caller
) -> Response[Envelope[SendMessageAckPayload]]:
    """Send a message. When this is answered, the message is stored for good.

    `client_message_id` makes it one message however often it is sent: a repetition is answered with
    200, `deduplicated` and the first one's numbers.
    """
    known_id = chat_id_of(chat_id)
    wait_ms = services.sends.take(caller.user_id, known_id, services.clock.monotonic_ms())
    if wait_ms:
        raise RateLimited("too many messages; wait a while", retry_after_ms=wait_ms)
    stored = await services.ingest.send(
        chat_id=known_id,
        sender_id=caller.user_id,
        client_message_id=ClientMessageId(data.client_message_id),
        content=data.content,
        content_type=data.content_type,
        seen_sequence=data.seen_sequence,
    )
    acknowledged = SendMessageAckPayload(
        client_message_id=ClientMessageId(data.client_message_id),
        message_id=stored.message_id,
        chat_id=known_id,
        sequence=stored.sequence,
        prev_sequence=stored.prev_sequence,
        created_at=format_time_ms(stored.created_at_ms),
        deduplicated=stored.deduplicated,
    )
    return Response(
        Envelope(acknowledged),
        status_code=200 if stored.deduplicated else 201,
        headers=REPLAYED if stored.deduplicated else None,
    )


async def _page(
    services: RestServices, caller: Identity, place: HistoryCursor, limit: int
) -> Page[MessageView]:
    """The messages strictly between the bounds, from the end that the direction begins at."""
    reader, chat_id = caller.user_id, place.chat_id
    if place.is_forward:
        read = await services.store.messages_after(
            reader, chat_id, place.after, count_max=limit, bytes_max=PAGE_BYTES_MAX
        )
        before = SEQUENCE_MAX + 1 if place.before is None else place.before
        messages = [message for message in read.messages if message.sequence < before]
        # Whether something is left below the bound is known once the bound was met.
        has_more = read.has_more and len(messages) == len(read.messages) and bool(messages)
        has_more = has_more and messages[-1].sequence + 1 < before
    else:
        read = await services.store.messages_before(
            reader, chat_id, place.before, count_max=limit, bytes_max=PAGE_BYTES_MAX
        )
        messages = [m for m in reversed(read.messages) if m.sequence > place.after]
        has_more = read.has_more and len(messages) == len(read.messages) and bool(messages)
        has_more = has_more and messages[-1].prev_sequence > place.after
    return Page(
        await _views(services, messages), _pagination(chat_id, place, messages, has_more=has_more)
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


async def _views(services: RestServices, messages: Sequence[Message]) -> list[MessageView]:
    senders = list({message.sender_id: None for message in messages})
    names = await services.people.users(senders) if senders else {}
    return [message_view(message, names) for message in messages]


HANDLERS = (list_messages, messages_around, get_message, send_message)
