"""Decides whether a login may be tried now, and when its turn in the queue comes. PURE.

An account has several budgets for tries, and each try is counted in one of them:

  the device got in before, from here       the budget of this device at this address
  the account got in before, from here      the budget of this address
  the device got in before, elsewhere       the small budget of this device
  neither                                   the budget of all strangers, and that of their address

Strangers use up the last one only, so an owner with the right password gets in from a known device
or address all the same. A guesser who pretends to be a known device has the third, which is small;
the first two are only for tries from the owner's address.

The queue before the password hash (`Turns`) is short, and fair by address, not by arrival alone.
The sender with the fewest requests lately is next; equals are served in the order of arrival. This
is decided when a slot becomes free, not on arrival: all tries of an address that goes on asking
move back in the queue. When the queue is full, its last try is refused in favour of a better one.
So a flood waits behind itself, and a person who logs in once passes it.
"""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from tidewire.accounts.options import ThrottleOptions
from tidewire.domain.accounts import Credentials
from tidewire.domain.addresses import UNKNOWN_ADDRESS
from tidewire.domain.ids import UserId
from tidewire.domain.login_places import PlaceKind, place_mark
from tidewire.domain.rates import Limiter, Rate, SharedView

KEYS_MAX: Final = 50_000
"""How many keys of each limit are remembered."""
GUESS_INTERVAL_MS: Final = 30_000
"""How soon strangers get one more guess at one account, and a known address one of its own."""
ADDRESS_INTERVAL_MS: Final = 2_000
"""How soon one address gets one more guess, for any names."""
DEVICE_BURST: Final = 5
"""How many guesses there are with the id of a device that got in before, from all addresses where
the account never did. Few, because a device's id is no secret, and a guesser may use it."""
DEVICE_INTERVAL_MS: Final = 60_000
EFFORT_INTERVAL_MS: Final = 60_000
"""How long a login counts against the next ones of its address in the queue before the password
hash. An address that logs in once in this time is served before those that do it often."""
REGISTER_INTERVAL_MS: Final = 30_000
"""How soon one address may make one more account, after its burst."""
REFRESH_BURST: Final = 30
"""How many refreshes of one session are allowed at once."""
REFRESH_INTERVAL_MS: Final = 2_000
_EFFORT_MAX: Final = 64
"""Tries beyond this number do not make a rank worse."""
_HEAD_START: Final = 3
"""How many tries may come from a known place before a stranger's first one is as good."""

Ticket = TypeVar("Ticket")
Rank = Callable[[], int]
"""Returns how much the sender has asked for lately, as of now: the lower, the sooner."""


class Admitted(NamedTuple):
    """A try that may go on. `rank` is its place in the queue before the hash."""

    rank: Rank
    efforts: tuple[str, ...]
    counted_in: tuple[tuple[Limiter[str], str], ...] = ()


class LoginLimits:
    """The budgets of all accounts and addresses, in bounded memory."""

    def __init__(self, options: ThrottleOptions) -> None:
        self._strangers = a_limiter(options.login_name_burst, GUESS_INTERVAL_MS)
        self._addresses = a_limiter(options.login_ip_burst, ADDRESS_INTERVAL_MS)
        self._known = a_limiter(options.login_known_burst, GUESS_INTERVAL_MS)
        self._devices = a_limiter(DEVICE_BURST, DEVICE_INTERVAL_MS)
        self.password_changes = a_limiter(options.login_name_burst, GUESS_INTERVAL_MS)
        self.registrations = a_limiter(options.register_ip_burst, REGISTER_INTERVAL_MS)
        self.refreshes = a_limiter(REFRESH_BURST, REFRESH_INTERVAL_MS)
        # Never refuses: it counts recent hashes by sender, also those of right passwords.
        self._effort = a_limiter(_EFFORT_MAX, EFFORT_INTERVAL_MS)
        # The last time given by a caller, because ranks are compared as of one instant.
        self._now_ms = 0

    def share(self) -> dict[str, SharedView]:
        """Count tries over all processes."""
        return {
            "login_name": self._strangers.share(),
            "login_ip": self._addresses.share(),
            "login_known": self._known.share(),
            "login_device": self._devices.share(),
            "password_change": self.password_changes.share(),
            "register_ip": self.registrations.share(),
            "refresh": self.refreshes.share(),
        }

    def stranger(self, address: str, now_ms: int) -> Admitted:
        """Count one more hash for a stranger at this address, or for the user whom another key
        stands for. It is not limited here."""
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
        """Count a try before it is checked, so that parallel tries all count (S-07). If there are
        too many, return the wait in ms; then this try was not counted against the account."""
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
        """The password was right: give the try back to its budgets."""
        for budget, key in admitted.counted_in:
            budget.spend(key, now_ms, -1)

    def was_not_made(self, admitted: Admitted, now_ms: int) -> None:
        """There was no room in the queue, so the try was not made: give back all that it cost."""
        self.was_good(admitted, now_ms)
        for key in admitted.efforts:
            self._effort.spend(key, now_ms, -1)

    def _count_effort(self, key: str, now_ms: int) -> Rank:
        self._now_ms = now_ms
        self._effort.take(key, now_ms)
        interval_us = self._effort.rate.interval_us
        return lambda: -(-self._effort.used_us(key, self._now_ms) // interval_us)

    def _known_budget(
        self, credentials: Credentials | None, device_id: str, address: str
    ) -> tuple[Limiter[str], str] | None:
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


def a_limiter(burst: int, interval_ms: int) -> Limiter[str]:
    """Make a limiter of `burst` tries at once, then one each interval."""
    return Limiter(Rate(1, per_ms=interval_ms, burst=burst), keys_max=KEYS_MAX)


def places_of(user_id: UserId, device_id: str, address: str) -> tuple[str, ...]:
    """The marks of a login: its device, and its address if that is known."""
    device = place_mark(user_id, PlaceKind.DEVICE, device_id)
    if address == UNKNOWN_ADDRESS:
        return (device,)
    return device, place_mark(user_id, PlaceKind.ADDRESS, address)


class _Place(NamedTuple, Generic[Ticket]):
    ticket: Ticket
    rank: Rank


class Turns(Generic[Ticket]):
    """The waiting tickets, at most `waiting_max`: few enough to look at all of them each time."""

    def __init__(self, *, waiting_max: int) -> None:
        assert waiting_max >= 0
        self._waiting_max = waiting_max
        # In the order of arrival.
        self._places: list[_Place[Ticket]] = []

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, ticket: Ticket, rank: Rank) -> Ticket | None:
        """Add a ticket. Beyond the bound the last one in line must go and is returned; it may be
        the new one."""
        self._places.append(_Place(ticket, rank))
        if len(self._places) <= self._waiting_max:
            return None
        ranks = [place.rank() for place in self._places]
        worst = max(range(len(ranks)), key=lambda index: (ranks[index], index))
        return self._places.pop(worst).ticket

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket, if it still waits."""
        self._places = [place for place in self._places if place.ticket is not ticket]

    def take(self) -> Ticket | None:
        """Remove and return the ticket whose turn it is; None if none waits."""
        if not self._places:
            return None
        ranks = [place.rank() for place in self._places]
        return self._places.pop(ranks.index(min(ranks))).ticket
