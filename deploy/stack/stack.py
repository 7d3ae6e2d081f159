"""DynamoDB Local, Kafka and Redis on this machine: `make stack`, `make stack-down`.

    python3 deploy/stack/stack.py up [dynamodb] [kafka] [redis]     starts what does not run yet
    python3 deploy/stack/stack.py down [...]                        stops it, by its process id
    python3 deploy/stack/stack.py status                            says what runs, as JSON
    python3 deploy/stack/stack.py env [...]                         prints the settings to use it
    python3 deploy/stack/stack.py record                            writes the jars' checksums anew

Everything listens on loopback. Data, logs, ports and process ids are in one directory. The jars
come by Maven into a cache and are checked against the checksums beside this file before each start.
Needs the standard library only, so that it works before anything is installed.

    STACK_DIR             data, logs and state (default: .stack in the repository)
    STACK_CACHE           jars (default: tidewire-stack in the user's cache directory)
    STACK_DYNAMODB_PORT, STACK_KAFKA_PORT, STACK_REDIS_PORT     ports (default: free ones)
    STACK_KAFKA_SETTINGS     further lines of Kafka's server.properties
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
DIRECTORY: Final = Path(os.environ.get("STACK_DIR") or ROOT / ".stack").resolve()
CACHE: Final = Path(
    os.environ.get("STACK_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidewire-stack"
).resolve()

PARTS: Final = ("dynamodb", "kafka", "redis")
JAVA_PARTS: Final = ("dynamodb", "kafka")
START_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 20
DOWNLOAD_SECONDS_MAX: Final = 600
INSTALLING: Final = Path(tempfile.gettempdir()) / "tidewire-installing"
"""Locked by the copy of the project that uses the package manager (tests/support/web.py does,
too)."""
KAFKA_CLUSTER: Final = "dGlkZXdpcmUtdGVzdC0wMQ"
"""Any 16 bytes in base 64: it only has to stay the same."""

NEEDED: Final[dict[str, dict[str, str]]] = {
    # The program that is looked for, and the Debian package that brings it.
    "dynamodb": {"java": "openjdk-17-jdk-headless", "javac": "openjdk-17-jdk-headless"},
    "kafka": {"java": "openjdk-17-jdk-headless"},
    "redis": {"redis-server": "redis-server"},
}


class Trouble(Exception):
    """What is wrong, and what to do about it."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="The servers that a cluster rests on.")
    parser.add_argument("command", choices=["up", "down", "status", "env", "record"])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    options = parser.parse_args(arguments)
    parts = options.parts or list(PARTS)
    unknown = sorted({*parts} - {*PARTS})
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    try:
        with _lock(DIRECTORY / "lock"):
            if options.command == "up":
                with _lock(CACHE / "jars.lock"):
                    _install_missing(parts)
                    for part in {*parts} & {*JAVA_PARTS}:
                        _ensure_jars(part)
                for part in parts:
                    _up(part)
            elif options.command == "down":
                for part in parts:
                    _down(part)
            elif options.command == "record":
                for part in JAVA_PARTS:
                    _record(part)
            if options.command == "env":
                _say("\n".join(_exports(parts)))
            else:
                _say(json.dumps({part: _state(part) for part in PARTS if _runs(part)}))
    except Trouble as trouble:
        sys.stderr.write(f"stack: {trouble}\n")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One at a time: several test processes may ask for the stack at once, and several copies of
    the project share one cache of jars."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _exports(parts: Sequence[str]) -> list[str]:
    """The settings of a Tidewire that uses what runs, as lines for a shell."""
    running = [part for part in parts if _runs(part)]
    if not running:
        raise Trouble("nothing runs; start it with 'make stack'")
    return [
        f"export {variable}={value}"
        for part in running
        for variable, value in _settings(part, _state(part)["port"]).items()
    ]


def _settings(part: str, port: int) -> dict[str, str]:
    address = f"127.0.0.1:{port}"
    if part == "kafka":
        # One broker cannot keep more than one copy.
        return {
            "TIDEWIRE_KAFKA_BOOTSTRAP_SERVERS": address,
            "TIDEWIRE_KAFKA_REPLICATION_FACTOR": "1",
            "TIDEWIRE_KAFKA_INSYNC_REPLICAS_MIN": "1",
        }
    if part == "redis":
        return {"TIDEWIRE_REDIS_URL": f"redis://{address}"}
    # DynamoDB Local wants a region and credentials, and takes any.
    return {
        "TIDEWIRE_DYNAMODB_ENDPOINT_URL": f"http://{address}",
        "TIDEWIRE_DYNAMODB_REGION": "us-east-1",
        "TIDEWIRE_DYNAMODB_ACCESS_KEY": "local",
        "TIDEWIRE_DYNAMODB_SECRET_KEY": "local",
        # All gateways sign with one key; the first that starts makes it.
        "TIDEWIRE_CLUSTER_TOKEN_KEY_FILE": str(DIRECTORY / "token.key"),
    }


# What has to be there.


def _install_missing(parts: Sequence[str]) -> None:
    missing = {
        program: package
        for part in parts
        for program, package in NEEDED[part].items()
        if shutil.which(program) is None
    }
    if shutil.which("mvn") is None and any(not _jars(part) for part in {*parts} & {*JAVA_PARTS}):
        missing["mvn"] = "maven"
    if not missing:
        return
    packages = sorted(set(missing.values()))
    if os.environ.get("CI") == "true" and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        apt_get = ["apt-get", "--quiet", "--option", f"DPkg::Lock::Timeout={DOWNLOAD_SECONDS_MAX}"]
        install = [*apt_get, "install", "--yes", "--no-install-recommends", *packages]
        # Tests of the web, or another copy of the project, may install something now, and only one
        # can have the package manager.
        with _lock(INSTALLING):
            for command in ([*apt_get, "update"], install):
                _run(command, environment, "the packages cannot be installed")
        return
    raise Trouble(
        f"{', '.join(sorted(missing))} not found; install it first, on Debian: "
        f"apt-get install {' '.join(packages)}"
    )


def _jars(part: str) -> Path | None:
    """The directory of a part's jars if it is complete; a damaged one is Trouble."""
    directory = CACHE / f"{part}-{_fingerprint(part)}"
    if not directory.is_dir():
        return None
    wanted = dict(
        reversed(line.split("  ", 1)) for line in _checksums(part).read_text().splitlines()
    )
    found = _sums(directory)
    wrong = sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )
    if wrong:
        raise Trouble(
            f"{directory} is not what was recorded in {_checksums(part).name} "
            f"({', '.join(wrong[:5])}); delete that directory and try again"
        )
    return directory


def _checksums(part: str) -> Path:
    return HERE / f"{part}.sha256"


def _fingerprint(part: str) -> str:
    """Another pom or other checksums make another directory."""
    text = (HERE / "pom.xml").read_bytes()
    if _checksums(part).exists():
        text += _checksums(part).read_bytes()
    return hashlib.sha256(text).hexdigest()[:12]


def _sums(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
    }


def _download(part: str, directory: Path) -> None:
    fresh = directory.with_name(directory.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    maven = ["mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml")]
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    _run([*maven, "-P", part, *copy], dict(os.environ), f"Maven cannot bring the jars of {part}")
    fresh.rename(directory)


def _ensure_jars(part: str) -> Path:
    found = _jars(part)
    if found is not None:
        return found
    directory = CACHE / f"{part}-{_fingerprint(part)}"
    _download(part, directory)
    found = _jars(part)
    assert found is not None
    return found


def _record(part: str) -> None:
    directory = CACHE / f"{part}-new"
    shutil.rmtree(directory, ignore_errors=True)
    _download(part, directory)
    lines = [f"{digest}  {name}\n" for name, digest in _sums(directory).items()]
    _checksums(part).write_text("".join(lines))
    shutil.rmtree(directory)


def _run(command: Sequence[str], environment: dict[str, str], trouble: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own commands
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Trouble(f"{trouble}: no end after {DOWNLOAD_SECONDS_MAX} s") from error
    if done.returncode:
        raise Trouble(f"{trouble}: {(done.stdout + done.stderr)[-2000:]}")


# Starting and stopping.


def _up(part: str) -> None:
    if _runs(part):
        if _is_healthy(part, _state(part)):
            return
        _down(part)
    home = DIRECTORY / part
    home.mkdir(parents=True, exist_ok=True)
    state: dict[str, Any] = {"port": _port(part)}
    if part == "kafka":
        state["controller_port"] = _port("kafka_controller")
    command = {"dynamodb": _dynamodb, "kafka": _kafka, "redis": _redis}[part](home, state)
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # The last one also keeps DynamoDB Local from calling home.
            env=os.environ | {"LANG": "C.UTF-8", "DDB_LOCAL_TELEMETRY": "0"},
            start_new_session=True,
        )
    state |= {"pid": process.pid, "started": _start_time(process.pid)}
    _state_file(part).write_text(json.dumps(state))
    deadline = time.monotonic() + START_SECONDS_MAX
    while not _is_healthy(part, state):
        if process.poll() is not None or time.monotonic() > deadline:
            _down(part)
            raise Trouble(
                f"{part} did not start; its log is {home / 'log'}:\n{_tail(home / 'log')}"
            )
        time.sleep(0.05)


def _down(part: str) -> None:
    if _runs(part):
        pid = _state(part)["pid"]
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while _runs(part):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
    _state_file(part).unlink(missing_ok=True)


def _state_file(part: str) -> Path:
    return DIRECTORY / f"{part}.json"


def _state(part: str) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(_state_file(part).read_text())
    except FileNotFoundError:
        return {}
    return state


def _runs(part: str) -> bool:
    """True if the very process that was started still runs: a number alone may be another's."""
    state = _state(part)
    return bool(state) and _start_time(state["pid"]) == state["started"]


def _start_time(pid: int) -> str | None:
    """When a process began, as the kernel counts; None if it is gone or a corpse."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _port(name: str) -> int:
    """The port that was asked for, or the one of the last time, or a free one: a server that was
    stopped comes back where it was, so that settings in a shell go on being true."""
    asked = int(os.environ.get(f"STACK_{name.upper()}_PORT") or 0)
    if asked:
        return asked
    file = DIRECTORY / f"{name}.port"
    wanted = int(file.read_text()) if file.exists() else 0
    try:
        port = _bindable(wanted)
    except OSError:
        port = _bindable(0)
    file.write_text(str(port))
    return port


def _bindable(port: int) -> int:
    """The port, or a free one for 0. Raises OSError if another program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        bound: int = probe.getsockname()[1]
    return bound


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:])


# The parts.


def _dynamodb(home: Path, state: dict[str, Any]) -> list[str]:
    jars = _ensure_jars("dynamodb")
    data = home / "data"
    data.mkdir(exist_ok=True)
    return [
        "java",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        f"-Djava.library.path={jars}",
        "-cp",
        f"{jars}/*",
        str(HERE / "LoopbackDynamoDb.java"),
        *("-disableTelemetry", "-sharedDb", "-dbPath", str(data), "-port", str(state["port"])),
    ]


def _kafka(home: Path, state: dict[str, Any]) -> list[str]:
    jars = _ensure_jars("kafka")
    settings = home / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{state['controller_port']}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{state['port']},"
        f"CONTROLLER://127.0.0.1:{state['controller_port']}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={home / 'data'}\n"
        "auto.create.topics.enable=false\n"
        "offsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
        "group.initial.rebalance.delay.ms=0\n" + os.environ.get("STACK_KAFKA_SETTINGS", "")
        # The last line of a name counts.
    )
    # A broker that lives for minutes: the compiler's second stage and a collector with threads of
    # its own would take more of a small machine than they give back.
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
    cluster = ["-t", KAFKA_CLUSTER, "-c", str(settings)]
    _run([*java, *tool, *cluster], dict(os.environ), "Kafka's storage cannot be formatted")
    return [*java, "kafka.Kafka", str(settings)]


def _redis(home: Path, state: dict[str, Any]) -> list[str]:
    (home / "data").mkdir(exist_ok=True)
    settings = ["--bind", "127.0.0.1", "--port", str(state["port"]), "--dir", str(home / "data")]
    bound = ["--maxmemory", "256mb", "--maxmemory-policy", "volatile-ttl"]
    return ["redis-server", *settings, "--save", "", "--appendonly", "no", *bound]


def _is_healthy(part: str, state: dict[str, Any]) -> bool:
    try:
        if part == "dynamodb":
            return _answers_http(state["port"])
        with socket.create_connection(("127.0.0.1", state["port"]), timeout=1) as connection:
            if part == "kafka":
                # An ApiVersions request: a port that is open is not yet a broker that answers.
                connection.sendall(bytes.fromhex("0000000c 0012 0000 00000001 0002 7477"))
                return connection.recv(8)[4:8] == b"\x00\x00\x00\x01"
            connection.sendall(b"PING\r\n")
            return connection.recv(7) == b"+PONG\r\n"
    except OSError:
        return False


def _answers_http(port: int) -> bool:
    """Any answer of an HTTP server will do: it refuses requests that are not signed."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1).close()
    except urllib.error.HTTPError:
        return True
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
