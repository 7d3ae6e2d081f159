"""Endpoints of accounts: logging in and out, sessions, people and blocks."""

from typing import Annotated

from litestar import Request
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody, QueryParameter

from tidewire.accounts.service import LoggedIn, Tokens
from tidewire.domain.accounts import Secret, check_device_id, check_password
from tidewire.domain.errors import DeviceMismatch
from tidewire.domain.ids import SessionId
from tidewire.domain.users import (
    check_chosen_display_name,
    check_chosen_username,
    check_display_name,
)
from tidewire.edge.rest.endpoints import (
    PAGE_DEFAULT,
    CursorText,
    DeviceId,
    PageLimit,
    checked,
    endpoint,
    read_page,
    user_id_of,
)
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import PUBLIC, Caller, Services, Tier
from tidewire.edge.rest.services import RestServices
from tidewire.wire import rest_models as models
from tidewire.wire import rest_requests as bodies
from tidewire.wire import rest_views as views
from tidewire.wire.rest_cursors import BlocksCursor
from tidewire.wire.rest_models import Envelope, Page


@endpoint("auth", "POST /auth/register", 401, 403, 409, status=201, opt=PUBLIC)
async def register(
    data: JSONBody[bodies.Register],
    request: Request[None, None, State],
    services: Services,
    x_device_id: DeviceId = None,
) -> Envelope[models.LoginResult]:
    """Make an account and log in. Whether that needs an invite is the operator's choice."""
    _check_same_device(data.device_id, x_device_id)
    checked("username", check_chosen_username, data.username)
    checked("password", check_password, Secret(data.password))
    if data.display_name is not None:
        checked("display_name", check_chosen_display_name, data.display_name)
    opened = await services.accounts.register(
        data.username,
        Secret(data.password),
        device_id=data.device_id,
        client_ip=request.scope["state"]["address"],
        display_name=data.display_name,
        invite=None if data.invite is None else Secret(data.invite),
    )
    return Envelope(_login_result(services, opened))


@endpoint("auth", "POST /auth/login", 401, 403, opt=PUBLIC)
async def login(
    data: JSONBody[bodies.Login],
    request: Request[None, None, State],
    services: Services,
    x_device_id: DeviceId = None,
) -> Envelope[models.LoginResult]:
    """Log in on a device. An earlier session of the same device ends."""
    _check_same_device(data.device_id, x_device_id)
    opened = await services.accounts.login(
        data.username,
        Secret(data.password),
        device_id=data.device_id,
        client_ip=request.scope["state"]["address"],
    )
    return Envelope(_login_result(services, opened))


@endpoint("auth", "POST /auth/refresh", 401, opt=PUBLIC)
async def refresh(
    data: JSONBody[bodies.Refresh], services: Services, x_device_id: DeviceId = None
) -> Envelope[models.RefreshResult]:
    """Exchange a refresh token for new tokens. Both are new; the old refresh token is used up.

    The device is named by `X-Device-ID` or by `device_id`. If the answer is lost, the same token
    may be sent again for a short while.
    """
    device_id = data.device_id or x_device_id
    if device_id is None:
        raise invalid_field("device_id", "name the device here or in X-Device-ID", "REQUIRED")
    _check_same_device(device_id, x_device_id)
    device_id = checked("device_id", check_device_id, device_id)
    refreshed = await services.accounts.refresh(Secret(data.refresh_token), device_id=device_id)
    return Envelope(models.RefreshResult(tokens=_tokens_view(services, refreshed.tokens)))


@endpoint("auth", "POST /auth/logout")
async def logout(
    services: Services, caller: Caller, data: JSONBody[bodies.Logout | None] = None
) -> None:
    """End the session that asks: its tokens are refused and its sockets closed from now on."""
    await services.accounts.logout(caller.user_id, caller.session_id)


@endpoint("auth", "POST /auth/password", 401)
async def change_password(
    data: JSONBody[bodies.ChangePassword], services: Services, caller: Caller
) -> Envelope[models.RevokedCount]:
    """Change one's own password. All other logins end, and lose their sockets; this one stays.

    The current password is needed (`INVALID_CREDENTIALS`), and tries are limited as logins are.
    """
    checked("new_password", check_password, Secret(data.new_password))
    count = await services.accounts.change_password(
        caller.user_id,
        caller.session_id,
        old=Secret(data.current_password),
        new=Secret(data.new_password),
    )
    return Envelope(models.RevokedCount(revoked_count=count))


def _check_same_device(device_id: str, header: str | None) -> None:
    if header is not None and header.lower() != device_id.lower():
        raise DeviceMismatch


def _login_result(services: RestServices, opened: LoggedIn) -> models.LoginResult:
    return models.LoginResult(
        user=views.account_view(opened.user),
        session=views.opened_session_view(opened.session),
        tokens=_tokens_view(services, opened.tokens),
        is_new_user=opened.is_new_user,
    )


def _tokens_view(services: RestServices, tokens: Tokens) -> models.TokensView:
    return models.TokensView(
        access_token=tokens.access_token.reveal(),
        refresh_token=tokens.refresh_token.reveal(),
        expires_in=max(0, tokens.access_expires_at_ms - services.clock.wall_ms()) // 1000,
    )


@endpoint("sessions", "GET /sessions")
async def list_sessions(services: Services, caller: Caller) -> Page[models.SessionView]:
    """List your sessions, the oldest first."""
    sessions = await services.accounts.sessions(caller.user_id)
    return Page(
        [views.session_view(each, current=caller.session_id) for each in sessions], views.WHOLE
    )


@endpoint("sessions", "DELETE /sessions/{session_id:str}", 404)
async def revoke_session(session_id: FromPath[str], services: Services, caller: Caller) -> None:
    """End one of your sessions: its tokens are refused, its sockets closed at once."""
    await services.accounts.revoke_session(caller.user_id, SessionId(session_id))


@endpoint("sessions", "DELETE /sessions")
async def revoke_sessions(
    services: Services,
    caller: Caller,
    include_current: Annotated[
        bool, QueryParameter(description="End the session that asks, too.")
    ] = False,
) -> Envelope[models.RevokedCount]:
    """End all other logins. The session of a bot has to be ended by itself."""
    keep = None if include_current else caller.session_id
    count = await services.accounts.revoke_sessions(caller.user_id, keep=keep)
    return Envelope(models.RevokedCount(revoked_count=count))


@endpoint("users", "GET /users/me")
async def get_me(services: Services, caller: Caller) -> Envelope[models.AccountView]:
    """Show your own account."""
    return Envelope(views.account_view(await services.people.user(caller.user_id)))


@endpoint("users", "PATCH /users/me")
async def update_me(
    data: JSONBody[bodies.UpdateMe], services: Services, caller: Caller
) -> Envelope[models.AccountView]:
    """Change the name that others see."""
    name = checked("display_name", check_display_name, data.display_name)
    return Envelope(
        views.account_view(await services.people.set_display_name(caller.user_id, name))
    )


@endpoint("users", "POST /users/me/deletion", 401)
async def delete_me(data: JSONBody[bodies.DeleteMe], services: Services, caller: Caller) -> None:
    """Delete your own account, for ever. The password is needed once more.

    All sessions end, and the account leaves its groups; groups that it owns pass to the
    longest-serving admin, else to the longest-serving member, else they close. Messages stay, shown
    as of a deleted account; direct chats stay for the others. The user name stays taken.

    With `erase_messages` the messages go too, in all chats: each becomes a tombstone, and at the
    end a pseudonym replaces the user name. This may continue after the answer.
    """
    await services.accounts.delete_account(
        caller.user_id, password=Secret(data.password), erases=data.erase_messages
    )


@endpoint("users", "GET /users/{user_id:str}", 404)
async def get_user(user_id: FromPath[str], services: Services) -> Envelope[models.UserView]:
    """Show another person."""
    return Envelope(views.user_view(await services.people.user(user_id_of(user_id))))


@endpoint("users", "POST /users/lookup", tier=Tier.LOOKUP)
async def look_up_users(
    data: JSONBody[bodies.LookupUsers], services: Services
) -> Envelope[models.LookupResult]:
    """Find people by their user names. Upper and lower case are the same."""
    found = await services.people.lookup(data.usernames)
    return Envelope(
        models.LookupResult(
            users=[views.found_user(user) for user in found.users], not_found=found.not_found
        )
    )


@endpoint("users", "PUT /users/{user_id:str}/block", 404)
async def block_user(user_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Refuse this person's messages in your direct chat. The person is not told."""
    await services.people.block(caller.user_id, user_id_of(user_id))


@endpoint("users", "DELETE /users/{user_id:str}/block", 404)
async def unblock_user(user_id: FromPath[str], services: Services, caller: Caller) -> None:
    """Undo a block. If there is none, nothing changes."""
    await services.people.unblock(caller.user_id, user_id_of(user_id))


@endpoint("users", "GET /users/me/blocks")
async def list_blocks(
    services: Services, caller: Caller, cursor: CursorText = None, limit: PageLimit = PAGE_DEFAULT
) -> Page[models.PersonView]:
    """List the people you block, in the order of their user ids."""
    read = services.people.blocked
    shown, pagination = await read_page(read, BlocksCursor, caller.user_id, cursor, limit)
    names = await services.people.users(shown)
    return Page([views.person_view(user_id, names) for user_id in shown], pagination)
