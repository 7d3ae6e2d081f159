"""All checks, by their ids, in the order of the contract."""

from tidewire_conformance.checks import (
    acknowledging,
    changing,
    connecting,
    errors,
    membership,
    protocol,
    receiving,
    recovering,
    sending,
)
from tidewire_conformance.registry import CHECKS, Check

_GROUPS = ("CL", "MS", "MR", "AK", "RS", "EH", "TW")

assert all((connecting, sending, receiving, acknowledging, recovering, errors))
assert all((protocol, membership, changing))

ALL: dict[str, Check] = {
    check_id: CHECKS[check_id]
    for check_id in sorted(CHECKS, key=lambda one: (_GROUPS.index(one[:2]), one))
}
