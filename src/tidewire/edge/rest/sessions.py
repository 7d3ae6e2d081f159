"""Endpoints of sessions: where one is logged in, and ending that."""

from typing import Annotated

from litestar import delete, get
from litestar.params import FromPath, QueryParameter

from tidewire.domain.ids import SessionId
from tidewire.edge.rest.described import refusals
from tidewire.edge.rest.gate import Caller, Services
from tidewire.wire.rest_models import Envelope, Page, RevokedCount, SessionView
from tidewire.wire.rest_views import WHOLE, session_view


@get("/sessions", tags=["sessions"], responses=refusals())
async def list_sessions(services: Services, caller: Caller) -> Page[SessionView]:
    """List your sessions, the oldest first."""
    sessions = await services.accounts.sessions(caller.user_id)
    return Page([session_view(each, current=caller.session_id) for each in sessions], WHOLE)


@delete("/sessions/{session_id:str}", tags=["sessions"], responses=refusals(404))
async def revoke_session(session_id: FromPath[str], services: Services, caller: Caller) -> None:
    """End one of your sessions: its tokens are refused, its sockets closed at once."""
    await services.accounts.revoke_session(caller.user_id, SessionId(session_id))


@delete("/sessions", tags=["sessions"], status_code=200, responses=refusals())
async def revoke_sessions(
    services: Services,
    caller: Caller,
    include_current: Annotated[
        bool, QueryParameter(description="End the session that asks, too.")
    ] = False,
) -> Envelope[RevokedCount]:
    """End all other logins. Bots' sessions end one by one."""
    keep = None if include_current else caller.session_id
    count = await services.accounts.revoke_sessions(caller.user_id, keep=keep)
    return Envelope(RevokedCount(revoked_count=count))


HANDLERS = (list_sessions, revoke_session, revoke_sessions)
