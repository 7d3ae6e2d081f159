"""Endpoints of people: oneself, others, and who is not to be heard."""

from litestar import delete, get, patch, post, put
from litestar.params import FromPath, JSONBody

from tidewire.domain.users import check_display_name
from tidewire.edge.rest.checks import checked, user_id_of
from tidewire.edge.rest.described import refusals
from tidewire.edge.rest.gate import Caller, Services, Tier, counted_as
from tidewire.wire.rest_models import AccountView, Envelope, LookupResult, UserView
from tidewire.wire.rest_requests import LookupUsers, UpdateMe
from tidewire.wire.rest_views import account_view, found_user, user_view


@get("/users/me", tags=["users"], responses=refusals())
async def get_me(services: Services, caller: Caller) -> Envelope[AccountView]:
    """Oneself."""
    return Envelope(account_view(await services.people.user(caller.user_id)))


@patch("/users/me", tags=["users"], responses=refusals(413))
async def update_me(
    data: JSONBody[UpdateMe], services: Services, caller: Caller
) -> Envelope[AccountView]:
    """Change the name that others see."""
    name = checked("display_name", check_display_name, data.display_name)
    return Envelope(account_view(await services.people.set_display_name(caller.user_id, name)))


@get("/users/{user_id:str}", tags=["users"], responses=refusals(404))
async def get_user(user_id: FromPath[str], services: Services) -> Envelope[UserView]:
    """Somebody else."""
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
    """Undo a block. Of somebody who is not blocked it changes nothing."""
    await services.people.unblock(caller.user_id, user_id_of(user_id))


HANDLERS = (get_me, update_me, get_user, look_up_users, block_user, unblock_user)
