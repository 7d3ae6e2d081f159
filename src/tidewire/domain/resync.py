"""Why a client is told to sync again. PURE."""

from enum import StrEnum


class ResyncReason(StrEnum):
    """The reason in a `resync`. Stable: reasons are added, never renamed or taken away."""

    FANOUT_OVERLOADED = "fanout_overloaded"
    """The queue of pushes was full."""
    STORE_UNAVAILABLE = "store_unavailable"
    """The members of a chat could not be read, so it is not known whom a push concerned."""
    DIGEST_INCOMPLETE = "digest_incomplete"
    """The digest of a new connection could not be completed."""
    PUSHES_LOST = "pushes_lost"
    """A push was lost, or may have been, between the servers of a cluster; or it could not be made:
    by a failure, or because this server does not know the event."""
    LOG_BEHIND = "log_behind"
    """Pushes of a cluster are late, but will come. Repeated as long as they are late."""
