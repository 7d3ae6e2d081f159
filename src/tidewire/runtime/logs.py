"""What the server says about itself: lines on standard error, readable or JSON.

Everything comes in through standard logging, ours and that of uvicorn and picows, and is written by
structlog. Whatever looks like a secret or a message's text is taken out here, once more: it should
not have been given to a logger in the first place.
"""

import logging
import re
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

import msgspec
import structlog

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
"""Fields that are never written: secrets, and what people say to each other."""

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
"""How many peers are remembered for it."""

EventDict = MutableMapping[str, Any]


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


def hide_secrets(logger: object, method: str, event: EventDict) -> EventDict:
    """Take out fields that must not be seen, and whatever looks like a token in the others."""
    for key, value in event.items():
        if key.lower().replace("-", "_") in SECRET_KEYS:
            event[key] = HIDDEN
        elif isinstance(value, str):
            event[key] = _SECRETS.sub(HIDDEN, value)
    return event


def is_json_log(options: LogOptions, stream: TextIO = sys.stderr) -> bool:
    """Whether the lines of the log are JSON."""
    return options.format is LogFormat.JSON or (
        options.format is LogFormat.AUTO and not stream.isatty()
    )


def start_logging(
    options: LogOptions, stream: TextIO = sys.stderr, *, process: str | None = None
) -> None:
    """Send all logging of this process to the stream from now on. `process` names it in every line,
    where a server has several."""
    is_json = is_json_log(options, stream)
    handler = logging.StreamHandler(stream)
    handler.addFilter(FloodFilter(SystemClock().monotonic_ms))
    handler.setFormatter(_formatter(process, is_json=is_json, has_colours=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(options.level.value.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # It tells of every start, stop and request; what matters of that is told by us.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


def _formatter(process: str | None, *, is_json: bool, has_colours: bool) -> logging.Formatter:
    gathered: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(
            fmt="iso" if is_json else "%H:%M:%S", utc=is_json, key="timestamp"
        ),
    ]
    if process is not None:

        def name_process(logger: object, method: str, event: EventDict) -> EventDict:
            event["process"] = process
            return event

        gathered.append(name_process)
    if is_json:
        gathered.append(structlog.stdlib.add_logger_name)
        shown: list[Any] = [
            structlog.processors.format_exc_info,
            hide_secrets,
            _name_service,
            structlog.processors.JSONRenderer(serializer=_as_json),
        ]
    else:
        plain = structlog.dev.plain_traceback
        shown = [
            structlog.processors.format_exc_info,
            hide_secrets,
            structlog.dev.ConsoleRenderer(
                colors=has_colours, exception_formatter=plain, pad_event_to=24
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=gathered,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shown],
    )


def _name_service(logger: object, method: str, event: EventDict) -> EventDict:
    event["service"] = SERVICE
    return event


def _as_json(event: EventDict, **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()
