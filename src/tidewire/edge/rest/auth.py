"""Endpoints of logging in and out."""

from litestar import Request, post
from litestar.datastructures import State
from litestar.params import JSONBody

from tidewire.accounts.service import LoggedIn, Tokens
from tidewire.domain.accounts import Secret, check_device_id, check_password
from tidewire.domain.errors import DeviceMismatch
from tidewire.domain.users import check_chosen_display_name, check_chosen_username
from tidewire.edge.rest.checks import checked
from tidewire.edge.rest.described import DeviceId, refusals
from tidewire.edge.rest.faults import invalid_field
from tidewire.edge.rest.gate import PUBLIC, Caller, Services
from tidewire.edge.rest.services import RestServices
from tidewire.wire.rest_models import (
    Envelope,
    LoginResult,
    RefreshResult,
    RevokedCount,
    TokensView,
)
from tidewire.wire.rest_requests import ChangePassword, Login, Logout, Refresh, Register
from tidewire.wire.rest_views import account_view, opened_session_view

_PUBLIC_REQUIREMENT: list[dict[str, list[str]]] = [{}]


@post(
    "/auth/register",
    tags=["auth"],
    opt=PUBLIC,
    security=_PUBLIC_REQUIREMENT,
    responses=refusals(401, 403, 409, 413, public=True),
)
async def register(
    data: JSONBody[Register],
    request: Request[None, None, State],
    services: Services,
    x_device_id: DeviceId = None,
) -> Envelope[LoginResult]:
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


@post(
    "/auth/login",
    tags=["auth"],
    opt=PUBLIC,
    status_code=200,
    security=_PUBLIC_REQUIREMENT,
    responses=refusals(401, 403, 413, public=True),
)
async def login(
    data: JSONBody[Login],
    request: Request[None, None, State],
    services: Services,
    x_device_id: DeviceId = None,
) -> Envelope[LoginResult]:
    """Log in on a device. An earlier session of the same device ends."""
    _check_same_device(data.device_id, x_device_id)
    opened = await services.accounts.login(
        data.username,
        Secret(data.password),
        device_id=data.device_id,
        client_ip=request.scope["state"]["address"],
    )
    return Envelope(_login_result(services, opened))


@post(
    "/auth/refresh",
    tags=["auth"],
    opt=PUBLIC,
    status_code=200,
    security=_PUBLIC_REQUIREMENT,
    responses=refusals(401, 413, public=True),
)
async def refresh(
    data: JSONBody[Refresh], services: Services, x_device_id: DeviceId = None
) -> Envelope[RefreshResult]:
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
    return Envelope(RefreshResult(tokens=_tokens_view(services, refreshed.tokens)))


@post("/auth/logout", tags=["auth"], status_code=204, responses=refusals(413))
async def logout(services: Services, caller: Caller, data: JSONBody[Logout | None] = None) -> None:
    """End the session that asks: its tokens are refused and its sockets closed from now on."""
    await services.accounts.logout(caller.user_id, caller.session_id)


@post("/auth/password", tags=["auth"], status_code=200, responses=refusals(401, 413))
async def change_password(
    data: JSONBody[ChangePassword], services: Services, caller: Caller
) -> Envelope[RevokedCount]:
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
    return Envelope(RevokedCount(revoked_count=count))


def _check_same_device(device_id: str, header: str | None) -> None:
    if header is not None and header.lower() != device_id.lower():
        raise DeviceMismatch


def _login_result(services: RestServices, opened: LoggedIn) -> LoginResult:
    return LoginResult(
        user=account_view(opened.user),
        session=opened_session_view(opened.session),
        tokens=_tokens_view(services, opened.tokens),
        is_new_user=opened.is_new_user,
    )


def _tokens_view(services: RestServices, tokens: Tokens) -> TokensView:
    return TokensView(
        access_token=tokens.access_token.reveal(),
        refresh_token=tokens.refresh_token.reveal(),
        expires_in=max(0, tokens.access_expires_at_ms - services.clock.wall_ms()) // 1000,
    )


HANDLERS = (register, login, refresh, logout, change_password)
