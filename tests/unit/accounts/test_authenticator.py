"""Who is behind a token, and that a session that has ended is refused from that instant."""

import asyncio
from typing import Any

import pytest

from tests.support.engines import MemoryHarness
from tests.support.logs import our_lines
from tests.support.memory import MemoryStorage
from tests.support.world import START_MS
from tests.unit.accounts.forgery import hs256, unsigned
from tests.unit.accounts.parts import LAPTOP, PHONE, SERVER_SECRET, Plane
from tidewire.accounts import authenticator as module
from tidewire.accounts.authenticator import SESSION_CACHED_MS, TOUCH_MS
from tidewire.accounts.options import AccountOptions, IdentityOptions
from tidewire.accounts.service import REFRESH_GRACE_MS, LoggedIn
from tidewire.accounts.tokens import LEEWAY_MS
from tidewire.domain.accounts import ExternalIdentity, Secret, Session, external_session_id
from tidewire.domain.errors import (
    AuthFailure,
    DeviceMismatch,
    InvalidOperation,
    InvalidRefreshToken,
    StoreUnavailable,
    Unauthorized,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.ids import SessionId
from tidewire.domain.users import User
from tidewire.ports.services import Identity
from tidewire.ports.storage import Storage

ISSUER = "https://id.example"
TEAM_SECRET = "a secret that the team shares with us"
TEAM = IdentityOptions(issuer=ISSUER, audience="chat", secret=Secret(TEAM_SECRET))


def token_of(logged_in: LoggedIn) -> str:
    return logged_in.tokens.access_token.reveal()


async def identified(plane: Plane, token: str, device_id: str | None = None) -> Identity:
    return await plane.accounts.authenticator.authenticate(token, device_id=device_id)


async def refusal(plane: Plane, token: str, device_id: str | None = None) -> AuthFailure:
    with pytest.raises(Unauthorized) as refused:
        await identified(plane, token, device_id)
    return refused.value.reason


class WatchedStorage(MemoryStorage):
    """Counts reads, and can stop one after it has seen the data, before it answers."""

    def __init__(self, engine: MemoryHarness) -> None:
        super().__init__(tables=engine.storage._open_tables())  # type: ignore[attr-defined]
        self.reads = 0
        self.gate: asyncio.Event | None = None
        self.is_down = False

    async def _stop(self) -> None:
        self.reads += 1
        if self.is_down:
            raise StoreUnavailable("down")
        if self.gate is not None:
            await self.gate.wait()

    async def session(self, session_id: SessionId) -> Session | None:
        found = await super().session(session_id)
        await self._stop()
        return found

    async def external_user(self, identity: ExternalIdentity) -> User | None:
        found = await super().external_user(identity)
        await self._stop()
        return found


@pytest.fixture
def storage(engine: MemoryHarness) -> WatchedStorage:
    return WatchedStorage(engine)


@pytest.fixture
def plane(engine: MemoryHarness, storage: Storage) -> Plane:
    return Plane(engine, store=storage, external=TEAM)


# Our own tokens.


async def test_token_names_its_bearer(plane: Plane) -> None:
    anna = await plane.registered("anna", PHONE)
    identity = await identified(plane, token_of(anna), PHONE)
    assert identity == Identity(
        user_id=anna.user.user_id,
        session_id=anna.session.session_id,
        device_id=PHONE,
        expires_at_ms=anna.tokens.access_expires_at_ms + LEEWAY_MS,
    )
    assert await identified(plane, token_of(anna), None) == identity
    assert await identified(plane, token_of(anna), PHONE.upper()) == identity


async def test_token_of_another_device_is_refused(plane: Plane) -> None:
    anna = await plane.registered("anna", PHONE)
    with pytest.raises(DeviceMismatch):
        await identified(plane, token_of(anna), LAPTOP)
    await identified(plane, token_of(anna), PHONE)


async def test_good_session_is_asked_for_once(plane: Plane, storage: WatchedStorage) -> None:
    anna = await plane.registered()
    for _ in range(5):
        await identified(plane, token_of(anna))
    assert storage.reads == 1
    plane.clock.pass_ms(SESSION_CACHED_MS)
    await identified(plane, token_of(anna))
    assert storage.reads == 2


async def test_token_that_has_expired_is_refused_and_says_when(plane: Plane) -> None:
    anna = await plane.registered()
    await identified(plane, token_of(anna))
    plane.clock.pass_ms(plane.options.access_token_ms + LEEWAY_MS)
    assert await refusal(plane, token_of(anna)) is AuthFailure.TOKEN_EXPIRED


async def test_token_of_a_revoked_session_is_refused_at_once(plane: Plane) -> None:
    anna = await plane.registered()
    laptop = await plane.logged_in("anna", LAPTOP)
    for logged_in in (anna, laptop):
        await identified(plane, token_of(logged_in))
    await plane.accounts.service.revoke_session(anna.user.user_id, anna.session.session_id)
    assert await refusal(plane, token_of(anna)) is AuthFailure.TOKEN_REVOKED
    assert plane.accounts.authenticator.is_revoked(anna.session.session_id)
    # The other device is not touched.
    await identified(plane, token_of(laptop))
    assert not plane.accounts.authenticator.is_revoked(laptop.session.session_id)


@pytest.mark.parametrize("way", ["logout", "all", "login again", "password", "disable", "reuse"])
async def test_every_way_to_end_a_session_refuses_its_token_at_once(plane: Plane, way: str) -> None:
    anna = await plane.registered("anna", PHONE)
    user_id, session_id = anna.user.user_id, anna.session.session_id
    service, admin = plane.accounts.service, plane.accounts.admin
    await identified(plane, token_of(anna))
    match way:
        case "logout":
            await service.logout(user_id, session_id)
        case "all":
            await service.revoke_sessions(user_id, keep=None)
        case "login again":
            await plane.logged_in("anna", PHONE)
        case "password":
            await admin.set_password(user_id, Secret("another password"))
        case "disable":
            await admin.disable_user(user_id)
        case _:
            await service.refresh(anna.tokens.refresh_token, device_id=PHONE)
            plane.clock.pass_ms(REFRESH_GRACE_MS + 1)
            with pytest.raises(InvalidRefreshToken):
                await service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    assert session_id in plane.take_revoked()
    assert await refusal(plane, token_of(anna)) is AuthFailure.TOKEN_REVOKED


async def test_session_that_is_revoked_while_it_is_read_is_refused(
    plane: Plane, storage: WatchedStorage
) -> None:
    """The read has seen the session already when it is revoked: it must not be remembered."""
    anna = await plane.registered()
    storage.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(refusal(plane, token_of(anna)))
        while not storage.reads:
            await asyncio.wait([reading], timeout=0)
        await plane.accounts.service.logout(anna.user.user_id, anna.session.session_id)
        storage.gate.set()
    assert reading.result() is AuthFailure.TOKEN_REVOKED
    assert await refusal(plane, token_of(anna)) is AuthFailure.TOKEN_REVOKED


async def test_session_that_was_ended_elsewhere_is_refused_when_the_memory_has_aged(
    plane: Plane,
) -> None:
    anna = await plane.registered()
    await identified(plane, token_of(anna))
    await plane.storage.revoke_session(anna.user.user_id, anna.session.session_id)
    plane.clock.pass_ms(SESSION_CACHED_MS)
    assert await refusal(plane, token_of(anna)) is AuthFailure.TOKEN_REVOKED


async def test_session_that_has_expired_is_refused(engine: MemoryHarness) -> None:
    hour_ms = 3_600_000
    plane = Plane(engine, options=AccountOptions(session_ms=hour_ms))
    anna = await plane.registered()
    plane.clock.pass_ms(hour_ms)
    # Within the leeway the token itself is good still.
    assert await refusal(plane, token_of(anna)) is AuthFailure.TOKEN_REVOKED


@pytest.mark.parametrize("claim", ["sub", "did"])
async def test_token_that_does_not_fit_its_session_is_refused(plane: Plane, claim: str) -> None:
    """Even one with our signature: nobody becomes another one by a session id."""
    anna, ben = await plane.registered("anna"), await plane.registered("ben", LAPTOP)
    claims = {
        "iss": "tidewire",
        "aud": "tidewire",
        "sub": ben.user.user_id if claim == "sub" else anna.user.user_id,
        "sid": anna.session.session_id,
        "did": LAPTOP if claim == "did" else PHONE,
        "exp": START_MS // 1000 + 60,
    }
    token = hs256(claims, SERVER_SECRET.reveal().encode())
    assert await refusal(plane, token) is AuthFailure.INVALID_TOKEN


async def test_store_that_cannot_be_asked_is_not_a_refusal(
    plane: Plane, storage: WatchedStorage
) -> None:
    anna = await plane.registered()
    storage.is_down = True
    with pytest.raises(StoreUnavailable):
        await identified(plane, token_of(anna))
    storage.is_down = False
    await identified(plane, token_of(anna))


@pytest.mark.parametrize(
    "token",
    ["", "x", "a.b.c", unsigned({"iss": "tidewire"}, "none"), unsigned({"iss": "nobody"}, "none")],
)
async def test_text_of_a_stranger_is_refused(plane: Plane, token: str) -> None:
    assert await refusal(plane, token) is AuthFailure.INVALID_TOKEN


async def test_memory_of_sessions_is_bounded(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS_CACHED_MAX", 3)
    people = [await plane.registered(f"user{number}") for number in range(8)]
    for person in people:
        await identified(plane, token_of(person))
    authenticator = plane.accounts.authenticator
    memories = [value for value in vars(authenticator).values() if isinstance(value, dict)]
    assert len(memories) == 4
    assert all(len(memory) <= 3 for memory in memories)


async def test_sessions_in_use_are_noted_now_and_then(plane: Plane) -> None:
    anna = await plane.registered()
    session_id = anna.session.session_id
    for _ in range(3):
        await identified(plane, token_of(anna))
    assert plane.accounts.authenticator.take_touched() == [session_id]
    await identified(plane, token_of(anna))
    assert plane.accounts.authenticator.take_touched() == []
    plane.clock.pass_ms(TOUCH_MS)
    await identified(plane, token_of(anna))
    assert plane.accounts.authenticator.take_touched() == [session_id]


# The identity provider's tokens.


SUBJECT = "42"


def external(subject: str = SUBJECT, **changes: Any) -> str:
    claims = {
        "iss": ISSUER,
        "aud": "chat",
        "sub": subject,
        "exp": START_MS // 1000 + 600,
        "preferred_username": "zoe",
        "name": "Zoé",
    } | changes
    return hs256(claims, TEAM_SECRET.encode())


async def test_external_user_is_made_on_first_sight(plane: Plane) -> None:
    identity = await identified(plane, external(), PHONE)
    assert identity.device_id is None
    assert identity.expires_at_ms == START_MS + 660_000
    [user] = await plane.storage.users([identity.user_id])
    assert (user.username, user.display_name) == ("zoe", "Zoé")
    assert identity.session_id == external_session_id(user)
    again = await identified(plane, external(preferred_username="other"), LAPTOP)
    assert again.user_id == identity.user_id


async def test_external_user_whose_name_is_taken_gets_one_like_it_and_the_log_says_so(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """C4: it was called u-01m7…, and nothing told of it."""
    zoe = await plane.registered("zoe")
    identity = await identified(plane, external())
    assert identity.user_id != zoe.user.user_id
    [user] = await plane.storage.users([identity.user_id])
    assert user.username == f"zoe-{identity.user_id[-10:].lower()}"
    assert user.display_name == "Zoé"
    [line] = [record.getMessage() for record in our_lines(caplog)]
    assert "'zoe'" in line
    assert "is taken" in line
    assert user.user_id in line
    assert user.username in line


async def test_external_user_is_shown_as_the_token_says(
    plane: Plane, storage: WatchedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the name follows the claim, when it is next looked at."""
    identity = await identified(plane, external())
    plane.clock.pass_ms(SESSION_CACHED_MS)
    await identified(plane, external(name="Zoé Q."))
    [user] = await plane.storage.users([identity.user_id])
    assert (user.username, user.display_name) == ("zoe", "Zoé Q.")
    # What is no name changes nothing, and neither does a store that cannot write.
    for name in (None, "", "Admin", "\u202eeoZ"):
        plane.clock.pass_ms(SESSION_CACHED_MS)
        await identified(plane, external(name=name))

    async def full(*_: object, **__: object) -> User:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(storage, "set_display_name", full)
    plane.clock.pass_ms(SESSION_CACHED_MS)
    assert (await identified(plane, external(name="Zoé R."))).user_id == identity.user_id
    assert [user] == await plane.storage.users([identity.user_id])


async def test_external_user_made_beforehand_is_found_at_the_first_login(plane: Plane) -> None:
    """C4: a person can be added to a chat before the first login."""
    admin = plane.accounts.admin
    made = await admin.add_external_user("admin", SUBJECT, display_name="Zoé the first")
    assert await admin.external_user(SUBJECT) == made
    identity = await identified(plane, external())
    assert identity.user_id == made.user_id
    [user] = await plane.storage.users([made.user_id])
    assert (user.username, user.display_name) == ("admin", "Zoé")
    with pytest.raises(InvalidOperation, match="account already: admin"):
        await admin.add_external_user("zoe", SUBJECT)
    with pytest.raises(UsernameTaken):
        await admin.add_external_user("Admin", "another")
    with pytest.raises(UserNotFound):
        await admin.external_user("another")
    for subject in ("", "x" * 257, "a\x00b"):
        with pytest.raises(InvalidOperation, match="subject"):
            await admin.external_user(subject)


async def test_external_user_needs_a_provider(engine: MemoryHarness) -> None:
    with pytest.raises(InvalidOperation, match=r"identity\.issuer"):
        await Plane(engine).accounts.admin.add_external_user("zoe", "42")


async def test_external_user_without_usable_names_gets_some(plane: Plane) -> None:
    identity = await identified(plane, external(preferred_username="ö ö", name=None))
    [user] = await plane.storage.users([identity.user_id])
    assert user.username == user.display_name
    assert user.username.startswith("u-")


async def test_external_user_has_no_password(plane: Plane) -> None:
    await identified(plane, external())
    credentials = await plane.storage.credentials("zoe")
    assert credentials is not None
    assert credentials.password_hash is None


async def test_external_token_names_its_device_if_it_does(plane: Plane) -> None:
    assert (await identified(plane, external(did=PHONE), PHONE)).device_id == PHONE
    assert (await identified(plane, external(did=PHONE), None)).device_id == PHONE
    with pytest.raises(DeviceMismatch):
        await identified(plane, external(did=PHONE), LAPTOP)


async def test_external_user_who_is_disabled_is_refused_at_once(
    plane: Plane, storage: WatchedStorage
) -> None:
    identity = await identified(plane, external())
    await plane.accounts.admin.disable_user(identity.user_id)
    assert plane.take_revoked() == [identity.session_id]
    assert await refusal(plane, external()) is AuthFailure.TOKEN_REVOKED
    assert plane.accounts.authenticator.is_revoked(identity.session_id)
    await plane.accounts.admin.enable_user(identity.user_id)
    again = await identified(plane, external())
    assert again.user_id == identity.user_id
    # Whoever remembers the session that ended does not refuse this one.
    assert again.session_id != identity.session_id
    assert not plane.accounts.authenticator.is_revoked(again.session_id)
    await plane.accounts.admin.disable_user(identity.user_id)
    assert plane.take_revoked() == [again.session_id]
    assert await refusal(plane, external()) is AuthFailure.TOKEN_REVOKED


async def test_external_user_disabled_by_another_process_is_refused(engine: MemoryHarness) -> None:
    """The store alone says so: this process was told of no revocation (E2)."""
    plane = Plane(engine, external=TEAM)
    identity = await identified(plane, external())
    await engine.storage.disable_user(identity.user_id, now_ms=plane.clock.wall_ms())
    plane.clock.pass_ms(SESSION_CACHED_MS)
    assert await refusal(plane, external()) is AuthFailure.TOKEN_REVOKED
    # Nor does a process that starts later let the user in.
    later = Plane(engine, external=TEAM, clock=plane.clock)
    assert await refusal(later, external()) is AuthFailure.TOKEN_REVOKED
    await engine.storage.enable_user(identity.user_id, now_ms=plane.clock.wall_ms())
    assert (await identified(plane, external())).user_id == identity.user_id


async def test_external_user_who_is_disabled_while_he_is_read_is_refused(
    plane: Plane, storage: WatchedStorage
) -> None:
    identity = await identified(plane, external())
    plane.clock.pass_ms(SESSION_CACHED_MS)
    storage.reads, storage.gate = 0, asyncio.Event()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(refusal(plane, external()))
        while not storage.reads:
            await asyncio.wait([reading], timeout=0)
        await plane.accounts.admin.disable_user(identity.user_id)
        storage.gate.set()
    assert reading.result() is AuthFailure.TOKEN_REVOKED


async def test_external_token_cannot_pass_for_ours(plane: Plane) -> None:
    anna = await plane.registered()
    claims = {
        "iss": "tidewire",
        "aud": "tidewire",
        "sub": anna.user.user_id,
        "sid": anna.session.session_id,
        "did": PHONE,
        "exp": START_MS // 1000 + 60,
    }
    assert await refusal(plane, hs256(claims, TEAM_SECRET.encode())) is AuthFailure.INVALID_TOKEN
    # Nor does our secret sign for the provider.
    token = hs256(claims | {"iss": ISSUER, "aud": "chat"}, SERVER_SECRET.reveal().encode())
    assert await refusal(plane, token) is AuthFailure.INVALID_TOKEN


async def test_external_tokens_are_refused_without_a_provider(engine: MemoryHarness) -> None:
    assert await refusal(Plane(engine), external()) is AuthFailure.INVALID_TOKEN


def test_provider_cannot_have_our_name() -> None:
    with pytest.raises(ValueError, match="tidewire"):
        IdentityOptions(issuer="tidewire", audience="x", secret=Secret("x" * 32))
