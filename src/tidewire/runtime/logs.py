"""The log of the server: lines on standard error, readable or JSON.

All lines, ours and those of uvicorn and picows, come in through standard logging and are written by
one formatter. Everything that looks like a secret or a message's text is hidden here, as a second
safeguard: it should not have been given to a logger in the first place.
"""

import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from tidewire.domain.rates import Limiter, Rate
from tidewire.ports.runtime import FLOOD_KEY
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import LogFormat, LogOptions

SERVICE: Final = "tidewire"
HIDDEN: Final = "(hidden)"

SECRET_KEYS: Final = frozenset(
    {
        "access_token",
        "api_key",
        "authorization",
        "body",
        "content",
        "cookie",
        "headers",
        "invite",
        "invite_code",
        "jwt",
        "password",
        "password_hash",
        "payload",
        "query",
        "query_string",
        "refresh_token",
        "sec_websocket_protocol",
        "secret",
        "set_cookie",
        "text",
        "token",
        "url",
    }
)
"""Fields that are never written: secrets, and the contents of messages."""

# A JWT, what follows Bearer, the value of a token in a URL, and our own refresh tokens and invites.
_SECRETS: Final = re.compile(
    r"eyJ[\w-]{5,}\.[\w-]+\.[\w-]*"
    r"|sess_[0-9A-Z]{26}\.[\w-]{43}"
    r"|(?<![\w-])(?-i:[a-z2-7]{24})(?![\w-])"
    r"|(?<=bearer[ .])[\w.~+/=-]{8,}"
    r"|(?<=token=)[^&\s\"']+"
    r"|(?<=password=)[^&\s\"']+",
    re.IGNORECASE,
)

FLOOD_LINES_PER_MINUTE: Final = 60
"""How many lines of one kind a peer can cause (see `ports.runtime.FLOOD_KEY`)."""
FLOOD_KEYS_MAX: Final = 10_000
"""How many combinations of line and peer are remembered for this limit."""

_STANDARD: Final = frozenset(
    {*logging.makeLogRecord({}).__dict__, "asctime", "message", "taskName"}
)
"""Attributes that every record has; all others came with `extra`."""

_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_SENTENCE_WIDTH: Final = 24
_LEVEL_WIDTH: Final = len("critical") + 1
_END: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_DIM: Final = "\x1b[2m"
_KEY_COLOUR: Final = "\x1b[36m"
_VALUE_COLOUR: Final = "\x1b[35m"
_LEVEL_COLOURS: Final = {"debug": "\x1b[32m", "info": "\x1b[32m", "warning": "\x1b[33m"}
_ERROR_COLOUR: Final = "\x1b[31m"


class FloodFilter(logging.Filter):
    """Drops lines beyond a peer's share, and counts them in the next line that is written."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._now_ms = now_ms
        per_minute = FLOOD_LINES_PER_MINUTE
        self._lines: Limiter[tuple[str, str]] = Limiter(
            Rate(per_minute, per_ms=60_000, burst=per_minute), keys_max=FLOOD_KEYS_MAX
        )
        self._dropped: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        who = record.__dict__.pop(FLOOD_KEY, None)
        if who is None:
            return True
        key = (str(record.msg), str(who))
        if self._lines.take(key, self._now_ms()):
            if len(self._dropped) >= FLOOD_KEYS_MAX:
                self._dropped.clear()
            self._dropped[key] = self._dropped.get(key, 0) + 1
            return False
        dropped_count = self._dropped.pop(key, 0)
        if dropped_count:
            record.lines_dropped = dropped_count
        return True


def hide_secrets(event: dict[str, Any]) -> dict[str, Any]:
    """Hide fields that must not be seen, and everything that looks like a token in the others."""
    return {
        key: HIDDEN
        if key.lower().replace("-", "_") in SECRET_KEYS
        else _SECRETS.sub(HIDDEN, value)
        if isinstance(value, str)
        else value
        for key, value in event.items()
    }


def is_json_log(options: LogOptions, stream: TextIO = sys.stderr) -> bool:
    """Whether the lines of the log are JSON."""
    return options.format is LogFormat.JSON or (
        options.format is LogFormat.AUTO and not stream.isatty()
    )


def start_logging(
    options: LogOptions, stream: TextIO = sys.stderr, *, process: str | None = None
) -> None:
    """Send all logging of this process to the stream from now on. `process` names the process in
    every line, if a server has several."""
    is_json = is_json_log(options, stream)
    handler = logging.StreamHandler(stream)
    handler.addFilter(FloodFilter(SystemClock().monotonic_ms))
    handler.setFormatter(
        JsonLines(process) if is_json else TextLines(process, has_colours=stream.isatty())
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(options.level.value.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # uvicorn logs every start, stop and request; our own lines report what matters of that.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


class _Lines(logging.Formatter):
    """Makes a line of a record: its sentence, its level, the fields given as `extra`."""

    def __init__(self, process: str | None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        extra = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.stack_info:
            extra["stack_info"] = record.stack_info
        return extra | self._process

    def _exception(self, record: logging.LogRecord) -> dict[str, str]:
        if not record.exc_info:
            return {}
        return {"exception": self.formatException(record.exc_info)}


class JsonLines(_Lines):
    """One object a line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            **self._fields(record),
            "timestamp": datetime.fromtimestamp(record.created, UTC).strftime(_TIME),
            "logger": record.name,
            **self._exception(record),
        }
        shown = hide_secrets(event) | {"service": SERVICE}
        return msgspec.json.encode(shown, enc_hook=repr).decode()


class TextLines(_Lines):
    """For a person at a terminal: local time, level, sentence, then name=value."""

    def __init__(self, process: str | None, *, has_colours: bool) -> None:
        super().__init__(process)
        self._has_colours = has_colours

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        event = hide_secrets({"event": record.getMessage(), **self._exception(record)})
        fields = sorted(hide_secrets(self._fields(record)).items())
        colour = _LEVEL_COLOURS.get(level, _ERROR_COLOUR)
        pairs = "".join(
            f" {self._dyed(key, _KEY_COLOUR)}={self._dyed(_as_word(value), _VALUE_COLOUR)}"
            for key, value in fields
        )
        line = (
            f"{self._dyed(self.formatTime(record, '%H:%M:%S'), _DIM)} "
            f"[{self._dyed(level.ljust(_LEVEL_WIDTH), colour + _BOLD)}] "
            f"{self._dyed(event['event'].ljust(_SENTENCE_WIDTH), _BOLD)}{pairs}"
        )
        return f"{line}\n{event['exception']}" if "exception" in event else line

    def _dyed(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_END}" if self._has_colours else text


def _as_word(value: object) -> str:
    """The value as text; quoted if it is not a single word that can be printed."""
    if isinstance(value, str) and value.isprintable() and not set(value) & {" ", "=", "'", '"'}:
        return value
    return repr(value)
