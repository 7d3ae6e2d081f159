"""Endpoints of chats: made, listed, looked at, renamed, muted."""

from typing import Annotated

from litestar import Response, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from tidewire.domain.accounts import RequestClaimed
from tidewire.domain.chats import Chat, ChatType, CreatedChat, Member, check_chat_name
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_LIST_MAX, MEMBERS_PAGE_MAX
from tidewire.edge.rest.checks import chat_id_of, checked, cursor_of, instant_of
from tidewire.edge.rest.described import CursorText, IdempotencyKey, limited, refusals
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import Caller, Services
from tidewire.edge.rest.once import REPLAYED, carry_out_once
from tidewire.edge.rest.services import RestServices
from tidewire.wire.rest_cursors import ChatsCursor, encode_cursor
from tidewire.wire.rest_models import (
    ChatListEntry,
    ChatSummary,
    ChatView,
    CreatedChatView,
    Envelope,
    MuteView,
    Page,
    Pagination,
)
from tidewire.wire.rest_requests import CreateChat, MuteChat, RenameChat
from tidewire.wire.rest_views import (
    chat_list_entry,
    chat_summary,
    chat_view,
    created_chat_view,
    mute_view,
)
from tidewire.wire.timestamps import TIME_PATTERN

PAGE_CHATS_DEFAULT = 20


@post(
    "/chats",
    tags=["chats"],
    responses=refusals(403, 404, 409, 413, again=Envelope[CreatedChatView]),
)
async def create_chat(
    data: JSONBody[CreateChat],
    services: Services,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response[Envelope[CreatedChatView]]:
    """Make a group, or find or make the direct chat with a person.

    A direct chat that is there already is answered with 200 and `X-Idempotent-Replay`.
    """
    actor = caller.user_id
    _check_create(data, actor)

    async def carry(claim: RequestClaimed) -> tuple[Response[Envelope[CreatedChatView]], str]:
        if data.type is ChatType.DIRECT:
            created = await services.chats.create_direct(actor, UserId(data.member_ids[0]))
            is_repeated = not created.created
        else:
            created = await _create_group(services, actor, data, claim)
            is_repeated = False
        view = await _created_view(services, actor, created.chat)
        answer = Response(
            Envelope(view),
            status_code=200 if is_repeated else 201,
            headers=REPLAYED if is_repeated else None,
        )
        return answer, created.chat.chat_id

    async def replay(made_id: str) -> Envelope[CreatedChatView]:
        access = await services.chats.access(actor, ChatId(made_id))
        return Envelope(await _created_view(services, actor, access.chat))

    return await carry_out_once(
        services,
        actor,
        endpoint="POST /chats",
        key=idempotency_key,
        request=data,
        new_id=services.ids.chat_id(services.clock.wall_ms()),
        carry=carry,
        replay=replay,
    )


@get("/chats", tags=["chats"], responses=refusals())
async def list_chats(
    services: Services,
    caller: Caller,
    cursor: CursorText = None,
    limit: Annotated[
        int, QueryParameter(ge=1, le=CHAT_LIST_MAX, description=limited(20, CHAT_LIST_MAX))
    ] = PAGE_CHATS_DEFAULT,
    updated_since: Annotated[
        str | None,
        QueryParameter(
            description="Leave out chats without activity since this time.",
            schema_extra={"pattern": TIME_PATTERN},
        ),
    ] = None,
) -> Page[ChatListEntry]:
    """List your chats, newest activity first.

    All pages follow the order of the instant at which the first was read: a chat that moves to the
    top meanwhile is neither skipped nor repeated.
    """
    if cursor is None:
        place = None
        since_ms = 0 if updated_since is None else instant_of("updated_since", updated_since)
    else:
        decoded = cursor_of(cursor, ChatsCursor)
        place, since_ms = decoded.place(), decoded.active_since_ms
    page = await services.chats.chat_list(
        caller.user_id, cursor=place, count_max=limit, active_since_ms=since_ms
    )
    following = page.next
    return Page(
        [chat_list_entry(item) for item in page.items],
        Pagination(
            has_more=following is not None,
            next_cursor=None
            if following is None
            else encode_cursor(
                ChatsCursor(
                    following.snapshot, following.activity_at_ms, following.chat_id, since_ms
                )
            ),
        ),
    )


@get("/chats/{chat_id:str}", tags=["chats"], responses=refusals(403))
async def get_chat(
    chat_id: FromPath[str], services: Services, caller: Caller
) -> Envelope[ChatView]:
    """Show a chat, its members and your own place in it."""
    reader = caller.user_id
    access = await services.chats.access(reader, chat_id_of(chat_id))
    members = await all_members(services, reader, access.chat.chat_id)
    standing = await services.store.standing(reader, access.chat.chat_id)
    names = await services.people.users([member.user_id for member in members])
    positions = NOWHERE if standing is None else Positions(standing.delivered, standing.read)
    return Envelope(chat_view(access, positions, members, names))


@patch("/chats/{chat_id:str}", tags=["chats"], responses=refusals(403, 413))
async def rename_chat(
    chat_id: FromPath[str], data: JSONBody[RenameChat], services: Services, caller: Caller
) -> Envelope[ChatSummary]:
    """Give a group another name. For its owner and its admins."""
    known_id = chat_id_of(chat_id)
    await services.chats.access(caller.user_id, known_id)
    name = checked("name", check_chat_name, data.name)
    return Envelope(
        chat_summary((await services.chats.rename(caller.user_id, known_id, name)).chat)
    )


@post("/chats/{chat_id:str}/mute", tags=["chats"], status_code=200, responses=refusals(403, 413))
async def mute_chat(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    data: JSONBody[MuteChat | None] = None,
) -> Envelope[MuteView]:
    """Mute a chat for some hours, or for good. Nobody else is told."""
    hours = None if data is None else data.duration_hours
    member = await services.chats.mute(caller.user_id, chat_id_of(chat_id), hours)
    return Envelope(mute_view(ChatId(chat_id), member))


@post("/chats/{chat_id:str}/unmute", tags=["chats"], status_code=200, responses=refusals(403))
async def unmute_chat(
    chat_id: FromPath[str], services: Services, caller: Caller
) -> Envelope[MuteView]:
    """Undo a mute."""
    member = await services.chats.unmute(caller.user_id, chat_id_of(chat_id))
    return Envelope(mute_view(ChatId(chat_id), member))


@post("/chats/{chat_id:str}/hide", tags=["chats"], status_code=204, responses=refusals(403))
async def hide_chat(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Hide a direct chat. Nobody else is told.

    It is listed with `is_hidden` until there is another message in it, or you open it again.
    """
    await services.chats.hide(caller.user_id, chat_id_of(chat_id))


@post("/chats/{chat_id:str}/unhide", tags=["chats"], status_code=204, responses=refusals(403))
async def unhide_chat(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Show a direct chat again that you have hidden."""
    await services.chats.unhide(caller.user_id, chat_id_of(chat_id))


async def all_members(services: RestServices, reader: UserId, chat_id: ChatId) -> list[Member]:
    """Every member, by user id. Raises NotAMember."""
    members: list[Member] = []
    while True:
        after = members[-1].user_id if members else None
        page = await services.chats.members(reader, chat_id, after=after)
        members += page
        if len(page) < MEMBERS_PAGE_MAX:
            return members


def _check_create(data: CreateChat, actor: UserId) -> None:
    if data.type is ChatType.DIRECT:
        if len(data.member_ids) != 1:
            raise invalid_field("member_ids", "a direct chat is with one other person", "TOO_LONG")
        if data.name is not None:
            raise invalid_field("name", "a direct chat has no name")
    elif data.name is None:
        raise invalid_field("name", "a group has a name", "REQUIRED")
    else:
        checked("name", check_chat_name, data.name)
    if actor in data.member_ids:
        raise invalid_field("member_ids", "the others are named here, not oneself")
    if len(set(data.member_ids)) != len(data.member_ids):
        raise invalid_field("member_ids", "everybody is named once")


async def _create_group(
    services: RestServices, actor: UserId, data: CreateChat, claim: RequestClaimed
) -> CreatedChat:
    assert data.name is not None
    assert claim.resource_id is not None
    return await services.chats.create_group(
        actor,
        data.name,
        [UserId(member_id) for member_id in data.member_ids],
        chat_id=ChatId(claim.resource_id),
    )


async def _created_view(services: RestServices, actor: UserId, chat: Chat) -> CreatedChatView:
    members = await all_members(services, actor, chat.chat_id)
    names = await services.people.users([member.user_id for member in members])
    return created_chat_view(chat, members, names)


HANDLERS = (
    create_chat,
    list_chats,
    get_chat,
    rename_chat,
    mute_chat,
    unmute_chat,
    hide_chat,
    unhide_chat,
)
