"""States as people read them."""

from tidewire.client.effects import ConnectionState, Status


def test_status_reads_as_its_state_and_its_reason() -> None:
    assert str(Status(ConnectionState.READY)) == "ready"
    assert str(Status(ConnectionState.CLOSED, "session_revoked")) == "closed(session_revoked)"
