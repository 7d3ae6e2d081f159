"""Logins: credentials, sessions, invites, blocks and the keys of REST requests, as values. PURE.

Secrets are passed as `Secret`, whose `repr` hides the value; only their hashes are stored.
"""

import hmac
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import (
    RANDOM_BITS,
    SESSION_PREFIX,
    USER_PREFIX,
    ChatId,
    SessionId,
    UserId,
    encode_ulid,
    is_uuid,
)
from tidewire.domain.limits import (
    CLIENT_CHARACTERS_MAX,
    PASSWORD_CHARACTERS_MAX,
    PASSWORD_CHARACTERS_MIN,
    REQUEST_KEY_LIFE_MS,
    REQUEST_PENDING_MS_MAX,
    SUBJECT_CHARACTERS_MAX,
)
from tidewire.domain.users import User


class Secret:
    """A text that must not be seen: a password, a token, a key. Only `reveal` shows it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        """Compare in constant time: the time does not tell where two secrets differ."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(
            self._value.encode(errors="surrogatepass"), other._value.encode(errors="surrogatepass")
        )

    __hash__ = None  # type: ignore[assignment]
    """Not hashable, because no dict needs a secret as a key."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """A user with the hash of the password; None: there is no password (an external user)."""

    user: User
    password_hash: str | None
    places: Sequence[str] = ()
    """Marks of the devices and addresses from which this account logged in before
    (`login_places`)."""

    def __repr__(self) -> str:
        return f"Credentials({self.user.user_id})"


class NewAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A request to make a user who can log in. With `invite_hash`, that invite is used up."""

    user: User
    password_hash: str
    invite_hash: bytes | None = None

    def __repr__(self) -> str:
        return f"NewAccount({self.user.user_id})"


class ExternalIdentity(msgspec.Struct, frozen=True):
    """A person's identity at the team's own identity provider."""

    issuer: str
    subject: str


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    """Permission for one person to register. Only a hash of the code is stored."""

    code_hash: bytes
    created_by: UserId | None
    """None: the operator."""
    created_at_ms: int
    expires_at_ms: int


class SessionKind(StrEnum):
    LOGIN = "login"
    """One device of a person. It is refreshed and listed, and a user has only a few."""
    BOT = "bot"
    """A token of a program, issued by an operator: long-lived, bound to no device."""


class SeenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session, and where its last login or refresh came from. Both fields are None for a bot,
    because an operator made its token."""

    session_id: SessionId
    address: str | None = None
    """The IP address."""
    client: str | None = None
    """What the client called itself: its own claim, cleaned by `clean_client`."""


class Session(SeenSession, frozen=True, kw_only=True):
    """A login. It ends when it expires or its row is deleted; nothing else marks its end."""

    user_id: UserId
    device_id: str | None
    """None for a bot."""
    kind: SessionKind = SessionKind.LOGIN
    label: str | None = None
    """A name for people to read; bots have one."""
    generation: int = 0
    """How often its refresh token was rotated."""
    created_at_ms: int
    last_active_at_ms: int
    """Exact to a few minutes."""
    expires_at_ms: int


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request to open a session.

    `password_hash` is the hash that the password was checked against: if the stored one has changed
    since, the login is refused. `rehashed` replaces it (stronger parameters). None for both: the
    session needs no password. `places` are marks of where this login came from (`login_places`);
    they are stored with the password.
    """

    session: Session
    refresh_hash: bytes | None
    password_hash: str | None = None
    rehashed: str | None = None
    places: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"OpenSession({self.session!r})"


class OpenedSession(msgspec.Struct, frozen=True):
    """`ended` are the sessions that the new one replaces: of the same device, and those not used
    for the longest time if there are too many. Their sockets must be closed."""

    session: Session
    ended: Sequence[SessionId]


class RotateRefresh(SeenSession, frozen=True, kw_only=True):
    """A request to exchange a refresh token for the next one. It carries only their hashes."""

    device_id: str
    presented_hash: bytes
    next_hash: bytes
    grace_ms: int
    """How long the previous token is still accepted, in case its answer was lost (S-02)."""
    life_ms: int
    """The session's lifetime from now on."""
    life_ms_max: int | None = None
    """Its longest lifetime since it was opened, however active it is; None: no limit."""


class RefreshRotated(msgspec.Struct, frozen=True):
    """The token of `next_hash` is the current one now. `repeated`: the last answer was lost, so it
    is given again; the generation does not change."""

    session: Session
    repeated: bool


class RefreshReused(msgspec.Struct, frozen=True):
    """The previous token came after its grace, so it counts as stolen. The session is deleted."""

    session: Session


class RefreshOtherDevice(msgspec.Struct, frozen=True):
    """A good token from another device than the session's. Nothing has changed."""


class RefreshUnknown(msgspec.Struct, frozen=True):
    """Neither this session's current token nor the previous one. Nothing has changed.

    `session` is None if there is no such session, it has expired, or it has no refresh tokens.
    """

    session: Session | None = None
    refresh_hash: bytes | None = None

    def __repr__(self) -> str:
        return f"RefreshUnknown({self.session!r})"


RefreshOutcome = RefreshRotated | RefreshReused | RefreshOtherDevice | RefreshUnknown


class BlockChange(msgspec.Struct, frozen=True):
    """The result of a block or unblock. `chat_id` is the pair's direct chat if there is one: its
    membership version has risen, so a cached roster of it must be read again."""

    changed: bool
    chat_id: ChatId | None = None


class RequestKey(msgspec.Struct, frozen=True, kw_only=True):
    """An Idempotency-Key: it names one request of one user to one endpoint."""

    user_id: UserId
    endpoint: str
    key: str


class RequestClaimed(msgspec.Struct, frozen=True):
    """The caller has to carry the request out, and then to finish or release it.

    `resource_id` is the id for the resource to be made. `resumed`: an earlier attempt crashed
    midway and may have made the resource already, under this same id.
    """

    resource_id: str | None
    resumed: bool = False


class RequestReplayed(msgspec.Struct, frozen=True):
    """The request was carried out before; this is its result."""

    http_status: int
    resource_id: str | None


class RequestMismatch(msgspec.Struct, frozen=True):
    """The key was used for another body."""


class RequestPending(msgspec.Struct, frozen=True):
    """An equal request is being carried out right now."""


RequestClaim = RequestClaimed | RequestReplayed | RequestMismatch | RequestPending


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored under an Idempotency-Key. `http_status` None: it is not finished."""

    body_hash: bytes
    resource_id: str | None
    http_status: int | None
    created_at_ms: int
    claimed_at_ms: int


def judge_request(
    stored: StoredRequest | None, body_hash: bytes, *, now_ms: int
) -> RequestClaim | None:
    """The answer to a request with an Idempotency-Key; None: it is the first one with this key.

    RequestClaimed: the first request crashed before it was finished; this one takes it over.
    """
    if stored is None or stored.created_at_ms <= now_ms - REQUEST_KEY_LIFE_MS:
        return None
    if stored.body_hash != body_hash:
        return RequestMismatch()
    if stored.http_status is not None:
        return RequestReplayed(stored.http_status, stored.resource_id)
    if now_ms - stored.claimed_at_ms < REQUEST_PENDING_MS_MAX:
        return RequestPending()
    return RequestClaimed(stored.resource_id, resumed=True)


def external_session_id(user: User) -> SessionId:
    """The session id of a user whose sessions another identity provider keeps.

    We store none of those sessions, so all connections of the user carry this id. It is revoked
    when the user is disabled. A user who is enabled again gets another id, because a session that
    ended stays ended.
    """
    ulid = user.user_id.removeprefix(USER_PREFIX)
    if user.enabled_at_ms is not None:
        ulid = encode_ulid(user.enabled_at_ms << RANDOM_BITS)[:10] + ulid[10:]
    return SessionId(SESSION_PREFIX + ulid)


def check_subject(subject: str) -> str:
    """The name that an identity provider has for a person: 1 to 256 characters, no NUL."""
    if not 0 < len(subject) <= SUBJECT_CHARACTERS_MAX or "\x00" in subject:
        raise InvalidOperation(
            f"a subject of an identity provider has 1 to {SUBJECT_CHARACTERS_MAX} characters"
        )
    return subject


def check_password(password: Secret) -> Secret:
    """Returns the password if it is valid: 8 to 1024 characters of Unicode text."""
    text = password.reveal()
    if not PASSWORD_CHARACTERS_MIN <= len(text) <= PASSWORD_CHARACTERS_MAX:
        raise InvalidOperation(
            f"a password has {PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} characters"
        )
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidOperation("a password is valid Unicode text")
    return password


def clean_client(name: str | None) -> str | None:
    """The client's name for itself (User-Agent), cleaned to be shown in one line; None if empty.

    It is only the client's claim: use it to tell a user's devices apart, and for nothing else.
    """
    if name is None:
        return None
    shown = "".join(letter if letter.isprintable() else " " for letter in name[:1_024])
    return " ".join(shown.split())[:CLIENT_CHARACTERS_MAX].rstrip() or None


def check_device_id(device_id: str) -> str:
    """The id in the form that is stored and compared: a UUID in lower case."""
    if not is_uuid(device_id):
        raise InvalidOperation("a device id is a UUID that the device made for itself")
    return device_id.lower()
