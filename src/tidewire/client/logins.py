"""Logging a device in: by password, by a new account, or with what is in the store already."""

from http import HTTPStatus
from typing import Literal

from tidewire.client.credentials import Credentials
from tidewire.client.errors import LoginNeeded, RefusedByServer, ServerUnreachable, StoreUnusable
from tidewire.client.rest import Rest
from tidewire.client.store import Store
from tidewire.domain.errors import ErrorCode
from tidewire.wire.rest_models import AccountView, Envelope, LoginResult
from tidewire.wire.rest_requests import Login, Register

RegisterWish = Literal["if-missing", "never", "always"]


class Logins:
    def __init__(self, rest: Rest, store: Store, credentials: Credentials) -> None:
        self._rest = rest
        self._store = store
        self._credentials = credentials

    async def enter(self, body: Register | Login) -> None:
        """Make an account, or log in; the tokens are in the store then. Raises RefusedByServer,
        ServerUnreachable and StoreUnusable."""
        path = "/auth/register" if isinstance(body, Register) else "/auth/login"
        answer = await self._rest.call(Envelope[LoginResult], "POST", path, body, is_public=True)
        user_id = answer.data.user.user_id
        await self.check_owner(user_id)
        await self._store.do(
            lambda tables: tables.set_meta(user_id=user_id, username=body.username)
        )
        await self._credentials.logged_in(answer.data.tokens)

    async def enter_as_told(self, new: Register, wish: RegisterWish) -> None:
        """Use the login of the store, log in, or make the account, as `Client.open` says."""
        if wish == "always":
            await self.enter(new)
        elif not await self._is_in(new.username):
            login = Login(username=new.username, password=new.password, device_id=new.device_id)
            try:
                await self.enter(login)
            except RefusedByServer as refusal:
                if wish == "never" or refusal.code != ErrorCode.INVALID_CREDENTIALS:
                    raise
                await self._register_instead(new, refusal)

    async def _register_instead(self, new: Register, refusal: RefusedByServer) -> None:
        try:
            await self.enter(new)
        except RefusedByServer as taken:
            if taken.code == ErrorCode.CONFLICT:
                # There is an account: it is the password that is wrong.
                raise refusal from taken
            raise

    async def _is_in(self, username: str) -> bool:
        """Whether the store's login is still good, as far as that can be found out."""
        known = await self._store.do(lambda tables: tables.meta("username"))
        if known is None or not self._credentials.has_login:
            return False
        if known.casefold() != username.casefold():
            await self.refuse_store(f"belongs to {known}, not to {username}; name another file")
        try:
            await self._rest.call(Envelope[AccountView], "GET", "/users/me")
        except ServerUnreachable:
            return True
        except LoginNeeded:
            return False
        except RefusedByServer as refusal:
            return refusal.status != HTTPStatus.UNAUTHORIZED
        return True

    async def check_owner(self, user_id: str) -> None:
        """Raises StoreUnusable if the store is somebody else's."""
        known = await self._store.do(lambda tables: tables.meta("user_id"))
        if known is not None and known != user_id:
            await self.refuse_store(
                f"belongs to the user {known}, not to {user_id}; "
                "each user needs a store of their own"
            )

    async def refuse_store(self, why: str) -> None:
        await self._store.close()
        raise StoreUnusable(f"the store {self._store.path} {why}")
