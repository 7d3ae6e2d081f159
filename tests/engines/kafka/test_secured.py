"""A broker with TLS and SASL/SCRAM, and certificates of an authority of our own.

Slow: a broker of its own.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

# What this module offers to all, mypy takes for its own affair.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.engines.kafka.conftest import OpenLog, OpenReader
from tests.support.certificates import make_files
from tests.support.kafka import an_own_broker, local_options
from tests.support.pushing import published
from tests.unit.ingest.events import a_message
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka import topics
from tidewire.engines.kafka.options import KafkaOptions, SecurityProtocol

pytestmark = pytest.mark.slow

USER, PASSWORD = "tidewire", "correct horse"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaOptions]:
    """How to reach it as one who may."""
    ca, cert, key = make_files(tmp_path_factory.mktemp("certificates"))
    with an_own_broker(is_started=False) as broker:
        port = broker.secure(cert, key)
        broker.start()
        _make_user(broker.port)
        yield local_options(
            port,
            security_protocol=SecurityProtocol.SASL_SSL,
            sasl_username=USER,
            sasl_password=Secret(PASSWORD),
            tls_ca_file=str(ca),
            client_rack="zone-a",
        )


def _make_user(port: int) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wish = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for made in admin.alter_user_scram_credentials([wish]).values():
        made.result(timeout=60)


async def test_event_goes_through_tls_and_scram(
    secured: KafkaOptions, open_log: OpenLog, open_reader: OpenReader
) -> None:
    await asyncio.to_thread(topics.create_topics, secured)
    assert await asyncio.to_thread(topics.check_topics, secured) == []
    message = a_message(1)
    await published(open_log(secured), [message])
    reader = open_reader(secured)
    async with asyncio.timeout(60):
        while not (records := await reader.read()):
            pass
    assert [record.key for record in records] == [message.message.chat_id.encode()]


NO_LOGIN = {"sasl_username": "", "sasl_password": None}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"sasl_password": Secret("wrong")}, "invalid credentials", id="password"),
        pytest.param({"sasl_username": "stranger"}, "invalid credentials", id="user"),
        pytest.param({"tls_ca_file": ""}, "certificate", id="authority"),
        # The broker ends these connections without a word.
        pytest.param(
            {"security_protocol": SecurityProtocol.SSL, **NO_LOGIN}, "get metadata", id="no login"
        ),
        pytest.param(
            {"security_protocol": SecurityProtocol.PLAINTEXT, **NO_LOGIN},
            "get metadata",
            id="no TLS",
        ),
    ],
)
async def test_who_may_not_is_refused_and_told_why(
    secured: KafkaOptions, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], reason: str
) -> None:
    """The first test shows that the broker answers."""
    monkeypatch.setattr(topics, "ANSWER_S_MAX", 5.0)
    with pytest.raises(LogUnavailable, match=reason):
        await asyncio.to_thread(topics.create_topics, replace(secured, **changed))


async def test_server_that_may_not_says_why_in_its_log(
    secured: KafkaOptions,
    open_log: OpenLog,
    open_reader: OpenReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = replace(secured, sasl_password=Secret("wrong"), delivery_ms=3_000)
    with pytest.raises(LogUnavailable):
        await published(open_log(refused), [a_message(1)])
    reader = open_reader(refused)
    async with asyncio.timeout(60):
        while len(caplog.messages) < 2:
            assert list(await reader.read()) == []
    assert all("invalid credentials" in told for told in caplog.messages)
    assert all(told.startswith("no broker") for told in caplog.messages)
