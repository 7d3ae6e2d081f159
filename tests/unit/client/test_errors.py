"""What an application catches."""

import pytest

from tidewire.client.errors import (
    ClientClosed,
    ClientError,
    InvalidMessage,
    LoginNeeded,
    MessageFailed,
    MessageTooLarge,
    RefusedByServer,
    closed_for,
    not_sendable,
)
from tidewire.domain import errors
from tidewire.domain.errors import ErrorCode


@pytest.mark.parametrize("kind", [RefusedByServer, MessageFailed])
def test_code_is_the_servers(kind: type[RefusedByServer | MessageFailed]) -> None:
    known = kind("CONFLICT", "taken")
    assert known.code is ErrorCode.CONFLICT
    assert known.reason == "CONFLICT"
    assert str(kind("MADE_LATER", "no").code) == "MADE_LATER"


def test_text_that_cannot_be_sent_is_an_error_of_the_client_and_of_the_domain() -> None:
    large = not_sendable(errors.MessageTooLarge(size_bytes=5000, size_bytes_max=4096))
    assert isinstance(large, MessageTooLarge)
    assert isinstance(large, ClientError)
    assert isinstance(large, errors.MessageTooLarge)
    assert large.code is ErrorCode.MESSAGE_TOO_LARGE
    assert large.details == {"max_bytes": 4096, "received_bytes": 5000}
    content = not_sendable(errors.InvalidContent("content has a NUL character"))
    assert isinstance(content, InvalidMessage)
    assert isinstance(content, errors.InvalidMessage)
    assert content.code is ErrorCode.INVALID_CONTENT
    assert InvalidMessage("x").code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize("reason", ["login_needed", "session_revoked", "invalid_token"])
def test_client_that_needs_a_login_says_so(reason: str) -> None:
    closed = closed_for(reason)
    assert isinstance(closed, LoginNeeded)
    assert isinstance(closed, ClientClosed)
    assert closed.reason == reason
    assert reason in str(closed)


def test_client_that_is_just_closed_needs_no_login() -> None:
    assert type(closed_for("duplicate_connection")) is ClientClosed
