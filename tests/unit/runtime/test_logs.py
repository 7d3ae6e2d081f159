"""What is logged: readable or JSON, and never a secret or what somebody wrote."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tidewire.domain.accounts import Secret
from tidewire.runtime.config import LogFormat, LogLevel, LogOptions
from tidewire.runtime.logs import HIDDEN, SECRET_KEYS, hide_secrets, start_logging

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
        assert hide_secrets(None, "info", {name: "hush", "n": 1}) == {name: HIDDEN, "n": 1}


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
