"""The OpenAPI description is true: schemathesis calls a real server by it. Slow: 1500 calls."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import description_hooks
from tests.e2e.chatting import PASSWORD, Account, Site

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
LIMITS = ("lookups_per_minute", "lookups_per_hour", "sends_per_minute")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    roomy = {f"rest__{name}": 100_000 for name in LIMITS}
    with Site(
        tmp_path_factory.mktemp("description"),
        accounts__throttle__login_name_burst=100_000,
        **roomy,
    ) as site:
        yield site


def schemathesis(site: Site, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run it to its end; what it says. The same calls in the same order each time."""
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            "--config-file",
            str(CONFIG),
            "run",
            f"{site.url}/api/v1/openapi.json",
            "--no-color",
            "--generation-deterministic",
            "--continue-on-failure",
            "--checks=all",
            *arguments,
        ],
        cwd=site.data_dir.parent,  # it leaves its notes there
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": description_hooks.__name__,
            description_hooks.URL: site.url,
            description_hooks.PASSWORD: PASSWORD,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(480)
async def test_every_answer_is_as_described(site: Site) -> None:
    ann, bob, cleo, dora = await site.people("ann", "bob", "cleo", "dora")
    await site.group(ann, cleo)

    exit_code, said = await asyncio.to_thread(
        schemathesis,
        site,
        "--max-examples=15",
        **{
            description_hooks.TOKEN: ann.token,
            description_hooks.PASSER_BY: bob.username,
            description_hooks.FRIEND: dora.user_id,
        },
    )

    assert exit_code == 0, said
    assert site.complaints() == []
    # It was let in, to the end, and did something: what it says would be worth little otherwise.
    assert await _has_come_in(site, ann, dora), said


async def _has_come_in(site: Site, ann: Account, dora: Account) -> bool:
    chats = await site.done("GET", "/chats?limit=100", by=ann)
    partners = [chat["other_member"]["user_id"] for chat in chats if "other_member" in chat]
    return dora.user_id in partners and any(chat["current_sequence"] for chat in chats)
