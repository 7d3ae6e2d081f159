"""The event log in a real broker for tests: own topics for each test, and a broker to stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.support import stack
from tests.support.ports import free_port
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.topics import create_topics

START_SECONDS_MAX: Final = 120


def local_options(port: int, **changed: Any) -> KafkaOptions:
    """Few partitions, on one broker, under unique names."""
    settings: dict[str, Any] = {
        "bootstrap_servers": (f"127.0.0.1:{port}",),
        "topic_prefix": f"test-{uuid.uuid4().hex[:12]}.",
        "message_partitions": 4,
        "change_partitions": 2,
        "dead_letter_partitions": 1,
        "replication_factor": 1,
        "insync_replicas_min": 1,
        "session_ms": 6_000,
    }
    return KafkaOptions(**(settings | changed))


def fresh_topics(**changed: Any) -> KafkaOptions:
    """The settings of a new, empty log in the broker that all tests share."""
    options = local_options(stack.ensure("kafka"), **changed)
    create_topics(options)
    return options


def kafka_settings(**changed: Any) -> dict[str, str]:
    """The environment variables of a command for a log in the broker that all tests share; its
    topics are not made yet."""
    options = local_options(stack.ensure("kafka"), **changed)
    told = asdict(options) | {"bootstrap_servers": ",".join(options.bootstrap_servers)}
    return {
        f"TIDEWIRE_KAFKA_{name.upper()}": str(value)
        for name, value in told.items()
        if value not in (None, "")
    }


class OwnBroker:
    """A broker that a test may stop: no other test uses it. It keeps its data over a restart."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = os.environ | {
            "STACK_DIR": str(directory),
            "STACK_KAFKA_PORT": str(free_port()),
            "STACK_KAFKA_CONTROLLER_PORT": str(free_port()),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        }

    @property
    def port(self) -> int:
        return int(self._environment["STACK_KAFKA_PORT"])

    def secure(self, cert: Path, key: Path) -> int:
        """Let it listen on one more port, with TLS and SCRAM, from its next start on; that port."""
        port, store = free_port(), self._directory / "keystore.pem"
        store.write_bytes(key.read_bytes() + cert.read_bytes())
        plain, control = self.port, self._environment["STACK_KAFKA_CONTROLLER_PORT"]
        scram = "listener.name.secured.scram-sha-512.sasl.jaas.config"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        self._environment["STACK_KAFKA_SETTINGS"] = (
            f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control},"
            f"SECURED://127.0.0.1:{port}\n"
            "listener.security.protocol.map="
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            "listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-512\n"
            f"{scram}={module} required;\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={store}\n"
        )
        return port

    def start(self) -> None:
        self._control("up")

    def stop(self) -> None:
        self._control("down")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """The broker runs, but answers nothing."""
        pid: int = json.loads((self._directory / "kafka.json").read_text())["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _control(self, command: str) -> None:
        done = subprocess.run(
            [sys.executable, str(stack.SCRIPT), command, "kafka"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            raise stack.StackMissing(done.stderr.strip())


@contextmanager
def an_own_broker(*, is_started: bool = True) -> Iterator[OwnBroker]:
    place = stack.MEMORY if stack.MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="tidewire-kafka-", dir=place))
    broker = OwnBroker(directory)
    try:
        if is_started:
            broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
