"""Endpoints of a group's members: added, removed, promoted, and leaving by themselves."""

from typing import Annotated, Final

from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from tidewire.domain.accounts import RequestClaimed
from tidewire.domain.chats import Member, Role
from tidewire.domain.errors import AlreadyAMember, UserNotFound
from tidewire.domain.ids import ChatId, UserId
from tidewire.edge.rest.chats import all_members
from tidewire.edge.rest.checks import chat_id_of, cursor_of, user_id_of
from tidewire.edge.rest.described import CursorText, IdempotencyKey, limited, refusals
from tidewire.edge.rest.gate import Caller, Services
from tidewire.edge.rest.once import carry_out_once
from tidewire.edge.rest.services import RestServices
from tidewire.wire.rest_cursors import RefusedGroupsCursor, encode_cursor
from tidewire.wire.rest_models import (
    AddedMember,
    ChangedMember,
    Envelope,
    Page,
    Pagination,
    RefusedGroup,
)
from tidewire.wire.rest_requests import AddMember, ChangeRole, LeaveChat, TransferChat
from tidewire.wire.rest_views import added_member, changed_member

PAGE_REFUSED_DEFAULT: Final = 20
PAGE_REFUSED_MAX: Final = 100


@post(
    "/chats/{chat_id:str}/members",
    tags=["members"],
    responses=refusals(403, 404, 409, 413, again=Envelope[AddedMember]),
)
async def add_member(
    chat_id: FromPath[str],
    data: JSONBody[AddMember],
    services: Services,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response[Envelope[AddedMember]]:
    """Add somebody to a group. For its owner and its admins; an admin is added by the owner."""
    actor, known_id = caller.user_id, chat_id_of(chat_id)
    # Before anything is remembered: an outsider leaves no trace and learns nothing.
    await services.chats.access(actor, known_id)
    user_id = UserId(data.user_id)

    async def view(member: Member) -> Envelope[AddedMember]:
        return Envelope(added_member(known_id, member, await services.people.users([user_id])))

    async def carry(claim: RequestClaimed) -> tuple[Response[Envelope[AddedMember]], str]:
        try:
            member = await services.chats.add_member(actor, known_id, user_id, Role(data.role))
        except AlreadyAMember:
            # An earlier try of this very request may have added him before it died.
            found = await _member(services, actor, known_id, user_id) if claim.resumed else None
            if found is None or found.added_by != actor:
                raise
            member = found
        return Response(await view(member), status_code=201), user_id

    async def replay(made_id: str) -> Envelope[AddedMember]:
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


@delete(
    "/chats/{chat_id:str}/members/{user_id:str}", tags=["members"], responses=refusals(403, 404)
)
async def remove_member(
    chat_id: FromPath[str], user_id: FromPath[str], services: Services, caller: Caller
) -> None:
    """Remove somebody from a group: from this instant he can neither send nor read."""
    known_id = chat_id_of(chat_id)
    await services.chats.access(caller.user_id, known_id)
    await services.chats.remove_member(caller.user_id, known_id, user_id_of(user_id))


@patch(
    "/chats/{chat_id:str}/members/{user_id:str}",
    tags=["members"],
    responses=refusals(403, 404, 413),
)
async def change_role(
    chat_id: FromPath[str],
    user_id: FromPath[str],
    data: JSONBody[ChangeRole],
    services: Services,
    caller: Caller,
) -> Envelope[ChangedMember]:
    """Make a member an admin, or an admin a member. For the owner."""
    actor, known_id = caller.user_id, chat_id_of(chat_id)
    await services.chats.access(actor, known_id)
    member = await services.chats.change_role(actor, known_id, user_id_of(user_id), Role(data.role))
    names = await services.people.users([member.user_id])
    return Envelope(changed_member(known_id, member, names, updated_by=actor))


@post(
    "/chats/{chat_id:str}/transfer",
    tags=["members"],
    status_code=200,
    responses=refusals(403, 404, 413),
)
async def transfer_chat(
    chat_id: FromPath[str], data: JSONBody[TransferChat], services: Services, caller: Caller
) -> Envelope[ChangedMember]:
    """Hand a group over to another member, who becomes its owner. The owner becomes an admin."""
    actor, known_id = caller.user_id, chat_id_of(chat_id)
    member = await services.chats.hand_over(actor, known_id, UserId(data.user_id))
    names = await services.people.users([member.user_id])
    return Envelope(changed_member(known_id, member, names, updated_by=actor))


@post("/chats/{chat_id:str}/close", tags=["members"], status_code=204, responses=refusals(403))
async def close_chat(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Close a group. For its owner.

    All members are removed, the owner included. The group cannot be opened again, and its history
    cannot be read any more through the API.
    """
    await services.chats.close_group(caller.user_id, chat_id_of(chat_id))


@post("/chats/{chat_id:str}/leave", tags=["members"], status_code=204, responses=refusals(403))
async def leave_chat(
    chat_id: FromPath[str],
    services: Services,
    caller: Caller,
    data: JSONBody[LeaveChat | None] = None,
) -> None:
    """Leave a group. Its owner transfers or closes it instead.

    With `do_not_add_again` nobody can add you to this group again.
    """
    for_good = data is not None and data.do_not_add_again
    await services.chats.leave(caller.user_id, chat_id_of(chat_id), for_good=for_good)


@get("/users/me/refused-groups", tags=["members"], responses=refusals())
async def list_refused_groups(
    services: Services,
    caller: Caller,
    cursor: CursorText = None,
    limit: Annotated[
        int,
        QueryParameter(
            ge=1,
            le=PAGE_REFUSED_MAX,
            description=limited(PAGE_REFUSED_DEFAULT, PAGE_REFUSED_MAX),
        ),
    ] = PAGE_REFUSED_DEFAULT,
) -> Page[RefusedGroup]:
    """List the groups that you left with `do_not_add_again`, by chat id."""
    after = None if cursor is None else cursor_of(cursor, RefusedGroupsCursor).after
    # One more than is shown says whether there are more.
    found = await services.chats.refused_groups(caller.user_id, after=after, count_max=limit + 1)
    shown = found[:limit]
    more = encode_cursor(RefusedGroupsCursor(shown[-1])) if len(found) > limit else None
    return Page(
        [RefusedGroup(chat_id=one) for one in shown],
        Pagination(has_more=more is not None, next_cursor=more),
    )


@delete("/users/me/refused-groups/{chat_id:str}", tags=["members"], responses=refusals())
async def readmit_me(chat_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Let others add you again to a group that you left with `do_not_add_again`.

    If you did not, nothing changes, whether there is such a group or not.
    """
    await services.chats.readmit(caller.user_id, chat_id_of(chat_id))


async def _member(
    services: RestServices, reader: UserId, chat_id: ChatId, user_id: UserId
) -> Member | None:
    members = await all_members(services, reader, chat_id)
    return next((member for member in members if member.user_id == user_id), None)


HANDLERS = (
    add_member,
    remove_member,
    change_role,
    transfer_chat,
    close_chat,
    leave_chat,
    list_refused_groups,
    readmit_me,
)
