"""Whether somebody may try to log in now, and how soon it is their turn. PURE.

An account has several budgets for tries, and each try is counted in one of them:

  the device got in before, from here       the budget of this device at this address
  the account got in before, from here      the budget of this address
  the device got in before, elsewhere       the small budget of this device
  neither                                   the budget of all strangers, and that of their address

What strangers do uses up the last one only, so an owner with the right password gets in from a
known device or address all the same. A guesser who pretends to be a known device has the third,
which is small; to have the first two, one has to be at the owner's address.
"""

from typing import Final, NamedTuple

from tidewire.accounts.options import ThrottleOptions
from tidewire.accounts.throttle import UNKNOWN_ADDRESS, Throttle
from tidewire.accounts.turns import Rank
from tidewire.domain.accounts import Credentials
from tidewire.domain.ids import UserId
from tidewire.domain.login_places import PlaceKind, place_mark
from tidewire.domain.shared_limits import SharedView

_EFFORT_MAX: Final = 64
"""More tries than that make a rank no worse."""
_HEAD_START: Final = 3
"""How many tries somebody at a known place may make before a stranger's first one is as good."""


class Admitted(NamedTuple):
    """A try that may go on. `rank` is its place in the queue before the hash."""

    rank: Rank
    efforts: tuple[str, ...]
    counted_in: tuple[tuple[Throttle, str], ...] = ()


class LoginLimits:
    """The budgets of all accounts and addresses, in bounded memory."""

    def __init__(self, options: ThrottleOptions) -> None:
        self._keys_max = options.keys_max
        self._strangers = self._throttle(options.login_name_burst, options.login_name_interval_ms)
        self._addresses = self._throttle(options.login_ip_burst, options.login_ip_interval_ms)
        self._known = self._throttle(options.login_known_burst, options.login_known_interval_ms)
        self._devices = self._throttle(options.login_device_burst, options.login_device_interval_ms)
        # Never refuses: it counts what was hashed for whom lately, the good ones too.
        self._effort = self._throttle(_EFFORT_MAX, options.effort_interval_ms)
        # The last time that somebody told us: ranks are compared as of one instant.
        self._now_ms = 0

    def share(self) -> dict[str, SharedView]:
        """Count tries over all processes."""
        return {
            "login_name": self._strangers.share(),
            "login_ip": self._addresses.share(),
            "login_known": self._known.share(),
            "login_device": self._devices.share(),
        }

    def stranger(self, address: str, now_ms: int) -> Admitted:
        """One more hash for a stranger at this address, or for whom the key stands for. It is not
        limited here."""
        effort = self._count_effort(address, now_ms)
        return Admitted(lambda: _HEAD_START + effort(), (address,))

    def admit(
        self,
        username: str,
        credentials: Credentials | None,
        *,
        device_id: str,
        address: str,
        now_ms: int,
    ) -> Admitted | int:
        """Count a try before it is checked: many at once are many (S-07). If there are too many,
        how long to wait in milliseconds; then this one was not counted against the account."""
        known = self._known_budget(credentials, device_id, address)
        name = username[:64].casefold()
        counted_in = (known,) if known else ((self._addresses, address), (self._strangers, name))
        for budget, key in counted_in:
            wait_ms = budget.take(key, now_ms)
            if wait_ms:
                return wait_ms
        stranger = self.stranger(address, now_ms)
        if known is None:
            return stranger._replace(counted_in=counted_in)
        _, key = known
        effort = self._count_effort(key, now_ms)
        return Admitted(lambda: min(effort(), stranger.rank()), (address, key), counted_in)

    def was_good(self, admitted: Admitted, now_ms: int) -> None:
        """The password was right: its budgets are as if the try had not been made."""
        for budget, key in admitted.counted_in:
            budget.give_back(key, now_ms)

    def was_not_made(self, admitted: Admitted, now_ms: int) -> None:
        """There was no room in the queue, so nothing was tried, and nothing is counted."""
        self.was_good(admitted, now_ms)
        for key in admitted.efforts:
            self._effort.give_back(key, now_ms)

    def _count_effort(self, key: str, now_ms: int) -> Rank:
        self._now_ms = now_ms
        self._effort.take(key, now_ms)
        return lambda: self._effort.used(key, self._now_ms)

    def _known_budget(
        self, credentials: Credentials | None, device_id: str, address: str
    ) -> tuple[Throttle, str] | None:
        if credentials is None:
            return None
        user_id, places = credentials.user.user_id, credentials.places
        device, *here = places_of(user_id, device_id, address)
        is_known_here = bool(here) and here[0] in places
        if device in places:
            if is_known_here:
                return self._known, f"{user_id} {device_id} {address}"
            return self._devices, f"{user_id} {device_id}"
        return (self._known, f"{user_id} {address}") if is_known_here else None

    def _throttle(self, burst: int, interval_ms: int) -> Throttle:
        return Throttle(burst=burst, interval_ms=interval_ms, keys_max=self._keys_max)


def places_of(user_id: UserId, device_id: str, address: str) -> tuple[str, ...]:
    """The marks of a login: its device, and its address if that can be told."""
    device = place_mark(user_id, PlaceKind.DEVICE, device_id)
    if address == UNKNOWN_ADDRESS:
        return (device,)
    return device, place_mark(user_id, PlaceKind.ADDRESS, address)
