"""The account plane on a memory store, with a clock that is told the time and cheap passwords."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from tests.support.engines import MemoryHarness
from tests.support.world import START_MS
from tidewire.accounts.assembly import Accounts, assemble_accounts
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import AccountOptions, IdentityOptions
from tidewire.accounts.service import LoggedIn
from tidewire.chats.options import ChatOptions
from tidewire.chats.service import ChatService
from tidewire.domain.accounts import Secret
from tidewire.domain.audit import AuditAction
from tidewire.domain.ids import ChatId, SessionId, UlidSource, UserId
from tidewire.ports.storage import Storage

SERVER_SECRET = Secret("the server's own secret, long enough")
PASSWORD = Secret("correct horse")
PHONE = "00000001-0000-4000-8000-000000000000"
LAPTOP = "00000002-0000-4000-8000-000000000000"
IP = "192.0.2.1"

Result = TypeVar("Result")


class ManualClock:
    """Both clocks, moved by hand. They begin at different times, so that they are not mixed up."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.monotonic = 5_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def pass_ms(self, length_ms: int) -> None:
        self.wall += length_ms
        self.monotonic += length_ms


class PlainHasher:
    """A hash that can be read, and a list of what it was asked to do."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.calls: list[str] = []

    def hash(self, password: Secret) -> str:
        self.calls.append("hash")
        return f"v{self.version}:{password.reveal()}"

    def matches(self, stored: str, password: Secret) -> bool:
        self.calls.append("matches")
        return stored.partition(":")[2] == password.reveal()

    def is_outdated(self, stored: str) -> bool:
        return not stored.startswith(f"v{self.version}:")


class KeptTrail:
    """The audit trail, as a list of what was reported."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, object]]] = []

    def record(self, action: AuditAction, **fields: object) -> None:
        said = {name: value for name, value in fields.items() if value is not None}
        self.records.append((action.value, said))

    def take(self) -> list[tuple[str, dict[str, object]]]:
        records, self.records = self.records, []
        return records


class Plane:
    """The plane with everything around it that a test wants to turn or to see."""

    def __init__(
        self,
        engine: MemoryHarness,
        *,
        options: AccountOptions | None = None,
        external: IdentityOptions | None = None,
        store: Storage | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.engine = engine
        self.clock = clock or ManualClock()
        self.hasher = PlainHasher()
        self.keys = KeyRing.of(SERVER_SECRET)
        options = options or AccountOptions()
        # As on a server that only this machine reaches.
        registration = options.registration.decided(is_private=True)
        self.options = replace(options, registration=registration)
        self.revoked: list[SessionId] = []
        self.trail = KeptTrail()
        self.rosters: list[ChatId] = []
        self.erased: list[UserId] = []
        self.erasing: Exception | None = None
        self.blocking_calls = 0
        self.random = Random(7)
        self.ids = UlidSource(Random(8).getrandbits)
        self.chats = ChatService(
            store=engine.storage,
            clock=self.clock,
            ids=self.ids,
            options=ChatOptions(),
            trail=self.trail,
        )
        self.accounts = self.assembled(store or engine.storage, external)

    def assembled(self, store: Storage, external: IdentityOptions | None) -> Accounts:
        return assemble_accounts(
            store=store,
            keys=self.keys,
            clock=self.clock,
            ids=self.ids,
            random_bytes=self.random.randbytes,
            run_blocking=self.run_blocking,
            options=self.options,
            identity=external or IdentityOptions(),
            on_revoked=self.on_revoked,
            on_roster_changed=self.rosters.append,
            depart=self.chats.depart,
            erase=self.erase,
            trail=self.trail,
            hasher=self.hasher,
        )

    async def erase(self, user_id: UserId) -> None:
        """Notes whose messages are to go; or fails as a store may."""
        if self.erasing is not None:
            raise self.erasing
        self.erased.append(user_id)

    @property
    def storage(self) -> Storage:
        return self.engine.storage

    def on_revoked(self, session_ids: Sequence[SessionId]) -> None:
        assert session_ids
        # Whoever closes sockets can rely on the tokens being refused already.
        assert all(self.accounts.authenticator.is_revoked(each) for each in session_ids)
        self.revoked += session_ids

    def run_blocking(self, work: Callable[[], Result]) -> Awaitable[Result]:
        async def run() -> Result:
            self.blocking_calls += 1
            return work()

        return run()

    def take_revoked(self) -> list[SessionId]:
        revoked, self.revoked = self.revoked, []
        return revoked

    async def registered(self, username: str = "anna", device_id: str = PHONE) -> LoggedIn:
        return await self.accounts.service.register(
            username, PASSWORD, device_id=device_id, client_ip=IP
        )

    async def logged_in(
        self, username: str = "anna", device_id: str = PHONE, password: Secret = PASSWORD
    ) -> LoggedIn:
        return await self.accounts.service.login(
            username, password, device_id=device_id, client_ip=IP
        )
