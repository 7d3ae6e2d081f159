"""Endpoints of people: oneself, others, and who is not to be heard."""

from typing import Annotated, Final

from litestar import delete, get, patch, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from tidewire.domain.accounts import Secret
from tidewire.domain.users import check_display_name
from tidewire.edge.rest.checks import checked, cursor_of, user_id_of
from tidewire.edge.rest.described import CursorText, limited, refusals
from tidewire.edge.rest.gate import Caller, Services, Tier, counted_as
from tidewire.wire.rest_cursors import BlocksCursor, encode_cursor
from tidewire.wire.rest_models import (
    AccountView,
    Envelope,
    LookupResult,
    Page,
    Pagination,
    PersonView,
    UserView,
)
from tidewire.wire.rest_requests import DeleteMe, LookupUsers, UpdateMe
from tidewire.wire.rest_views import account_view, found_user, person_view, user_view

PAGE_BLOCKS_DEFAULT: Final = 20
PAGE_BLOCKS_MAX: Final = 100


@get("/users/me", tags=["users"], responses=refusals())
async def get_me(services: Services, caller: Caller) -> Envelope[AccountView]:
    """Show your own account."""
    return Envelope(account_view(await services.people.user(caller.user_id)))


@patch("/users/me", tags=["users"], responses=refusals(413))
async def update_me(
    data: JSONBody[UpdateMe], services: Services, caller: Caller
) -> Envelope[AccountView]:
    """Change the name that others see."""
    name = checked("display_name", check_display_name, data.display_name)
    return Envelope(account_view(await services.people.set_display_name(caller.user_id, name)))


@post("/users/me/deletion", tags=["users"], status_code=204, responses=refusals(401, 413))
async def delete_me(data: JSONBody[DeleteMe], services: Services, caller: Caller) -> None:
    """Delete your own account, for ever. The password is needed once more.

    All sessions end, and the account leaves its groups; those it owns pass to the longest-serving
    admin, or else member, or close. Messages stay, shown as of a deleted account; direct chats stay
    for the others. The user name stays taken.
    """
    await services.accounts.delete_account(caller.user_id, password=Secret(data.password))


@get("/users/{user_id:str}", tags=["users"], responses=refusals(404))
async def get_user(user_id: FromPath[str], services: Services) -> Envelope[UserView]:
    """Show another person."""
    return Envelope(user_view(await services.people.user(user_id_of(user_id))))


@post(
    "/users/lookup",
    tags=["users"],
    status_code=200,
    opt=counted_as(Tier.LOOKUP),
    responses=refusals(413),
)
async def look_up_users(data: JSONBody[LookupUsers], services: Services) -> Envelope[LookupResult]:
    """Find people by their user names, upper and lower case being the same."""
    found = await services.people.lookup(data.usernames)
    return Envelope(
        LookupResult(users=[found_user(user) for user in found.users], not_found=found.not_found)
    )


@put("/users/{user_id:str}/block", tags=["users"], status_code=204, responses=refusals(404))
async def block_user(user_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Refuse this person's messages in your direct chat. Nobody is told; again changes nothing."""
    await services.people.block(caller.user_id, user_id_of(user_id))


@delete("/users/{user_id:str}/block", tags=["users"], responses=refusals(404))
async def unblock_user(user_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Undo a block. If there is none, nothing changes."""
    await services.people.unblock(caller.user_id, user_id_of(user_id))


@get("/users/me/blocks", tags=["users"], responses=refusals())
async def list_blocks(
    services: Services,
    caller: Caller,
    cursor: CursorText = None,
    limit: Annotated[
        int,
        QueryParameter(
            ge=1, le=PAGE_BLOCKS_MAX, description=limited(PAGE_BLOCKS_DEFAULT, PAGE_BLOCKS_MAX)
        ),
    ] = PAGE_BLOCKS_DEFAULT,
) -> Page[PersonView]:
    """List the people you block, by user id."""
    after = None if cursor is None else cursor_of(cursor, BlocksCursor).after
    # One more than is shown says whether there are more.
    found = await services.people.blocked(caller.user_id, after=after, count_max=limit + 1)
    shown = found[:limit]
    names = await services.people.users(shown)
    more = encode_cursor(BlocksCursor(shown[-1])) if len(found) > limit else None
    return Page(
        [person_view(user_id, names) for user_id in shown],
        Pagination(has_more=more is not None, next_cursor=more),
    )


HANDLERS = (
    get_me,
    update_me,
    delete_me,
    get_user,
    look_up_users,
    list_blocks,
    block_user,
    unblock_user,
)
