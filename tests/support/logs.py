"""The log lines of the product. On a busy machine asyncio logs too, of slow callbacks."""

import logging

import pytest


def our_lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name.startswith("tidewire")]
