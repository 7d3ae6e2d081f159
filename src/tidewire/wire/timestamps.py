"""Instants on the wire: ISO 8601, UTC, milliseconds, in one form only. PURE.

In our own code an instant is an `int` of milliseconds (`*_at_ms`); on the wire it is a text such
as `2031-05-04T11:20:07.412Z`, 24 characters wide, so that texts sort as the instants do.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from tidewire.domain.limits import TIME_MS_MAX

WIRE_TIME_MS_MAX: Final = TIME_MS_MAX
"""The last millisecond of the year 9999: a year has four digits here."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MILLISECONDS: Final = tuple(f".{ms:03d}Z" for ms in range(1000))
# Hours end at 23 here, because newer Pythons read 24:00:00 as the next day and older ones do not.
TIME_PATTERN: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"
)
_FORM: Final = re.compile(TIME_PATTERN)


# Four instants are formatted for every message, and those of one commit are the same.
@lru_cache(maxsize=256)
def format_time_ms(time_ms: int) -> str:
    """The wire's text of an instant."""
    assert 0 <= time_ms <= WIRE_TIME_MS_MAX, time_ms
    second, millisecond = divmod(time_ms, 1000)
    return _second_text(second) + _MILLISECONDS[millisecond]


def parse_time_ms(text: str) -> int | None:
    """The instant of a text, or None if it is not in the wire's form or before 1970."""
    if _FORM.fullmatch(text) is None:
        return None
    second = _second_of(text[:19])
    if second is None or second < 0:
        return None
    return second * 1000 + int(text[20:23])


# Nearly always the second that has just passed; making a calendar date costs ten times what the
# cache does.
@lru_cache(maxsize=1024)
def _second_text(second: int) -> str:
    return (_EPOCH + second * _SECOND).isoformat()[:19]


@lru_cache(maxsize=1024)
def _second_of(text: str) -> int | None:
    try:
        instant = datetime.fromisoformat(text + "+00:00")
    except ValueError:
        return None
    return (instant - _EPOCH) // _SECOND
