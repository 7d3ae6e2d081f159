"""How many processes, and what each of them may hold."""

from pathlib import Path

from tidewire.runtime.config import Config, load
from tidewire.runtime.parts import processes_of, share_of


def config(tmp_path: Path, **flags: str) -> Config:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load(data_dir=tmp_path, flags=named, environ={}).config


def test_one_process_is_the_default_and_all_that_a_cluster_has(tmp_path: Path) -> None:
    assert processes_of(config(tmp_path)) == 1
    assert processes_of(config(tmp_path, server__processes="5")) == 5
    assert processes_of(config(tmp_path, server__processes="5", cluster__role="gateway")) == 1


def test_gateways_hold_together_what_the_settings_say(tmp_path: Path) -> None:
    whole = config(tmp_path)
    part = share_of(whole, 3)
    for options, name in (
        ("server", "http_connections_max"),
        ("server", "address_http_connections_max"),
        ("server", "address_connections_max"),
        ("gateway", "connections_max"),
        ("gateway", "handshakes_max"),
        ("gateway", "return_rate_per_second"),
    ):
        total, share = (getattr(getattr(one, options), name) for one in (whole, part))
        assert total <= 3 * share < total + 3, name
    assert part.data_dir == whole.data_dir
