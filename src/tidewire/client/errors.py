"""What can go wrong for an application, in one tree.

ClientError                a sentence for people; catch this for everything of ours
├─ RefusedByServer         the server said no; `code` says why, as in docs/protocol.md
├─ ServerUnreachable       no answer; trying again later is fine
├─ LoginNeeded             no token is left that the server takes
├─ MessageFailed           a message was refused for good; it stays in the outbox as failed
├─ FateUnknown             a message left long ago and nobody knows whether it arrived
├─ OutboxFull              too many messages wait to be sent
├─ StoreUnusable           the store is in use, damaged, or somebody else's
└─ ClientClosed            the client is closed, by the application or for a reason
"""

from collections.abc import Mapping

from tidewire.domain.errors import TidewireError


class ClientError(TidewireError):
    """The root of what this client raises."""


class RefusedByServer(ClientError):
    """`reason` is the server's code; newer servers may have codes that are not known here."""

    def __init__(
        self,
        reason: str,
        sentence: str,
        *,
        status: int = 0,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{sentence} ({reason})")
        self.reason = reason
        self.status = status
        self.facts = dict(facts or {})


class ServerUnreachable(ClientError):
    """The server did not answer. What was asked may or may not have happened."""


class LoginNeeded(ClientError):
    """There is no token that the server takes: log in again."""


class MessageFailed(ClientError):
    """The server refused the message for good."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(f"the message was refused: {sentence} ({reason})")
        self.reason = reason


class FateUnknown(ClientError):
    """The message left days ago without an answer: `retry` it, or `drop` it."""


class OutboxFull(ClientError):
    def __init__(self, entries_max: int) -> None:
        super().__init__(
            f"{entries_max} messages wait in the outbox, more are not taken; "
            "wait until they are sent, or drop failed ones"
        )


class StoreUnusable(ClientError):
    """The store cannot be used; the sentence says why and what to do."""


class ClientClosed(ClientError):
    """Nothing more can be done with this client."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the client is closed: {reason}")
        self.reason = reason
