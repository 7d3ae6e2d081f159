"""One precedence, every value with its source, every fault told."""

from dataclasses import replace
from pathlib import Path

import pytest

from tidewire.accounts.options import Registration
from tidewire.domain.accounts import Secret
from tidewire.runtime.config import (
    CONFIG_NAME,
    OPTIONS,
    SECTIONS,
    SLOTS,
    BadConfig,
    Loaded,
    Role,
    load,
)
from tidewire.runtime.settings import Setting, retired_settings

KEY = "k" * 40


def source_of(loaded: Loaded, name: str) -> str:
    return {setting.name: setting.source for setting in loaded.settings}[name]


def faults_of(
    tmp_path: Path, file: str = "", flags: dict[str, str] | None = None, **environ: str
) -> list[str]:
    (tmp_path / CONFIG_NAME).write_text(file)
    with pytest.raises(BadConfig) as caught:
        load(data_dir=tmp_path, flags=flags, environ=environ)
    return caught.value.faults


def test_defaults_are_those_of_the_planes(tmp_path: Path) -> None:
    loaded = load(data_dir=tmp_path, environ={})
    for section, options in SECTIONS.items():
        expected = options()
        if section == "accounts":
            # On loopback, where it listens by default.
            expected = replace(expected, registration=Registration.OPEN)
        engines = loaded.config.engines
        found = engines[section] if section in engines else getattr(loaded.config, section)
        assert found == expected
    assert {one.source for one in loaded.settings[1:]} == {"default"}
    assert loaded.file is None
    assert (loaded.config.server.host, loaded.config.server.port) == ("127.0.0.1", 8080)


def test_flag_overrules_environment_overrules_file_overrules_default(tmp_path: Path) -> None:
    file = tmp_path / CONFIG_NAME
    file.write_text("[server]\nport = 1\nhost = '::1'\n[gateway]\nsend_chat_burst = 5\n")
    loaded = load(
        data_dir=tmp_path,
        flags={"server.port": "3"},
        environ={"TIDEWIRE_SERVER_PORT": "2", "TIDEWIRE_GATEWAY_SEND_CHAT_BURST": "6"},
    )
    config = loaded.config
    assert (config.server.port, source_of(loaded, "server.port")) == (3, "flag")
    assert config.gateway.send_chat_burst == 6
    assert source_of(loaded, "gateway.send_chat_burst") == "TIDEWIRE_GATEWAY_SEND_CHAT_BURST"
    assert (config.server.host, source_of(loaded, "server.host")) == ("::1", str(file))
    assert loaded.file == file


def test_nested_options_have_longer_names(tmp_path: Path) -> None:
    (tmp_path / CONFIG_NAME).write_text("[accounts.throttle]\nlogin_ip_burst = 7\n")
    environ = {"TIDEWIRE_ACCOUNTS_PASSWORDS_MEMORY_KIB": "64"}
    config = load(data_dir=tmp_path, environ=environ).config
    assert config.accounts.throttle.login_ip_burst == 7
    assert config.accounts.passwords.memory_kib == 64


def test_data_dir_comes_from_argument_environment_or_default(tmp_path: Path) -> None:
    environ = {"TIDEWIRE_DATA_DIR": "elsewhere"}
    assert load(data_dir=tmp_path, environ=environ).config.data_dir == tmp_path
    assert load(environ=environ).config.data_dir == Path("elsewhere")
    assert load(environ={}).config.data_dir == Path("data")


def test_file_is_the_one_that_was_named(tmp_path: Path) -> None:
    named = tmp_path / "mine.toml"
    named.write_text("log.level = 'debug'\n")
    by_flag = load(data_dir=tmp_path, file=named, environ={})
    by_variable = load(data_dir=tmp_path, environ={"TIDEWIRE_CONFIG": str(named)})
    assert by_flag.config.log.level == by_variable.config.log.level == "debug"
    with pytest.raises(BadConfig, match="No such file"):
        load(data_dir=tmp_path, file=tmp_path / "none.toml", environ={})


def test_variables_of_the_client_are_passed_over(tmp_path: Path) -> None:
    environ = {"TIDEWIRE_URL": "http://x", "TIDEWIRE_USER": "alice", "TIDEWIRE_PASSWORD": "secret"}
    assert load(data_dir=tmp_path, environ=environ) == load(data_dir=tmp_path, environ={})
    (fault,) = faults_of(tmp_path, TIDEWIRE_PASWORD="secret")
    assert "did you mean TIDEWIRE_PASSWORD?" in fault
    assert "secret" not in fault


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    faults = faults_of(
        tmp_path,
        "[server]\nprot = 1\n[gateway]\nsend_chat_burst = 'many'\n",
        {"log.colour": "red"},
        TIDEWIRE_SERVER_PORT="70000",
        TIDEWIRE_GATEWY_SEND_CHAT_BURST="1",
        TIDEWIRE_FANOUT_ROSTERS_MAX="0",
    )
    told = "\n".join(faults)
    assert len(faults) == 6
    assert "there is no setting server.prot; did you mean server.port?" in told
    assert "gateway.send_chat_burst (" in told
    assert "takes a whole number, not 'many'" in told
    assert "there is no setting log.colour" in told
    assert "server: port is 0 to 65535" in told
    assert "did you mean TIDEWIRE_GATEWAY_SEND_CHAT_BURST?" in told
    assert "fanout: rosters_max is at least 1" in told


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"server.tls_cert": "cert.pem"}, "tls_cert and tls_key go together"),
        (
            {"server.tls_cert": "no.pem", "server.tls_key": "no.key"},
            "server.tls_cert: there is no file no.pem",
        ),
        ({"server.trusted_proxies": "10.0.0.0/8, proxy"}, "server.trusted_proxies: 'proxy'"),
        ({"sqlite.synchronous": "OFF"}, "is no longer a setting: it is fixed at FULL"),
        ({"sqlite.vfs": "unix"}, "there is no setting sqlite.vfs"),
        ({"chats.group_members_max": "1"}, "chats: group_members_max is 2 to 1000"),
        ({"chats.group_members_max": "1001"}, "chats: group_members_max is 2 to 1000"),
        ({"server.http_connections_max": "0"}, "server: http_connections_max is at least 1"),
        ({"accounts.registration": "maybe"}, "takes auto, open, invite or closed, not 'maybe'"),
        ({"identity.secret": KEY}, "identity: secret and jwks_url need an issuer"),
        ({"identity.issuer": "https://id"}, "needs either a secret or a jwks_url"),
        ({"identity.issuer": "x", "identity.jwks_url": "file:///x"}, "begins with https://"),
        ({"identity.issuer": "x", "identity.secret": "short"}, "at least 32 bytes"),
    ],
)
def test_impossible_values_are_refused(
    tmp_path: Path, flags: dict[str, str], sentence: str
) -> None:
    assert sentence in "\n".join(faults_of(tmp_path, flags=flags))


def test_certificate_that_is_none_is_told(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text("no certificate")
    key.write_text("no key")
    flags = {"server.tls_cert": str(cert), "server.tls_key": str(key)}
    (fault,) = faults_of(tmp_path, flags=flags)
    assert fault.startswith("server.tls_cert and server.tls_key cannot be used")


def test_file_that_is_not_toml_is_told(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, "port: 80")
    assert "is not TOML" in fault


def test_secrets_are_neither_shown_nor_told(tmp_path: Path) -> None:
    flags = {"identity.issuer": "https://id", "identity.secret": KEY}
    loaded = load(data_dir=tmp_path, flags=flags, environ={})
    assert loaded.config.identity.secret == Secret(KEY)
    assert KEY not in repr(loaded)
    assert KEY not in "".join(setting.shown for setting in loaded.settings)
    (fault,) = faults_of(tmp_path, "[identity]\nsecret = 12345\n")
    assert "12345" not in fault


def test_every_setting_has_a_name_of_its_own_in_the_environment() -> None:
    assert len({slot.variable for slot in SLOTS.values()}) == len(SLOTS)
    assert all(slot.variable.isupper() for slot in SLOTS.values())


def test_setting_that_became_a_constant_is_refused_with_its_value(tmp_path: Path) -> None:
    """F9: people who had set it learn why it is no longer taken."""
    faults = faults_of(
        tmp_path,
        "[gateway]\nclosing_grace_ms = 1\n[delivery]\nbatch_max = 2",
        {"fanout.status_gather_ms": "5"},
        TIDEWIRE_INGEST_SEND_DEADLINE_MS="10",
    )
    told = "\n".join(faults)
    assert "gateway.closing_grace_ms is no longer a setting: it is fixed at 5 s" in told
    assert "delivery.batch_max is no longer a setting: it is fixed at 1024" in told
    assert "fanout.status_gather_ms is no longer a setting: it is fixed at 20 ms" in told
    assert "TIDEWIRE_INGEST_SEND_DEADLINE_MS is no longer a setting: it is fixed at 5 s" in told


def test_constants_are_what_refusals_say() -> None:
    retired = retired_settings()
    assert not set(retired) & set(SLOTS)
    for name in set(retired) & set(OPTIONS):
        shown = Setting(name, OPTIONS[name].default, "default").shown
        assert retired[name] == (shown or "nothing"), name


def test_role_is_single_unless_said_otherwise(tmp_path: Path) -> None:
    assert load(data_dir=tmp_path, environ={}).config.cluster.role is Role.SINGLE
    config = load(data_dir=tmp_path, environ={"TIDEWIRE_CLUSTER_ROLE": "fanout"}).config
    assert config.cluster.role is Role.FANOUT
    with pytest.raises(BadConfig, match=r"cluster\.role .* takes single, all, gateway or fanout"):
        load(data_dir=tmp_path, environ={}, flags={"cluster.role": "router"})


def test_roles_know_what_they_do() -> None:
    assert [role for role in Role if role.is_clustered] == [Role.ALL, Role.GATEWAY, Role.FANOUT]
    assert [role for role in Role if role.serves] == [Role.SINGLE, Role.ALL, Role.GATEWAY]
    assert [role for role in Role if role.fans_out] == [Role.ALL, Role.FANOUT]


@pytest.mark.parametrize(
    ("settings", "registration"),
    [
        ({}, Registration.OPEN),
        ({"server.host": "localhost"}, Registration.OPEN),
        ({"server.host": "127.8.9.10"}, Registration.OPEN),
        ({"server.host": "::1"}, Registration.OPEN),
        ({"server.host": "0.0.0.0"}, Registration.INVITE),
        ({"server.host": "::"}, Registration.INVITE),
        ({"server.host": "192.168.1.5"}, Registration.INVITE),
        ({"server.host": "chat.example.org"}, Registration.INVITE),
        ({"server.trusted_proxies": "127.0.0.1"}, Registration.INVITE),
        ({"server.host": "0.0.0.0", "accounts.registration": "open"}, Registration.OPEN),
        ({"accounts.registration": "closed"}, Registration.CLOSED),
        ({"server.host": "0.0.0.0", "accounts.registration": "auto"}, Registration.INVITE),
    ],
)
def test_registration_is_open_only_where_this_machine_alone_reaches_the_server(
    tmp_path: Path, settings: dict[str, str], registration: Registration
) -> None:
    """A13: unless it is set."""
    config = load(data_dir=tmp_path, flags=settings, environ={}).config
    assert config.accounts.registration is registration
