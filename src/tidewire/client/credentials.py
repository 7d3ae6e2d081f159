"""The identity of this device: the owner of its store, its login, its access token."""

import asyncio
import base64
import binascii
import inspect
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, Literal, NoReturn

import msgspec

from tidewire.client.errors import LoginNeeded, RefusedByServer, ServerUnreachable, StoreUnusable
from tidewire.client.rest import Rest
from tidewire.client.store import Store
from tidewire.domain.errors import ErrorCode
from tidewire.wire.rest_models import AccountView, Envelope, LoginResult, RefreshResult, TokensView
from tidewire.wire.rest_requests import Login, Refresh, Register

TokenSource = str | Callable[[], str | Awaitable[str]]
RegisterWish = Literal["if-missing", "never", "always"]

OWN_ISSUER: Final = "tidewire"
"""The issuer of tokens that the server itself gives out."""
EARLY_MS_MAX: Final = 5 * 60_000
EARLY_PART: Final = 5
_ENDED: Final = frozenset(
    {ErrorCode.INVALID_REFRESH_TOKEN, ErrorCode.DEVICE_MISMATCH, ErrorCode.UNAUTHORIZED}
)


class TokenFacts(msgspec.Struct, frozen=True):
    """The claims that a client reads in its own token. Only the server verifies them."""

    iss: str | None = None
    sub: str | None = None
    did: str | None = None
    exp: float | None = None

    @property
    def expires_at_ms(self) -> int | None:
        return None if self.exp is None else int(self.exp * 1000)


NO_FACTS: Final = TokenFacts()


def facts_of(token: object) -> TokenFacts:
    """The claims of a JWT. Any other token has none and is used as it is: an identity provider may
    give out tokens that only the server understands."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 3:
        return NO_FACTS
    body = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(body), type=TokenFacts)
    except (binascii.Error, ValueError):
        return NO_FACTS


def renew_in_ms(life_ms: int) -> int:
    """When to renew a token that is valid for `life_ms`: before its end, but not at once."""
    return max(life_ms - min(EARLY_MS_MAX, life_ms // EARLY_PART), 1_000)


class Credentials:
    """The access token: given by the application, or returned by its function, or that of a login,
    whose refresh token is in the store and is exchanged before the access token ends."""

    def __init__(
        self, source: TokenSource | None, *, rest: Rest, wall_ms: Callable[[], int]
    ) -> None:
        self.wall_ms = wall_ms
        self._source = source
        self._rest = rest
        self._opened: Store | None = None
        self._access: str | None = source if isinstance(source, str) else None
        self._refresh: str | None = None
        self.device_id = ""
        """Known after `attach`."""
        self._lock = asyncio.Lock()
        self.renew_at_ms: int | None = None
        """When a new token is due, on the wall clock; None: never, or not known."""

    # The store.

    async def attach(
        self, store: Store, *, url: str, is_moved: bool, device_id: str | None, new_id: str
    ) -> None:
        """Load the login from the store, after a check whose store it is. Raises StoreUnusable."""
        self._opened = store
        server = await self._meta("server")
        if server is not None and server != url and not is_moved:
            await self._refuse_store(
                f"belongs to the server {server}, not to {url}; "
                "name another file, or say that the server has moved (moved=True)"
            )
        facts = facts_of(self._source)
        known = await self._meta("device_id")
        wanted = device_id or (None if facts.did is None else facts.did.lower())
        if known is not None and wanted is not None and known != wanted:
            await self._refuse_store(
                f"belongs to the device {known}, but the token is "
                f"for {wanted}; each device needs a store of its own"
            )
        # The subject in a token of another identity provider is not our user id.
        if facts.sub is not None and facts.iss == OWN_ISSUER:
            await self._check_owner(facts.sub)
        self.device_id = str(known or wanted or new_id)
        await self._save(server=url, device_id=self.device_id)
        if self._source is None:
            self._refresh = await self._meta("refresh_token")
            access = await self._meta("access_token")
            if access is not None and self._access is None:
                self._take(access)

    async def _check_owner(self, user_id: str) -> None:
        known = await self._meta("user_id")
        if known is not None and known != user_id:
            await self._refuse_store(
                f"belongs to the user {known}, not to {user_id}; "
                "each user needs a store of their own"
            )

    async def _refuse_store(self, why: str) -> NoReturn:
        await self._store.close()
        raise StoreUnusable(f"the store {self._store.path} {why}")

    @property
    def _store(self) -> Store:
        assert self._opened is not None
        return self._opened

    async def _meta(self, name: str) -> Any:
        return await self._store.do(lambda tables: tables.meta(name))

    async def _save(self, **values: object) -> None:
        await self._store.do(lambda tables: tables.set_meta(**values))

    # Logging in.

    async def register(self, new: Register) -> None:
        """Make an account, and log in. Raises RefusedByServer, ServerUnreachable, StoreUnusable."""
        await self._enter("/auth/register", new)

    async def login(self, username: str, password: str) -> None:
        """Raises as `register` does."""
        body = Login(username=username, password=password, device_id=self.device_id)
        await self._enter("/auth/login", body)

    async def _enter(self, path: str, body: Register | Login) -> None:
        answer = await self._rest.call(Envelope[LoginResult], "POST", path, body, is_public=True)
        user_id = answer.data.user.user_id
        await self._check_owner(user_id)
        await self._save(user_id=user_id, username=body.username)
        await self._logged_in(answer.data.tokens)

    async def open(
        self,
        username: str,
        password: str,
        wish: RegisterWish,
        display_name: str | None,
        invite: str | None,
    ) -> None:
        """Use the login of the store, log in, or make the account, as `Client.open` says."""
        new = Register(
            username=username,
            password=password,
            device_id=self.device_id,
            display_name=display_name,
            invite=invite,
        )
        if wish == "always":
            await self.register(new)
        elif not await self._is_in(new.username):
            try:
                await self.login(new.username, new.password)
            except RefusedByServer as refusal:
                if wish == "never" or refusal.code != ErrorCode.INVALID_CREDENTIALS:
                    raise
                await self._register_instead(new, refusal)

    async def _register_instead(self, new: Register, refusal: RefusedByServer) -> None:
        try:
            await self.register(new)
        except RefusedByServer as taken:
            if taken.code == ErrorCode.CONFLICT:
                # There is an account: it is the password that is wrong.
                raise refusal from taken
            raise

    async def _is_in(self, username: str) -> bool:
        """Whether the store's login is still good, as far as that can be found out."""
        known = await self._meta("username")
        if known is None or self._refresh is None:
            return False
        if known.casefold() != username.casefold():
            await self._refuse_store(f"belongs to {known}, not to {username}; name another file")
        try:
            await self._rest.call(Envelope[AccountView], "GET", "/users/me")
        except ServerUnreachable:
            return True
        except LoginNeeded:
            return False
        except RefusedByServer as refusal:
            return refusal.status != HTTPStatus.UNAUTHORIZED
        return True

    async def forget(self) -> None:
        """Log out, on this device."""
        self._access = self._refresh = None
        await self._save(refresh_token=None, access_token=None)

    # Tokens.

    async def token(self, is_refused: bool) -> str:
        """The access token; a new one if the last was refused or ends soon. Raises LoginNeeded,
        ServerUnreachable and RefusedByServer."""
        refused = self._access if is_refused else None
        async with self._lock:
            is_due = self.renew_at_ms is not None and self.renew_at_ms <= self.wall_ms()
            # Another task may have renewed it while this one waited.
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
        body = Refresh(refresh_token=self._refresh, device_id=self.device_id)
        try:
            answer = await self._rest.call(
                Envelope[RefreshResult], "POST", "/auth/refresh", body, is_public=True
            )
        except RefusedByServer as refusal:
            if refusal.reason in _ENDED:
                raise LoginNeeded("this login has ended: log in again") from refusal
            raise
        await self._logged_in(answer.data.tokens)
        return answer.data.tokens.access_token

    async def _logged_in(self, tokens: TokensView) -> None:
        """Keep the tokens of a login; they are on the disk before they are used."""
        self._refresh = tokens.refresh_token
        self._take(tokens.access_token)
        await self._save(refresh_token=tokens.refresh_token, access_token=tokens.access_token)

    def _take(self, token: str) -> None:
        self._access = token
        expires_at_ms = facts_of(token).expires_at_ms
        if expires_at_ms is None:
            self.renew_at_ms = None
        else:
            now_ms = self.wall_ms()
            self.renew_at_ms = now_ms + renew_in_ms(max(expires_at_ms - now_ms, 0))
