"""deploy/compose.yaml as far as it can be judged without a container engine: the settings are
settings, images have versions, whoever waits waits for somebody with a health check. And the lines
of `make stack-env`, which name the same settings."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec.yaml
import pytest

from tests.tidy.repository import ROOT
from tidewire.runtime.config import SLOTS
from tidewire.runtime.settings import ENVIRONMENT_PREFIX

COMPOSE = ROOT / "deploy/compose.yaml"
STACK = ROOT / "deploy/stack/stack.py"
VERSION = re.compile(r".+/[\w./-]+:\d+\.\d+\.\d+(-[a-z]+)?")
ONE_OFF = "service_completed_successfully"


def composed() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.yaml.decode(COMPOSE.read_bytes())
    return found


def variables_known() -> set[str]:
    return {slot.variable for slot in SLOTS.values()}


def test_settings_in_the_environment_are_settings() -> None:
    given = {
        variable
        for service in composed()["services"].values()
        for variable in service.get("environment", {})
        if variable.startswith(ENVIRONMENT_PREFIX)
    }
    assert len(given) >= 6
    assert given <= variables_known()


def test_images_have_an_exact_version() -> None:
    images = {service["image"] for service in composed()["services"].values()}
    assert [image for image in images if not VERSION.fullmatch(image)] == []


def unhealthy(composition: dict[str, Any]) -> list[str]:
    """Services that run on and have no health check, or wait for one that has none."""
    services = composition["services"]
    one_off = {
        name
        for service in services.values()
        for name, wanted in service.get("depends_on", {}).items()
        if wanted["condition"] == ONE_OFF
    }
    return [
        name
        for name, service in services.items()
        if name not in one_off and not service.get("healthcheck", {}).get("test")
    ]


def test_every_service_that_runs_on_has_a_health_check() -> None:
    assert unhealthy(composed()) == []


def test_unhealthy_finds_a_service_without_a_health_check() -> None:
    broken = composed()
    del broken["services"]["redis"]["healthcheck"]
    assert unhealthy(broken) == ["redis"]


def test_services_wait_for_services_that_are_there() -> None:
    services = composed()["services"]
    waited_for = {name for one in services.values() for name in one.get("depends_on", {})}
    assert waited_for <= services.keys()
    for service in services.values():
        for name, wanted in service.get("depends_on", {}).items():
            is_one_off = services[name].get("restart") == "no"
            assert wanted["condition"] == (ONE_OFF if is_one_off else "service_healthy")


def test_cluster_has_two_of_each_role_behind_the_balancer() -> None:
    services = composed()["services"]
    roles = [
        service["command"][-1]
        for service in services.values()
        if "serve" in service.get("command", [])
    ]
    assert sorted(roles) == ["fanout", "fanout", "gateway", "gateway"]
    gateways = {
        name for name, one in services.items() if one.get("command", [])[-1:] == ["gateway"]
    }
    conf = (ROOT / "deploy/nginx-cluster.conf").read_text(encoding="utf-8")
    assert set(re.findall(r"server (\S+):8080 ", conf)) == gateways
    for header in ("Upgrade $http_upgrade", "Connection $connection_upgrade", "Host $http_host"):
        assert f"proxy_set_header {header};" in conf


def test_mounted_files_are_there() -> None:
    for service in composed()["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (COMPOSE.parent / source).is_file()
            else:
                assert source in composed()["volumes"]


# make stack-env


def stack_env(directory: Path, *parts: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(STACK), "env", *parts],
        env=os.environ | {"STACK_DIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def pretend_running(directory: Path, part: str, port: int) -> None:
    """This very process in the place of a server: it runs, and nobody stops it."""
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    state = {"port": port, "pid": os.getpid(), "started": started}
    (directory / f"{part}.json").write_text(json.dumps(state))


def test_stack_env_prints_the_settings_of_what_runs(tmp_path: Path) -> None:
    pretend_running(tmp_path, "dynamodb", 4001)
    pretend_running(tmp_path, "redis", 4003)
    done = stack_env(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [
        re.fullmatch(r"export (TIDEWIRE_\w+)=(\S+)", line) for line in done.stdout.splitlines()
    ]
    given = {line[1]: line[2] for line in lines if line}
    assert len(given) == len(lines) == 6
    assert given["TIDEWIRE_DYNAMODB_ENDPOINT_URL"] == "http://127.0.0.1:4001"
    assert given["TIDEWIRE_REDIS_URL"] == "redis://127.0.0.1:4003"
    assert given.keys() <= variables_known()


def test_stack_env_names_the_broker(tmp_path: Path) -> None:
    pretend_running(tmp_path, "kafka", 4002)
    lines = stack_env(tmp_path).stdout.splitlines()
    assert lines[0] == "export TIDEWIRE_KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:4002"
    named = {line.removeprefix("export ").partition("=")[0] for line in lines}
    assert named <= variables_known()


@pytest.mark.parametrize("parts", [(), ("redis",)])
def test_stack_env_says_that_nothing_runs(tmp_path: Path, parts: tuple[str, ...]) -> None:
    if parts:
        pretend_running(tmp_path, "kafka", 4002)
    done = stack_env(tmp_path, *parts)
    assert done.returncode == 1
    assert "make stack" in done.stderr


def test_our_own_containers_write_to_their_volume_only_and_have_no_rights() -> None:
    ours = [
        service
        for service in composed()["services"].values()
        if service["image"].startswith("localhost/tidewire")
    ]
    assert len(ours) >= 5
    for service in ours:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_unit_file_bounds_memory_and_calls() -> None:
    lines = (ROOT / "deploy/tidewire.service").read_text().splitlines()
    for wanted in (
        "MemoryMax=2G",
        "SystemCallFilter=@system-service",
        "ProtectProc=invisible",
        "RestrictSUIDSGID=yes",
        "NoNewPrivileges=yes",
    ):
        assert wanted in lines
