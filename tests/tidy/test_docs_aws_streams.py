"""docs/aws.md: the topics are those of the engine, and Redis's rights are what the scripts need."""

import re

import pytest

from tests.tidy.repository import ROOT
from tidewire.engines.kafka import schema
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.redis.options import RedisOptions

PAGE = (ROOT / "docs/aws.md").read_text(encoding="utf-8")
SCRIPTS = ROOT / "src/tidewire/engines/redis/scripts"
DAY_MS, GB = 86_400_000, 1_000_000_000
OUTSIDE_SCRIPTS = {"eval", "evalsha", "info", "command", "cluster|slots"}
OF_A_WORKER = ("append", "gateways", "lookup", "presence")
"""The scripts that a fan-out worker calls."""
SHARED = re.compile(r"local function (\w+)\(.*?\n(.*?)^end", re.MULTILINE | re.DOTALL)


def topic_row(topic: schema.Topic) -> str:
    days = int(topic.settings["retention.ms"]) // DAY_MS
    gigabytes = int(topic.settings["retention.bytes"]) // GB
    return f"| `{topic.name}` | {topic.partitions} | {days} days | {gigabytes} GB |"


@pytest.mark.parametrize("topic", schema.topics(KafkaOptions()), ids=lambda topic: topic.name)
def test_page_has_the_topic(topic: schema.Topic) -> None:
    assert topic_row(topic) in PAGE
    assert f"Replication {topic.replication_factor}," in PAGE
    for setting in ("min.insync.replicas", "unclean.leader.election.enable"):
        assert f"`{setting}` {topic.settings[setting]}" in PAGE


def commands_granted(user: str) -> set[str]:
    found = re.search(rf"^user {user} (.*?)(?:^$|^```)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, user
    return {word[1:] for word in found[1].split() if word[0] == "+" and word[1] != "@"}


def calls(source: str) -> set[str]:
    return {name.lower() for name in re.findall(r"redis\.call\('(\w+)'", source)}


def commands_needed(script: str) -> set[str]:
    """What a script calls, itself or through what all scripts share."""
    shared = dict(SHARED.findall((SCRIPTS / "common.lua").read_text(encoding="utf-8")))
    source = (SCRIPTS / f"{script}.lua").read_text(encoding="utf-8")
    waiting = [source]
    seen: set[str] = set()
    needed: set[str] = set()
    while waiting:
        text = waiting.pop()
        needed |= calls(text)
        for name in shared.keys() - seen:
            if re.search(rf"\b{name}\(", text):
                seen.add(name)
                waiting.append(shared[name])
    return needed


def test_gateway_may_run_every_script_and_nothing_else() -> None:
    scripts = [path.stem for path in SCRIPTS.glob("*.lua") if path.stem != "common"]
    assert len(scripts) >= len(OF_A_WORKER)
    needed = set().union(*map(commands_needed, scripts))
    assert commands_granted("tidewire-gateway") == needed | OUTSIDE_SCRIPTS | {"xread"}


def test_fanout_worker_may_push_and_nothing_else() -> None:
    needed = set().union(*map(commands_needed, OF_A_WORKER))
    assert commands_granted("tidewire-fanout") == needed | OUTSIDE_SCRIPTS
    assert "xread" not in needed


def test_page_names_the_prefix_of_the_settings() -> None:
    assert f"`redis.key_prefix`, `{RedisOptions().key_prefix}`" in PAGE
