"""The arithmetic of docs/scaling.md: its own inputs in, its tables out.

.venv/bin/python -m tests.tidy.scaling        prints the tables anew, after an input has changed
"""

import re
import sys
from collections.abc import Callable
from math import ceil
from typing import Final

from tests.tidy.repository import ROOT
from tidewire.domain.outbox import SHARDS

PAGE: Final = ROOT / "docs/scaling.md"
INPUT: Final = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.MULTILINE)

SIZES: Final = {"10 k users": 1e4, "1 M users": 1e6, "100 M users": 1e8}
DAY_SECONDS: Final = 86_400
PARTITION_WRITES: Final = 1_000
OUTBOX_WRITES: Final = 3
FANOUT_PARTITIONS: Final = 64
REASSERTED_SECONDS: Final = 5
LIMITS_A_MESSAGE: Final = 2
COMMIT_WRITES, MESSAGE_WRITES, MOVE_WRITES = 5, 4, 1
"""Write units, as docs/aws.md counts them: of a commit, of each message in it, of a position's
move."""
SEND_CALLS, MOVE_CALLS, ROSTER_CALLS = 2, 1, 3
"""Requests to DynamoDB: of a commit and its row of the outbox, of a position's move, of reading a
roster."""

Inputs = dict[str, float]


def read_inputs(text: str) -> Inputs:
    return {name: float(value) for name, value in INPUT.findall(text)}


class Load:
    """What so many users come to, at the peak, per second if not said otherwise."""

    def __init__(self, given: Inputs, users: float) -> None:
        self._given = given
        self.mean = users * given["messages_day"] / DAY_SECONDS
        self.messages = self.mean * given["peak"]
        self.commits = self.messages / given["batch"]
        self.connections = users * given["online"] * given["devices"]
        self.recipients_online = given["recipients"] * given["recipient_online"]
        self.frames = self.messages * self.recipients_online * given["devices"]

    @property
    def write_units(self) -> float:
        after = MOVE_WRITES * self._given["moves"]
        return self.commits * COMMIT_WRITES + self.messages * (MESSAGE_WRITES + after)

    @property
    def read_units(self) -> float:
        return self.messages * self._given["reads"]

    @property
    def gateway_calls(self) -> float:
        """Requests to DynamoDB."""
        return self.commits * SEND_CALLS + self.messages * MOVE_CALLS * self._given["moves"]

    @property
    def gateway_cores(self) -> float:
        pushes = self.frames * self._given["frame_us"] / 1e6
        return self.gateway_calls * self._given["call_ms"] / 1e3 + pushes

    @property
    def gateways(self) -> int:
        by_cpu = self.gateway_cores / self._given["busy"]
        return ceil(max(by_cpu, self.connections / self._given["connections_process"]))

    def fanout_cores(self, *, remembered: bool) -> float:
        missed_ms = 0 if remembered else ROSTER_CALLS * self._given["call_ms"]
        return self.messages * (self._given["event_us"] / 1e6 + missed_ms / 1e3)

    @property
    def pushes(self) -> float:
        """Entries of gateways' streams: the message, and its ticks to recipients and author."""
        ticks = self._given["told"] * (self.recipients_online + 1)
        return self.messages * (self.recipients_online + ticks)

    @property
    def redis_cores(self) -> float:
        routes = self.connections / REASSERTED_SECONDS * self._given["route_us"] / 1e6
        limits = self.messages * LIMITS_A_MESSAGE * self._given["limit_us"] / 1e6
        return routes + limits + self.pushes * self._given["push_us"] / 1e6

    @property
    def outbox_share(self) -> float:
        return self.commits * OUTBOX_WRITES / (SHARDS * PARTITION_WRITES)


Tell = Callable[[Load], str]


def shown(number: float, unit: str = "") -> str:
    """Two digits are all that such arithmetic is worth."""
    if number == 0:
        return f"0{unit}"
    digits = f"{number:.2g}"
    value = float(digits)
    text = f"{value:,.0f}".replace(",", " ") if value >= 10 else f"{value:g}"
    return f"{text}{unit}"


def load_table(given: Inputs) -> str:
    rows: list[tuple[str, Tell]] = [
        ("messages a second, mean", lambda one: shown(one.mean)),
        ("messages a second, peak", lambda one: shown(one.messages)),
        ("connections", lambda one: shown(one.connections)),
        ("message frames pushed a second", lambda one: shown(one.frames)),
        ("DynamoDB: write units a second", lambda one: shown(one.write_units)),
        ("DynamoDB: read units a second", lambda one: shown(one.read_units)),
        ("DynamoDB: messages, GB a day",
         lambda one: shown(one.mean * DAY_SECONDS * given["stored_bytes"] / 1e9)),
        ("DynamoDB: share of what the outbox takes",
         lambda one: shown(100 * one.outbox_share, " %")),
        ("gateways: requests to DynamoDB a second", lambda one: shown(one.gateway_calls)),
        ("gateways: cores", lambda one: shown(one.gateway_cores)),
        ("gateways: memory of connections, GB",
         lambda one: shown(one.connections * given["connection_kb"] / 1e6)),
        ("gateways: processes", lambda one: shown(one.gateways)),
        ("Kafka: MB a second", lambda one: shown(one.messages * given["record_bytes"] / 1e6)),
        ("Kafka: records a second and partition",
         lambda one: shown(one.messages / FANOUT_PARTITIONS)),
        ("fan-out: cores, rosters remembered",
         lambda one: shown(one.fanout_cores(remembered=True))),
        ("fan-out: cores, every roster read",
         lambda one: shown(one.fanout_cores(remembered=False))),
        ("Redis: memory of routes, GB",
         lambda one: shown(one.connections * given["route_bytes"] / 1e9)),
        ("Redis: routes said again a second",
         lambda one: shown(one.connections / REASSERTED_SECONDS)),
        ("Redis: entries of streams a second", lambda one: shown(one.pushes)),
        ("Redis: cores", lambda one: shown(one.redis_cores)),
    ]  # fmt: skip
    loads = [Load(given, users) for users in SIZES.values()]
    lines = [f"| at the peak | {' | '.join(SIZES)} |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {' | '.join(map(tell, loads))} |" for name, tell in rows]
    return "\n".join(lines)


def limit_table(given: Inputs) -> str:
    million = Load(given, 1e6)
    busy = given["busy"]
    reached = {
        "one Redis, one core of it": busy / million.redis_cores,
        "64 fan-out workers, every roster read": FANOUT_PARTITIONS
        * busy
        / million.fanout_cores(remembered=False),
        "64 shards of the outbox": 1 / million.outbox_share,
        "64 fan-out workers, rosters remembered": FANOUT_PARTITIONS
        * busy
        / million.fanout_cores(remembered=True),
    }
    rows = [
        f"| {what} | {shown(millions)} |"
        for what, millions in sorted(reached.items(), key=lambda item: item[1])
    ]
    return "\n".join(["| limit | reached at so many million users |", "|---|---:|", *rows])


def tables(text: str) -> list[str]:
    given = read_inputs(text)
    return [load_table(given), limit_table(given)]


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(tables(PAGE.read_text(encoding="utf-8"))) + "\n")
