"""Endpoints of chats and their members."""

from typing import Annotated

from litestar import Response
from litestar.params import FromPath, JSONBody, QueryParameter

from tidewire.domain.accounts import RequestClaimed
from tidewire.domain.chats import Chat, ChatType, CreatedChat, Member, Role, check_chat_name
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import AlreadyAMember, UserNotFound
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_LIST_MAX
from tidewire.edge.rest.endpoints import (
    PAGE_DEFAULT,
    REPLAYED,
    CursorText,
    IdempotencyKey,
    PageLimit,
    carry_out_once,
    chat_id_of,
    checked,
    cursor_of,
    endpoint,
    instant_of,
    limited,
    read_page,
    user_id_of,
)
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import Caller, Services
from tidewire.edge.rest.services import RestServices
from tidewire.wire import rest_models as models
from tidewire.wire import rest_requests as bodies
from tidewire.wire import rest_views as views
from tidewire.wire.rest_cursors import ChatsCursor, RefusedGroupsCursor, encode_cursor
from tidewire.wire.rest_models import Envelope, Page, Pagination
from tidewire.wire.timestamps import TIME_PATTERN

PAGE_CHATS_DEFAULT = 20


@endpoint("chats", "POST /chats", 403, 404, 409)
async def create_chat(
    data: JSONBody[bodies.CreateChat],
    services: Services,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response[Envelope[models.CreatedChatView]]:
    """Make a group, or find or make the direct chat with a person.

    A direct chat that is there already is answered with 200 and `X-Idempotent-Replay`.
    """
    actor = caller.user_id
    _check_create(data, actor)

    async def carry(
        claim: RequestClaimed,
    ) -> tuple[Response[Envelope[models.CreatedChatView]], str]:
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

    async def replay(made_id: str) -> Envelope[models.CreatedChatView]:
        access = await services.store.access_chat(actor, ChatId(made_id))
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


@endpoint("chats", "GET /chats")
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
) -> Page[models.ChatListEntry]:
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
    page = await services.store.chat_list(
        caller.user_id, cursor=place, count_max=limit, active_since_ms=since_ms
    )
    following = page.next
    return Page(
        [views.chat_list_entry(item) for item in page.items],
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


@endpoint("chats", "GET /chats/{chat_id:str}")
async def get_chat(
    chat_id: FromPath[str], services: Services, caller: Caller
) -> Envelope[models.ChatView]:
    """Show a chat, its members and your own place in it."""
    reader = caller.user_id
    access = await services.store.access_chat(reader, chat_id_of(chat_id))
    members = await services.chats.all_members(reader, access.chat.chat_id)
    standing = await services.store.standing(reader, access.chat.chat_id)
    names = await services.people.users([member.user_id for member in members])
    positions = NOWHERE if standing is None else Positions(standing.delivered, standing.read)
    return Envelope(views.chat_view(access, positions, members, names))


@endpoint("chats", "PATCH /chats/{chat_id:str}")
async def rename_chat(
    chat_id: FromPath[str], data: JSONBody[bodies.RenameChat], services: Services, caller: Caller
) -> Envelope[models.ChatSummary]:
    """Give a group another name. For its owner and its admins."""
    known_id = chat_id_of(chat_id)
    await services.store.access_chat(caller.user_id, known_id)
    name = checked("name", check_chat_name, data.name)
    return Envelope(
        views.chat_summary((await services.chats.rename(caller.user_id, known_id, name)).chat)
    )


@endpoint("chats", "POST /chats/{chat_id:str}/mute")
async def mute_chat(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    data: JSONBody[bodies.MuteChat | None] = None,
) -> Envelope[models.MuteView]:
    """Mute a chat for some hours, or for good. Other members are not told."""
    hours = None if data is None else data.duration_hours
    member = await services.chats.mute(caller.user_id, chat_id_of(chat_id), hours)
    return Envelope(views.mute_view(ChatId(chat_id), member))


@endpoint("chats", "POST /chats/{chat_id:str}/unmute")
async def unmute_chat(
    chat_id: FromPath[str], services: Services, caller: Caller
) -> Envelope[models.MuteView]:
    """Undo a mute."""
    member = await services.store.mute(caller.user_id, chat_id_of(chat_id), None)
    return Envelope(views.mute_view(ChatId(chat_id), member))


@endpoint("chats", "POST /chats/{chat_id:str}/hide")
async def hide_chat(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Hide a direct chat. The other person is not told.

    It is listed with `is_hidden` until there is another message in it, or you open it again.
    """
    await services.store.hide(caller.user_id, chat_id_of(chat_id), wanted=True)


@endpoint("chats", "POST /chats/{chat_id:str}/unhide")
async def unhide_chat(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Show a direct chat again that you have hidden."""
    await services.store.hide(caller.user_id, chat_id_of(chat_id), wanted=False)


def _check_create(data: bodies.CreateChat, actor: UserId) -> None:
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
    services: RestServices, actor: UserId, data: bodies.CreateChat, claim: RequestClaimed
) -> CreatedChat:
    assert data.name is not None
    assert claim.resource_id is not None
    return await services.chats.create_group(
        actor,
        data.name,
        [UserId(member_id) for member_id in data.member_ids],
        chat_id=ChatId(claim.resource_id),
    )


async def _created_view(
    services: RestServices, actor: UserId, chat: Chat
) -> models.CreatedChatView:
    members = await services.chats.all_members(actor, chat.chat_id)
    names = await services.people.users([member.user_id for member in members])
    return views.created_chat_view(chat, members, names)


@endpoint("members", "POST /chats/{chat_id:str}/members", 404, 409)
async def add_member(
    chat_id: FromPath[str],
    data: JSONBody[bodies.AddMember],
    services: Services,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response[Envelope[models.AddedMember]]:
    """Add a person to a group. For its owner and its admins; an admin is added by the owner."""
    actor, known_id = caller.user_id, chat_id_of(chat_id)
    # Check this before storing anything: an outsider leaves no trace and learns nothing.
    await services.store.access_chat(actor, known_id)
    user_id = UserId(data.user_id)

    async def view(member: Member) -> Envelope[models.AddedMember]:
        return Envelope(
            views.added_member(known_id, member, await services.people.users([user_id]))
        )

    async def carry(claim: RequestClaimed) -> tuple[Response[Envelope[models.AddedMember]], str]:
        try:
            member = await services.chats.add_member(actor, known_id, user_id, Role(data.role))
        except AlreadyAMember:
            # An earlier try of this request may have added the user before its process died.
            found = await _member(services, actor, known_id, user_id) if claim.resumed else None
            if found is None or found.added_by != actor:
                raise
            member = found
        return Response(await view(member), status_code=201), user_id

    async def replay(made_id: str) -> Envelope[models.AddedMember]:
        member = await _member(services, actor, known_id, user_id)
        if member is None:
            raise UserNotFound(user_id)
        return await view(member)

    return await carry_out_once(
        services,
        actor,
        endpoint="POST /chats/members",
        key=idempotency_key,
        request=(known_id, data),
        new_id=None,
        carry=carry,
        replay=replay,
    )


@endpoint("members", "DELETE /chats/{chat_id:str}/members/{user_id:str}", 404)
async def remove_member(
    chat_id: FromPath[str], user_id: FromPath[str], services: Services, caller: Caller
) -> None:
    """Remove a member from a group. From this instant the member can neither send nor read."""
    known_id = chat_id_of(chat_id)
    await services.store.access_chat(caller.user_id, known_id)
    await services.chats.remove_member(caller.user_id, known_id, user_id_of(user_id))


@endpoint("members", "PATCH /chats/{chat_id:str}/members/{user_id:str}", 404)
async def change_role(
    chat_id: FromPath[str],
    user_id: FromPath[str],
    data: JSONBody[bodies.ChangeRole],
    services: Services,
    caller: Caller,
) -> Envelope[models.ChangedMember]:
    """Make a member an admin, or an admin a member. For the owner."""
    actor, known_id = caller.user_id, chat_id_of(chat_id)
    await services.store.access_chat(actor, known_id)
    member = await services.chats.change_role(actor, known_id, user_id_of(user_id), Role(data.role))
    names = await services.people.users([member.user_id])
    return Envelope(views.changed_member(known_id, member, names, updated_by=actor))


@endpoint("members", "POST /chats/{chat_id:str}/transfer", 404)
async def transfer_chat(
    chat_id: FromPath[str], data: JSONBody[bodies.TransferChat], services: Services, caller: Caller
) -> Envelope[models.ChangedMember]:
    """Hand a group over to another member, who becomes its owner. The owner becomes an admin."""
    actor, known_id = caller.user_id, chat_id_of(chat_id)
    member = await services.chats.hand_over(actor, known_id, UserId(data.user_id))
    names = await services.people.users([member.user_id])
    return Envelope(views.changed_member(known_id, member, names, updated_by=actor))


@endpoint("members", "POST /chats/{chat_id:str}/close")
async def close_chat(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Close a group. For its owner.

    All members are removed, the owner included. The group cannot be opened again, and its history
    cannot be read any more through the API.
    """
    await services.chats.close_group(caller.user_id, chat_id_of(chat_id))


@endpoint("members", "POST /chats/{chat_id:str}/leave")
async def leave_chat(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    data: JSONBody[bodies.LeaveChat | None] = None,
) -> None:
    """Leave a group. Its owner transfers or closes it instead.

    With `do_not_add_again` no member can add you to this group again.
    """
    for_good = data is not None and data.do_not_add_again
    await services.chats.leave(caller.user_id, chat_id_of(chat_id), for_good=for_good)


@endpoint("members", "GET /users/me/refused-groups")
async def list_refused_groups(
    services: Services, caller: Caller, cursor: CursorText = None, limit: PageLimit = PAGE_DEFAULT
) -> Page[models.RefusedGroup]:
    """List the groups that you left with `do_not_add_again`, by chat id."""
    read = services.store.refused_groups
    shown, pagination = await read_page(read, RefusedGroupsCursor, caller.user_id, cursor, limit)
    return Page([models.RefusedGroup(chat_id=one) for one in shown], pagination)


@endpoint("members", "DELETE /users/me/refused-groups/{chat_id:str}")
async def readmit_me(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Let others add you again to a group that you left with `do_not_add_again`.

    If you did not, nothing changes, whether there is such a group or not.
    """
    await services.store.readmit(caller.user_id, chat_id_of(chat_id))


async def _member(
    services: RestServices, reader: UserId, chat_id: ChatId, user_id: UserId
) -> Member | None:
    members = await services.chats.all_members(reader, chat_id)
    return next((member for member in members if member.user_id == user_id), None)
