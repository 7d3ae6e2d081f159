"""Endpoints that add an entry to a chat: a message, or an edit, deletion or reaction. All of them
use the same intake as WebSockets, with the same limits."""

from typing import Annotated, Final, Unpack

from litestar import Response
from litestar.params import FromPath, JSONBody, PathParameter

from tidewire.domain.errors import RateLimited
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.messages import EntryKind, MessageBody
from tidewire.edge.rest.endpoints import REPLAYED, chat_id_of, endpoint
from tidewire.edge.rest.gate import Caller, Services, Tier
from tidewire.edge.rest.services import RestServices
from tidewire.ports.services import Identity, SendFacts
from tidewire.wire.client_frames import (
    AmendPayload,
    DeleteMessagePayload,
    EditMessagePayload,
    ReactPayload,
    amendment_of,
)
from tidewire.wire.forms import form_of
from tidewire.wire.rest_models import Envelope
from tidewire.wire.rest_requests import DeleteMessage, EditMessage, PostMessage, ReactToMessage
from tidewire.wire.server_frames import SendMessageAckPayload

MessageName = Annotated[
    str, PathParameter(description="The `message_id` of a message, or its sequence in the chat.")
]
Stored = Response[Envelope[SendMessageAckPayload]]

_MESSAGE: Final = "/chats/{chat_id:str}/messages/{message_id:str}"


@endpoint("messages", "POST /chats/{chat_id:str}/messages", 404, 409, 415, 422, tier=Tier.SEND)
async def send_message(
    chat_id: FromPath[str], data: JSONBody[PostMessage], services: Services, caller: Caller
) -> Stored:
    """Send a message. When this is answered, the message is stored for good.

    `client_message_id` makes it one message however often it is sent: a repetition is answered with
    200, `deduplicated` and the first one's numbers.
    """
    return await _store(
        services,
        caller,
        chat_id_of(chat_id),
        data.client_message_id,
        data,
        seen_sequence=data.seen_sequence,
    )


@endpoint("messages", f"POST {_MESSAGE}/edits", 404, 409, tier=Tier.SEND)
async def edit_message(
    chat_id: FromPath[str],
    message_id: MessageName,
    data: JSONBody[EditMessage],
    services: Services,
    caller: Caller,
) -> Stored:
    """Edit a message of your own. The edit is an entry of the chat with a sequence of its own.

    With `base` it is refused as `EDIT_CONFLICT`, with the current text, if the last edit is another
    one. Repeated, it is answered as a message is.
    """
    return await _amend(services, caller, chat_id, message_id, data, EditMessagePayload)


@endpoint("messages", f"POST {_MESSAGE}/deletion", 404, 409, tier=Tier.SEND)
async def delete_message(
    chat_id: FromPath[str],
    message_id: MessageName,
    data: JSONBody[DeleteMessage],
    services: Services,
    caller: Caller,
) -> Stored:
    """Delete a message for everybody: one of your own, or, as an admin of the group, any.

    Its text and that of its edits are erased with the answer; its place in the chat stays. The
    deletion is an entry of the chat. Repeated, it is answered as a message is.
    """
    return await _amend(services, caller, chat_id, message_id, data, DeleteMessagePayload)


@endpoint("messages", f"POST {_MESSAGE}/reactions", 404, 409, tier=Tier.SEND)
async def react_to_message(
    chat_id: FromPath[str],
    message_id: MessageName,
    data: JSONBody[ReactToMessage],
    services: Services,
    caller: Caller,
) -> Stored:
    """React to a message, or take a reaction back. You have one or none of each emoji on a message.

    The reaction is an entry of the chat. Repeated, it is answered as a message is.
    """
    return await _amend(services, caller, chat_id, message_id, data, ReactPayload)


def sequence_named(message_id: str) -> int | None:
    """The sequence that is given in the place of a message id; None if it is no sequence."""
    is_number = len(message_id) <= len(str(SEQUENCE_MAX)) and message_id.isascii()
    number = int(message_id) if is_number and message_id.isdecimal() else 0
    return number if 0 < number <= SEQUENCE_MAX else None


async def _amend(
    services: RestServices,
    caller: Identity,
    chat_id: str,
    message_id: str,
    data: EditMessage | DeleteMessage | ReactToMessage,
    kind: type[AmendPayload],
) -> Stored:
    """Do what the WebSocket frame of this kind does."""
    chat = chat_id_of(chat_id)
    target = sequence_named(message_id)
    if target is None:
        named = await services.store.message(caller.user_id, chat, MessageId(message_id))
        target = named.sequence
    payload = form_of(kind, data, chat_id=chat, target=target)
    body, amends, base = amendment_of(payload)
    key = data.client_message_id
    return await _store(services, caller, chat, key, body, amends=amends, base=base)


async def _store(
    services: RestServices,
    caller: Identity,
    chat_id: ChatId,
    key: str,
    body: MessageBody,
    **facts: Unpack[SendFacts],
) -> Stored:
    amends = facts.get("amends")
    is_reaction = amends is not None and amends.kind is EntryKind.REACT
    take = services.sends.take_reaction if is_reaction else services.sends.take
    wait_ms = take(caller.user_id, chat_id, services.clock.monotonic_ms())
    if wait_ms:
        raise RateLimited("too many messages; wait a while", retry_after_ms=wait_ms)
    services.delivery.hasten(caller.user_id, chat_id)
    stored = await services.ingest.send(
        body,
        chat_id=chat_id,
        sender_id=caller.user_id,
        client_message_id=ClientMessageId(key),
        **facts,
    )
    acknowledged = form_of(SendMessageAckPayload, stored, client_message_id=key, chat_id=chat_id)
    return Response(
        Envelope(acknowledged),
        status_code=200 if stored.deduplicated else 201,
        headers=REPLAYED if stored.deduplicated else None,
    )
