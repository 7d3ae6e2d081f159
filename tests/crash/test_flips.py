"""One bit is flipped anywhere in a store: it is verified and served, and the damage is contained.
Slow: many stores are opened.

`python -m tests.crash.flips --copies 300` does the same for longer.
"""

from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.crash.flipped_servers import try_servers
from tests.crash.flips import Tally, make_store, try_copies, try_copy

COPIES = 40
COPIES_MIN = 10
SECONDS_MAX = 20.0
"""So a busy machine tries fewer copies."""


@pytest.mark.slow
async def test_no_flipped_bit_ends_a_server_or_is_served_as_truth(tmp_path: Path) -> None:
    tally = await try_copies(
        tmp_path, "forty", COPIES, copies_min=COPIES_MIN, seconds_max=SECONDS_MAX
    )
    assert tally.faults == []
    assert tally.copies >= COPIES_MIN
    assert tally.outcomes["served"] > tally.copies / 2
    assert tally.outcomes["verify sees it"] > 0


@pytest.mark.slow
async def test_server_process_survives_a_flipped_bit(tmp_path: Path) -> None:
    tally = Tally()
    await try_servers(tmp_path, "two", 2, tally)
    assert tally.faults == []
    assert tally.outcomes["servers that serve"] > 0


@pytest.mark.slow
async def test_message_that_was_never_said_is_caught(tmp_path: Path) -> None:
    truth = await make_store(tmp_path)
    chat_id, messages = next(iter(truth.messages.items()))
    messages[3] = msgspec.structs.replace(messages[3], content="something else")
    tally = Tally()
    await try_copy(tmp_path / "stopped", tmp_path / "copy", truth, Random(1), tally)
    assert any(f"{chat_id}: 4 is not what was stored" in fault for fault in tally.faults)
