"""A process that starts before its database does. Slow: real processes on real servers."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.crowd import until
from tests.cluster.running import Cluster, Member, running
from tests.support.proxy import FaultyProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WAITS = "waiting for the database"
WAITS_SEEN = 2
PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Tables and topics only."""
    with running(tmp_path, gateways=0, workers=0) as cluster:
        yield cluster


@pytest.mark.parametrize("role", ["gateway", "fanout"])
async def test_start_waits_for_a_database_that_is_away(role: str, cluster: Cluster) -> None:
    async with FaultyProxy(cluster.endpoints.dynamodb_port) as database:
        database.is_refusing = True
        member = _behind(cluster, role, database)
        member.launch()
        await until(partial(_has_waited, member), PATIENCE_S)
        database.heal()
        await asyncio.to_thread(member.await_ready)
        assert member.complaints() == []
        assert await member.stop() == 0


def _behind(cluster: Cluster, role: str, database: FaultyProxy) -> Member:
    """A process that gives up one request soon, as with the default settings."""
    endpoints = replace(cluster.endpoints, dynamodb_port=database.port)
    times = {"dynamodb__attempt_ms": 500, "dynamodb__budget_ms": 1_000}
    return cluster.add(role, endpoints, **times)


def _has_waited(member: Member) -> bool:
    """It has said several times that it waits, and goes on."""
    assert member.is_running, member.tail()
    return sum(WAITS in line["event"] for line in member.lines()) >= WAITS_SEEN
