"""Reasons are codes for programs, and stable."""

import re

from tidewire.domain.resync import ResyncReason


def test_reasons_are_codes_and_stay() -> None:
    assert set(ResyncReason) == {
        "fanout_overloaded",
        "store_unavailable",
        "digest_incomplete",
        "pushes_lost",
        "log_behind",
    }
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", reason) for reason in ResyncReason)
