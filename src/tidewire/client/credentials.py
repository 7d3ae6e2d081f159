"""Where the access token comes from, and when the next one is due."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from tidewire.client.errors import LoginNeeded, RefusedByServer
from tidewire.client.rest import Rest
from tidewire.client.store import Store
from tidewire.client.tokens import facts_of, renew_in_ms
from tidewire.domain.errors import ErrorCode
from tidewire.wire.rest_models import Envelope, RefreshResult, TokensView
from tidewire.wire.rest_requests import Refresh

TokenSource = str | Callable[[], str | Awaitable[str]]

_ENDED: Final = frozenset(
    {ErrorCode.INVALID_REFRESH_TOKEN, ErrorCode.DEVICE_MISMATCH, ErrorCode.UNAUTHORIZED}
)


class Credentials:
    """A token that the application gave, or calls for; or a login, whose refresh token is in the
    store and is exchanged before the access token ends."""

    def __init__(
        self, source: TokenSource | None, *, rest: Rest, wall_ms: Callable[[], int]
    ) -> None:
        self._source = source
        self._rest = rest
        self._wall_ms = wall_ms
        self._store: Store | None = None
        self._access: str | None = source if isinstance(source, str) else None
        self._refresh: str | None = None
        self._device_id = ""
        self._lock = asyncio.Lock()
        self.renew_at_ms: int | None = None
        """When a new token is due, on the wall clock; None: never, or not known."""

    @property
    def can_renew(self) -> bool:
        return not isinstance(self._source, str)

    @property
    def has_login(self) -> bool:
        """The store has one, good or not."""
        return self._refresh is not None

    async def attach(self, store: Store, device_id: str) -> None:
        self._store, self._device_id = store, device_id
        if self._source is None:
            self._refresh = await store.do(lambda tables: tables.meta("refresh_token"))
            access = await store.do(lambda tables: tables.meta("access_token"))
            if access is not None and self._access is None:
                self._take(access)

    async def logged_in(self, tokens: TokensView) -> None:
        """Keep the tokens of a login; on the disk before they are used."""
        self._refresh = tokens.refresh_token
        self._take(tokens.access_token)
        assert self._store is not None
        await self._store.do(
            lambda tables: tables.set_meta(
                refresh_token=tokens.refresh_token, access_token=tokens.access_token
            )
        )

    async def forget(self) -> None:
        self._access = self._refresh = None
        assert self._store is not None
        await self._store.do(lambda tables: tables.set_meta(refresh_token=None, access_token=None))

    async def token(self, is_refused: bool) -> str:
        """The access token; a new one if the last was refused or ends soon. Raises LoginNeeded,
        ServerUnreachable and RefusedByServer."""
        refused = self._access if is_refused else None
        async with self._lock:
            is_due = self.renew_at_ms is not None and self.renew_at_ms <= self._wall_ms()
            # Somebody else may have renewed it while we waited.
            if self._access is not None and self._access != refused and not is_due:
                return self._access
            return await self._renewed()

    async def _renewed(self) -> str:
        source = self._source
        if isinstance(source, str):
            if self._access is not None and self.renew_at_ms is None:
                raise LoginNeeded("the server does not take the token; get another one")
            return source
        if source is not None:
            given = source()
            token = await given if inspect.isawaitable(given) else given
            self._take(token)
            return token
        if self._refresh is None:
            raise LoginNeeded("the store has no login: use Client.login, or give a token")
        try:
            answer = await self._rest.call(
                Envelope[RefreshResult],
                "POST",
                "/auth/refresh",
                Refresh(refresh_token=self._refresh, device_id=self._device_id),
                is_public=True,
            )
        except RefusedByServer as refusal:
            if refusal.reason in _ENDED:
                raise LoginNeeded("this login has ended: log in again") from refusal
            raise
        await self.logged_in(answer.data.tokens)
        assert self._access is not None
        return self._access

    def _take(self, token: str) -> None:
        self._access = token
        expires_at_ms = facts_of(token).expires_at_ms
        if expires_at_ms is None:
            self.renew_at_ms = None
        else:
            now_ms = self._wall_ms()
            self.renew_at_ms = now_ms + renew_in_ms(max(expires_at_ms - now_ms, 0))
