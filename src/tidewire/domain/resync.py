"""Why a client is told to sync again. PURE."""

from enum import StrEnum


class ResyncReason(StrEnum):
    """What `resync` says. Stable: reasons are added, never renamed or taken away."""

    FANOUT_OVERLOADED = "fanout_overloaded"
    """More waited to be pushed than is kept."""
    STORE_UNAVAILABLE = "store_unavailable"
    """The members of a chat could not be read, so it is not known whom a push concerned."""
    DIGEST_INCOMPLETE = "digest_incomplete"
    """The digest of a new connection broke off."""
    PUSHES_LOST = "pushes_lost"
    """Between the servers of a cluster a push was lost, or may have been."""
    LOG_BEHIND = "log_behind"
    """Pushes of a cluster are late, and will come. Said again and again while they are."""
