"""What is logged: readable or JSON, and never a secret or what somebody wrote."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tidewire.domain.accounts import Secret
from tidewire.ports.runtime import FLOOD_KEY
from tidewire.runtime.config import LogFormat, LogLevel, LogOptions
from tidewire.runtime.logs import (
    FLOOD_KEYS_MAX,
    FLOOD_LINES_PER_MINUTE,
    HIDDEN,
    SECRET_KEYS,
    FloodFilter,
    hide_secrets,
    start_logging,
)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1c2VyIn0.c2lnbmF0dXJl"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_one_object_a_line_with_the_extra_fields() -> None:
    stream = io.StringIO()
    start_logging(LogOptions(), stream)
    logging.getLogger("tidewire.test").info("connection ended", extra={"open_ms": 12})
    (line,) = logged(stream)
    assert line["event"] == "connection ended"
    assert (line["open_ms"], line["level"], line["service"]) == (12, "info", "tidewire")
    assert line["logger"] == "tidewire.test"
    assert line["timestamp"].endswith("Z")


def test_terminal_gets_text_and_may_be_overruled() -> None:
    terminal = Terminal()
    start_logging(LogOptions(), terminal)
    logging.getLogger("tidewire.test").info("connection ended", extra={"open_ms": 12})
    assert "connection ended" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    terminal = Terminal()
    start_logging(LogOptions(format=LogFormat.JSON), terminal)
    logging.getLogger("tidewire.test").info("hello")
    assert logged(terminal)[0]["event"] == "hello"


def test_text_has_the_sentence_the_fields_by_name_and_the_traceback() -> None:
    stream = io.StringIO()
    start_logging(LogOptions(format=LogFormat.TEXT), stream, process="gateway 1")
    extra = {"why": "no room", "open_ms": 12, "peer": "::1", "ring": "\x1b[2J\x07"}
    logging.getLogger("tidewire.test").warning("refused %s", "ann", extra=extra)
    logging.getLogger("tidewire.test").error("failed", exc_info=ValueError("odd"))
    refused, failed, *traceback = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[warning  \] refused ann {14}.*", refused)
    assert refused.endswith(
        r" open_ms=12 peer=::1 process='gateway 1' ring='\x1b[2J\x07' why='no room'"
    )
    assert failed.endswith("[error    ] failed                   process='gateway 1'")
    assert traceback == ["ValueError: odd"]


def test_text_is_dyed_on_a_terminal_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        start_logging(LogOptions(format=LogFormat.TEXT), stream)
        logging.getLogger("tidewire.test").info("hello", extra={"n": 1})
    assert "\x1b[36mn\x1b[0m=\x1b[35m1\x1b[0m" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()


def test_json_has_stack_and_exception_and_the_name_of_the_process() -> None:
    stream = io.StringIO()
    start_logging(LogOptions(), stream, process="store")
    logging.getLogger("tidewire.test").error("failed", exc_info=ValueError("odd"), stack_info=True)
    (line,) = logged(stream)
    assert line["process"] == "store"
    assert line["exception"] == "ValueError: odd"
    assert line["stack_info"].startswith("Stack (most recent call last):")


def test_level_holds_for_all_and_uvicorn_is_quiet() -> None:
    stream = io.StringIO()
    start_logging(LogOptions(level=LogLevel.INFO), stream)
    logging.getLogger("tidewire.test").debug("detail")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").warning("odd")
    assert [line["event"] for line in logged(stream)] == ["odd"]


@pytest.mark.parametrize("key", sorted(SECRET_KEYS))
def test_secret_fields_are_hidden_however_they_are_written(key: str) -> None:
    for name in (key, key.upper(), key.replace("_", "-")):
        assert hide_secrets({name: "hush", "n": 1}) == {name: HIDDEN, "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        f"GET /v1/ws?token={JWT}",
        f"authorization: Bearer {JWT}",
        "GET /v1/ws?token=abc&device_id=x",
        "subprotocol bearer.0123456789abcdef",
        f"cannot decode {JWT}!",
        "url has password=abc in it",
    ],
)
@pytest.mark.parametrize("format", [LogFormat.JSON, LogFormat.TEXT])
def test_tokens_are_hidden_wherever_they_are(text: str, format: LogFormat) -> None:  # noqa: A002
    stream = io.StringIO()
    start_logging(LogOptions(format=format), stream)
    logger = logging.getLogger("tidewire.test")
    logger.warning("refused: %s", text, extra={"path": text})
    logger.error("failed", exc_info=ValueError(text))
    said = stream.getvalue()
    assert said.count(HIDDEN) == 3
    for secret in (JWT, "abc", "0123456789abcdef"):
        assert secret not in said


def test_secret_values_and_odd_types_do_not_break_a_line() -> None:
    stream = io.StringIO()
    start_logging(LogOptions(), stream)
    odd = {"key": Secret("hush"), "odd": object}
    logging.getLogger("tidewire.test").info("odd", extra=odd)
    (line,) = logged(stream)
    assert "hush" not in stream.getvalue()
    assert line["odd"] == "<class 'object'>"


def test_refresh_tokens_and_invites_are_hidden_wherever_they_stand() -> None:
    refresh = "sess_01JAXW3V7E5S0Q4ZB1N8YH6K2Q." + "aB3-_" * 8 + "abc"
    invite = "mfrggzdfmztwq2lknnwg23tp"
    event = {"event": f"got {refresh} and {invite}.", "route": f"GET /join/{invite}"}
    hidden = hide_secrets(event)
    assert hidden == {"event": f"got {HIDDEN} and {HIDDEN}.", "route": f"GET /join/{HIDDEN}"}


def test_ids_are_not_taken_for_invites() -> None:
    event = {"chat_id": "chat_01JAXW3V7E5S0Q4ZB1N8YH6K2M", "file": "a" * 25, "code": "A" * 24}
    assert hide_secrets(dict(event)) == event


def test_peer_causes_only_so_many_lines_and_the_others_are_counted() -> None:
    now_ms = 0
    lines = FloodFilter(lambda: now_ms)

    def is_written(sentence: str, key: str | None) -> logging.LogRecord | None:
        extra = {} if key is None else {FLOOD_KEY: key}
        record = logging.getLogger("tidewire.test").makeRecord(
            "tidewire.test", logging.INFO, "", 0, sentence, (), None, extra=extra
        )
        is_passed = lines.filter(record)
        assert FLOOD_KEY not in record.__dict__
        return record if is_passed else None

    written = [is_written("refused", "ann") for _ in range(1_000)]
    assert sum(record is not None for record in written) == FLOOD_LINES_PER_MINUTE
    assert is_written("refused", "bob") is not None
    assert is_written("another", "ann") is not None
    assert all(is_written("of our own", None) for _ in range(1_000))
    now_ms = 1_000
    record = is_written("refused", "ann")
    assert record is not None
    assert record.__dict__["lines_dropped"] == 1_000 - FLOOD_LINES_PER_MINUTE
    now_ms = 2_000
    record = is_written("refused", "ann")
    assert record is not None
    assert "lines_dropped" not in record.__dict__


def test_what_is_remembered_of_floods_is_bounded() -> None:
    lines = FloodFilter(lambda: 0)
    for number in range(FLOOD_KEYS_MAX + 10):
        for _ in range(2):
            lines._dropped[("refused", str(number))] = 1
        if number % 1_000 == 0:
            record = logging.makeLogRecord({"msg": "refused", FLOOD_KEY: str(number)})
            for _ in range(FLOOD_LINES_PER_MINUTE + 1):
                record.__dict__[FLOOD_KEY] = str(number)
                lines.filter(record)
    record = logging.makeLogRecord({"msg": "refused"})
    for _ in range(FLOOD_LINES_PER_MINUTE + 1):
        record.__dict__[FLOOD_KEY] = "last"
        lines.filter(record)
    assert len(lines._dropped) <= FLOOD_KEYS_MAX
