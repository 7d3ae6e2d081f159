"""All settings of a server, from one precedence: flags, environment, file, defaults.

The only module that reads a server's environment. Everything that is wrong is told at once, a
sentence each; a server never starts with a setting that nobody understood.
"""

import os
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from tidewire.accounts.options import AccountOptions, check_secret, decided
from tidewire.chats.options import ChatOptions
from tidewire.delivery.options import DeliveryOptions
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import TidewireError
from tidewire.edge.options import EdgeOptions
from tidewire.edge.proxies import TrustedProxies
from tidewire.edge.rest.options import RestOptions
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.fanout.options import FanoutOptions
from tidewire.gateway.options import GatewayOptions
from tidewire.ingest.options import IngestOptions
from tidewire.runtime.audit_files import AuditOptions
from tidewire.runtime.roles import ClusterOptions
from tidewire.runtime.settings import (
    CLIENT_VARIABLES,
    DEFAULT,
    ENVIRONMENT_PREFIX,
    Given,
    Setting,
    Slot,
    Unfit,
    build,
    cast,
    nearest,
    slots_of,
)

DATA_DIR_DEFAULT: Final = Path("data")
CONFIG_NAME: Final = "tidewire.toml"
DATA_DIR_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}DATA_DIR"
CONFIG_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}CONFIG"


class LogFormat(StrEnum):
    AUTO = "auto"
    """For people on a terminal, JSON elsewhere."""
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What is said on standard error."""

    level: LogLevel = LogLevel.INFO
    """The least important lines that are written."""
    format: LogFormat = LogFormat.AUTO
    """How lines are written."""


NEEDS_ONE: Final = "an issuer needs either a secret or a jwks_url"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """The team's own identity provider, if it has one: whose tokens are taken besides our own."""

    issuer: str = ""
    """As it stands in its tokens. Without one, only Tidewire's own accounts are known."""
    audience: str = "tidewire"
    """As it stands in its tokens for this server."""
    secret: Secret | None = None
    """For HS256."""
    jwks_url: str = ""
    """For RS256 and EdDSA: where its public keys are."""
    username_claim: str = "preferred_username"
    """The claim that becomes the user name."""
    display_name_claim: str = "name"
    """The claim that becomes the name that others see."""
    leeway_ms: int = 60_000
    """How far its clock may be from ours."""
    keys_cached_ms: int = 300_000
    """How long its public keys hold before they are asked for again."""
    keys_cooldown_ms: int = 30_000
    """A key that is not known has them asked for at once, but not more often than this."""
    keys_stale_ms_max: int = 3_600_000
    """How long old keys hold while they cannot be asked for."""

    def __post_init__(self) -> None:
        if self.keys_cached_ms < 1 or self.keys_cooldown_ms < 1:
            raise ValueError("keys_cached_ms and keys_cooldown_ms are at least 1")
        if self.keys_stale_ms_max < self.keys_cached_ms:
            raise ValueError("keys_stale_ms_max is at least keys_cached_ms")
        is_given = self.secret is not None or bool(self.jwks_url)
        if not self.issuer:
            if is_given:
                raise ValueError("secret and jwks_url need an issuer")
            return
        if self.secret is not None and self.jwks_url:
            raise ValueError(NEEDS_ONE)
        if self.jwks_url and not self.jwks_url.startswith(("https://", "http://")):
            raise ValueError("jwks_url begins with https:// (or http://)")
        if self.secret is not None:
            check_secret(self.secret)
        if not 0 <= self.leeway_ms <= 600_000:
            raise ValueError("leeway_ms is at most ten minutes")

    @property
    def is_usable(self) -> bool:
        """Its tokens can be checked here."""
        return bool(self.issuer) and (self.secret is not None or bool(self.jwks_url))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set, as it holds."""

    data_dir: Path
    server: EdgeOptions
    rest: RestOptions
    gateway: GatewayOptions
    ingest: IngestOptions
    delivery: DeliveryOptions
    chats: ChatOptions
    fanout: FanoutOptions
    sqlite: SqliteOptions
    cluster: ClusterOptions
    dynamodb: DynamoOptions
    kafka: KafkaOptions
    redis: RedisOptions
    accounts: AccountOptions
    identity: IdentityOptions
    audit: AuditOptions
    log: LogOptions


SECTIONS: Final[Mapping[str, type]] = {
    "server": EdgeOptions,
    "rest": RestOptions,
    "gateway": GatewayOptions,
    "ingest": IngestOptions,
    "delivery": DeliveryOptions,
    "chats": ChatOptions,
    "fanout": FanoutOptions,
    "sqlite": SqliteOptions,
    "cluster": ClusterOptions,
    "dynamodb": DynamoOptions,
    "kafka": KafkaOptions,
    "redis": RedisOptions,
    "accounts": AccountOptions,
    "identity": IdentityOptions,
    "audit": AuditOptions,
    "log": LogOptions,
}

_HIDDEN: Final = ("sqlite.vfs",)
"""Not an operator's business: tests put a disk that fails there."""

SLOTS: Final[Mapping[str, Slot]] = {
    slot.name: slot
    for section, options in SECTIONS.items()
    for slot in slots_of(options, section, _HIDDEN)
}
_VARIABLES: Final[Mapping[str, Slot]] = {slot.variable: slot for slot in SLOTS.values()}
assert len(_VARIABLES) == len(SLOTS), "two settings have one name in the environment"

_OTHER_VARIABLES: Final = (DATA_DIR_VARIABLE, CONFIG_VARIABLE, *CLIENT_VARIABLES)


class BadConfig(TidewireError):
    """Settings that cannot be used; a sentence each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and where each of them comes from."""

    config: Config
    settings: tuple[Setting, ...]
    file: Path | None


def load(
    *,
    data_dir: Path | None = None,
    file: Path | None = None,
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    is_serving: bool = True,
) -> Loaded:
    """Read everything. `flags` are values by the name of their setting. Raises BadConfig.

    Without `is_serving`, nobody logs in: the secret of the identity provider, which may be in the
    server's environment alone, is not asked for.
    """
    environ = os.environ if environ is None else environ
    faults: list[str] = []
    place = _data_dir(data_dir, environ)
    assert isinstance(place.value, Path)
    file = _file(file, place.value, environ)
    given: dict[str, Given] = {}
    # The later ones overrule the earlier ones.
    if file is not None:
        given |= _from_file(file, faults)
    given |= _from_environment(environ, faults)
    given |= _from_flags(flags or {}, faults)
    values = _cast_all(given, faults)
    parts = _build_all(values, faults)
    identity = parts.get("identity")
    if is_serving and identity is not None and identity.issuer and not identity.is_usable:
        faults.append(f"identity: {NEEDS_ONE}")
    if faults:
        raise BadConfig(faults)
    accounts, server = parts["accounts"], parts["server"]
    registration = decided(accounts.registration, is_private=is_private(server))
    parts["accounts"] = replace(accounts, registration=registration)
    config = Config(data_dir=place.value, **parts)
    settings = [place]
    for name, slot in SLOTS.items():
        source = given[name].source if name in given else DEFAULT
        settings.append(Setting(name, values.get(name, slot.default), source))
    return Loaded(config, tuple(settings), file)


def default_data_dir() -> Path:
    """Where a server's data is if no directory is named."""
    place = _data_dir(None, os.environ).value
    assert isinstance(place, Path)
    return place


def is_private(server: EdgeOptions) -> bool:
    """True if only this machine reaches the server, as far as its settings tell: it listens on a
    loopback address, and no proxy passes on to it what comes from elsewhere."""
    if server.trusted_proxies:
        return False
    if server.host.lower() == "localhost":
        return True
    try:
        return ip_address(server.host).is_loopback
    except ValueError:
        return False


def _data_dir(data_dir: Path | None, environ: Mapping[str, str]) -> Setting:
    if data_dir is not None:
        return Setting("data_dir", data_dir, "argument")
    text = environ.get(DATA_DIR_VARIABLE, "")
    if text:
        return Setting("data_dir", Path(text), DATA_DIR_VARIABLE)
    return Setting("data_dir", DATA_DIR_DEFAULT, DEFAULT)


def _file(file: Path | None, data_dir: Path, environ: Mapping[str, str]) -> Path | None:
    """The file that was named, which has to be there, or the one in the data directory."""
    if file is not None:
        return file
    text = environ.get(CONFIG_VARIABLE, "")
    if text:
        return Path(text)
    usual = data_dir / CONFIG_NAME
    return usual if usual.exists() else None


def _from_file(file: Path, faults: list[str]) -> dict[str, Given]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(f"{file}: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"{file} is not TOML: {error}")
        return {}
    given: dict[str, Given] = {}
    for name, value in _leaves(content, ""):
        if name in SLOTS:
            given[name] = Given(value, str(file))
        else:
            faults.append(f"{file}: there is no setting {name}{nearest(name, list(SLOTS))}")
    return given


def _leaves(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        slot = _VARIABLES.get(variable)
        if slot is not None:
            given[slot.name] = Given(environ[variable], variable)
        else:
            known = [*_VARIABLES, *_OTHER_VARIABLES]
            faults.append(f"environment: there is no {variable}{nearest(variable, known)}")
    return given


def _from_flags(flags: Mapping[str, str], faults: list[str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for name, text in flags.items():
        if name in SLOTS:
            given[name] = Given(text, "flag")
        else:
            faults.append(f"there is no setting {name}{nearest(name, list(SLOTS))}")
    return given


def _cast_all(given: Mapping[str, Given], faults: list[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, (value, source) in given.items():
        slot = SLOTS[name]
        try:
            values[name] = cast(slot.kind, value)
        except Unfit as unfit:
            told = "" if slot.kind == (Secret | None) else f", not {value!r}"
            faults.append(f"{name} ({source}) {unfit}{told}")
    return values


def _build_all(values: Mapping[str, object], faults: list[str]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for section, options in SECTIONS.items():
        try:
            parts[section] = build(options, section, values)
        except ValueError as error:
            faults.append(f"{section}: {error}")
    faults.extend(_impossible(parts))
    return parts


def _impossible(parts: Mapping[str, Any]) -> Iterator[str]:
    """What the planes leave to us to check: they know neither files nor their neighbours."""
    if "sqlite" in parts and parts["sqlite"].synchronous not in ("FULL", "EXTRA"):
        yield "sqlite.synchronous is FULL or EXTRA: anything less loses acknowledged messages"
    if "server" in parts:
        yield from _impossible_server(parts["server"])


def _impossible_server(server: EdgeOptions) -> Iterator[str]:
    files = {"tls_cert": server.tls_cert, "tls_key": server.tls_key}
    missing = [name for name, file in files.items() if file is not None and not file.is_file()]
    for name in missing:
        yield f"server.{name}: there is no file {files[name]}"
    if server.tls_cert is not None and not missing:
        try:
            # No password, or OpenSSL would ask for one on the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                server.tls_cert, server.tls_key, password=lambda: ""
            )
        except OSError as error:
            yield f"server.tls_cert and server.tls_key cannot be used: {error}"
    try:
        TrustedProxies(server.trusted_proxies)
    except ValueError as error:
        yield f"server.trusted_proxies: {error}"
