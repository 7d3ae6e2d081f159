"""All settings of a server, in one order of precedence: flags, environment, file, defaults.

The only module that reads a server's environment. All faults are reported together, a sentence
each; a server never starts with a setting that was not understood.
"""

import os
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, get_type_hints

from tidewire.accounts.options import NEEDS_ONE, AccountOptions, IdentityOptions
from tidewire.chats.options import ChatOptions
from tidewire.delivery.options import DeliveryOptions
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import TidewireError
from tidewire.edge.options import EdgeOptions
from tidewire.edge.peers import TrustedProxies
from tidewire.edge.rest.options import RestOptions
from tidewire.fanout.options import FanoutOptions
from tidewire.gateway.options import GatewayOptions
from tidewire.ingest.options import IngestOptions
from tidewire.runtime.audit_files import AuditOptions
from tidewire.runtime.engines import ENGINES
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
    retired_settings,
    slots_of,
    unknown,
    variable_of,
)

DATA_DIR_DEFAULT: Final = Path("data")
CONFIG_NAME: Final = "tidewire.toml"
DATA_DIR_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}DATA_DIR"
CONFIG_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}CONFIG"


class Role(StrEnum):
    SINGLE = "single"
    """One process on SQLite, nothing else needed."""
    ALL = "all"
    """A gateway and a fan-out worker of a cluster in one process."""
    GATEWAY = "gateway"
    """Serves clients, stores what they send, tells the event log."""
    FANOUT = "fanout"
    """Reads the event log and pushes. Serves no clients, only probes."""

    @property
    def is_clustered(self) -> bool:
        return self is not Role.SINGLE

    @property
    def serves(self) -> bool:
        """It takes clients' connections."""
        return self is not Role.FANOUT

    @property
    def fans_out(self) -> bool:
        """It reads the event log."""
        return self in (Role.ALL, Role.FANOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """This process's part in a cluster."""

    role: Role = Role.SINGLE
    """What this process does: everything by itself, or a part of a cluster."""
    token_key_file: Path | None = None
    """What tokens are signed with; the same for all gateways. Made if it is not there. None: a file
    in the data directory."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All options of a server, with the values in effect."""

    data_dir: Path
    server: EdgeOptions
    rest: RestOptions
    gateway: GatewayOptions
    ingest: IngestOptions
    delivery: DeliveryOptions
    chats: ChatOptions
    fanout: FanoutOptions
    cluster: ClusterOptions
    accounts: AccountOptions
    identity: IdentityOptions
    audit: AuditOptions
    log: LogOptions
    engines: Mapping[str, Any]
    """The options of each engine, by its name."""


_SETTINGS: Final = {
    "server": "host port processes tls_cert tls_key trusted_proxies probe_token"
    " http_connections_max address_http_connections_max address_connections_max"
    " inbound_bytes_per_second",
    "rest": "reads_per_minute writes_per_minute anonymous_per_minute cors_origins",
    "gateway": "ping_interval_ms connection_age_ms_max send_chat_rate_per_second"
    " send_chat_burst send_user_rate_per_second send_user_burst requests_waiting_max"
    " outbound_bytes_max page_bytes_per_second user_connections_max user_connects_per_minute"
    " ip_connects_per_minute origins_allowed is_token_in_url_allowed",
    "chats": "group_members_max direct_policy strangers_per_hour edit_window_ms",
    "fanout": "rosters_max",
    "cluster": "role token_key_file",
    "accounts": "registration access_token_ms session_ms session_ms_max sessions_max bot_token_ms"
    " passwords.memory_kib throttle.login_ip_burst throttle.register_ip_burst",
    "identity": "issuer audience secret jwks_url username_claim display_name_claim",
    "audit": "files_max",
    "log": "level format",
    **{engine.name: engine.settings for engine in ENGINES.values()},
}
"""The options of each section that an operator can set. The others are constants: they are fields
so that a test can build a part with other values."""

SECTIONS: Final[Mapping[str, type]] = {
    **{
        name: kind
        for name, kind in get_type_hints(Config).items()
        if isinstance(kind, type) and is_dataclass(kind)
    },
    **{engine.name: engine.options for engine in ENGINES.values()},
}
"""The options of each part of the server."""

OPTIONS: Final[Mapping[str, Slot]] = {
    slot.name: slot for section, options in SECTIONS.items() for slot in slots_of(options, section)
}
"""Every option that a part of the server can be built with."""

SLOTS: Final[dict[str, Slot]] = {
    f"{section}.{name}": OPTIONS[f"{section}.{name}"]
    for section in SECTIONS
    for name in _SETTINGS.get(section, "").split()
}
"""The settings: what an operator can set."""

_OTHER_VARIABLES: Final = (DATA_DIR_VARIABLE, CONFIG_VARIABLE, *CLIENT_VARIABLES)


class BadConfig(TidewireError):
    """The settings cannot be used; `faults` says why, a sentence each."""

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

    Without `is_serving`, no user logs in. Then the secret of the identity provider need not be set:
    it may be only in the server's environment.
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
    registration = accounts.registration.decided(is_private=is_private(server))
    parts["accounts"] = replace(accounts, registration=registration)
    engines = {name: parts.pop(name) for name in ENGINES}
    config = Config(data_dir=place.value, engines=engines, **parts)
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
    """True if only this machine can reach the server, as far as its settings show: it listens on a
    loopback address, and no proxy forwards requests from elsewhere to it."""
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
    """The file that was named, which has to exist, or the one in the data directory, if any."""
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
            faults.append(f"{file}: {unknown(name, name, list(SLOTS))}")
    return given


def _leaves(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    names = {slot.variable: slot.name for slot in SLOTS.values()}
    retired = {variable_of(name): name for name in retired_settings()}
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        if variable in names:
            given[names[variable]] = Given(environ[variable], variable)
        else:
            known = [*names, *_OTHER_VARIABLES]
            fault = unknown(retired.get(variable, ""), variable, known)
            faults.append(f"environment: {fault}")
    return given


def _from_flags(flags: Mapping[str, str], faults: list[str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for name, text in flags.items():
        if name in SLOTS:
            given[name] = Given(text, "flag")
        else:
            faults.append(unknown(name, name, list(SLOTS)))
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
    if "server" in parts:
        faults.extend(_impossible_server(parts["server"]))
    return parts


def _impossible_server(server: EdgeOptions) -> Iterator[str]:
    """Check what the edge's options leave to us, because they do not look at files."""
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
