"""How often one may try to log in: strangers share a budget, known places have their own (A10)."""

import asyncio
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.engines import MemoryHarness
from tests.unit.accounts.parts import IP, PASSWORD, PHONE, Plane
from tidewire.accounts import login_limits
from tidewire.accounts.login_limits import (
    ADDRESS_INTERVAL_MS,
    DEVICE_BURST,
    DEVICE_INTERVAL_MS,
    EFFORT_INTERVAL_MS,
    GUESS_INTERVAL_MS,
    Admitted,
    LoginLimits,
    Rank,
    Turns,
)
from tidewire.accounts.options import AccountOptions, ThrottleOptions
from tidewire.accounts.passwords import PasswordCheck, Passwords, operators
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import InvalidCredentials, RateLimited, TooManyLogins

WRONG = Secret("wrong password")


def a_device(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-00000000000f"


FEW = AccountOptions(throttle=ThrottleOptions(login_name_burst=3, login_ip_burst=5))


STRANGER = a_device(99)
CAFE = "198.51.100.7"


async def failed(
    plane: Plane, username: str, ip: str = IP, device_id: str = STRANGER
) -> type[BaseException]:
    with pytest.raises((InvalidCredentials, RateLimited)) as refused:
        await plane.accounts.service.login(username, WRONG, device_id=device_id, client_ip=ip)
    return refused.type


async def test_login_of_strangers_is_throttled_by_name_from_wherever(
    engine: MemoryHarness,
) -> None:
    plane = Plane(engine, options=FEW)
    await plane.accounts.admin.add_user("anna", PASSWORD)
    outcomes = [await failed(plane, "anna", f"192.0.2.{number}") for number in range(5)]
    assert outcomes == [InvalidCredentials] * 3 + [RateLimited] * 2
    calls = len(plane.hasher.calls)
    # Not even the right password is looked at now, in whatever case the name comes.
    with pytest.raises(RateLimited) as refused:
        await plane.logged_in("ANNA")
    assert len(plane.hasher.calls) == calls
    assert refused.value.retry_after_ms == GUESS_INTERVAL_MS
    plane.clock.pass_ms(GUESS_INTERVAL_MS)
    await plane.logged_in("anna")


@pytest.mark.parametrize(("device", "ip"), [(PHONE, CAFE), (a_device(5), IP), (PHONE, IP)], ids=str)
async def test_owner_gets_in_from_where_the_account_got_in_whatever_strangers_do(
    engine: MemoryHarness, device: str, ip: str
) -> None:
    """As it was measured: wrong guesses for ever, and the owner got in 0 of 160 times (A10)."""
    plane = Plane(engine)
    await plane.registered("anna", PHONE)
    got_in = 0
    for number in range(160):
        for guess in range(12):
            await failed(plane, "anna", f"203.0.113.{(12 * number + guess) % 250}")
        assert await failed(plane, "anna", "203.0.113.251") is RateLimited
        opened = await plane.accounts.service.login(
            "anna", PASSWORD, device_id=device, client_ip=ip
        )
        await plane.accounts.service.logout(opened.user.user_id, opened.session.session_id)
        got_in += 1
        plane.clock.pass_ms(30_000)
    assert got_in == 160


async def test_owner_gets_in_while_strangers_at_the_same_address_use_it_up(plane: Plane) -> None:
    """Behind one address of many: the device has a budget of its own there."""
    await plane.registered("anna", PHONE)
    outcomes = [await failed(plane, f"guess{number}") for number in range(100)]
    outcomes += [await failed(plane, "anna") for _ in range(100)]
    assert outcomes.count(InvalidCredentials) < 100
    assert await failed(plane, "anna") is RateLimited
    await plane.logged_in("anna", PHONE)


async def test_pretended_device_has_a_small_budget_of_its_own(plane: Plane) -> None:
    """A guesser who knows the id of a device gets a few tries more, and no more than that."""
    await plane.registered("anna", PHONE)
    outcomes = [
        await failed(plane, "anna", f"203.0.113.{number}", PHONE.upper()) for number in range(50)
    ]
    assert outcomes.count(InvalidCredentials) == DEVICE_BURST
    plane.clock.pass_ms(DEVICE_INTERVAL_MS)
    outcomes = [await failed(plane, "anna", f"203.0.113.{n}", PHONE) for n in range(50)]
    assert outcomes.count(InvalidCredentials) == 1
    # The owner, at home, does not notice.
    await plane.logged_in("anna", PHONE)


async def test_wrong_passwords_from_a_known_place_are_bounded_too(plane: Plane) -> None:
    await plane.registered("anna", PHONE)
    for device in (PHONE, STRANGER):
        outcomes = [await failed(plane, "anna", IP, device) for _ in range(50)]
        assert outcomes.count(InvalidCredentials) == plane.options.throttle.login_known_burst


async def test_place_of_one_account_says_nothing_about_another(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=FEW)
    await plane.registered("anna", PHONE)
    await plane.accounts.admin.add_user("ben", PASSWORD)
    outcomes = [await failed(plane, "ben", IP, PHONE) for _ in range(5)]
    assert outcomes == [InvalidCredentials] * 3 + [RateLimited] * 2


async def test_place_is_not_known_by_a_login_that_failed(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=FEW)
    await plane.accounts.admin.add_user("anna", PASSWORD)
    outcomes = [await failed(plane, "anna", CAFE, STRANGER) for _ in range(5)]
    assert outcomes == [InvalidCredentials] * 3 + [RateLimited] * 2
    credentials = await plane.storage.credentials("anna")
    assert credentials is not None
    assert list(credentials.places) == []


async def test_unknown_address_is_never_a_known_one(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=FEW)
    await plane.accounts.service.register("anna", PASSWORD, device_id=PHONE, client_ip="nonsense")
    outcomes = [await failed(plane, "anna", "nonsense") for _ in range(5)]
    assert outcomes == [InvalidCredentials] * 3 + [RateLimited] * 2


async def test_login_is_throttled_by_address_for_whatever_names(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=FEW)
    await plane.accounts.admin.add_user("anna", PASSWORD)
    outcomes = [await failed(plane, f"guess{number}") for number in range(7)]
    assert outcomes == [InvalidCredentials] * 5 + [RateLimited] * 2
    assert await failed(plane, "guess", "192.0.2.9") is InvalidCredentials
    plane.clock.pass_ms(ADDRESS_INTERVAL_MS)
    await plane.logged_in("anna")


async def test_login_that_is_good_is_not_counted(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=FEW)
    await plane.registered("anna")
    for _ in range(20):
        await plane.logged_in("anna")


async def test_login_that_is_good_gives_back_its_own_try_and_no_other(
    engine: MemoryHarness,
) -> None:
    """Of 4 tries 3 were wrong; a good one changes nothing about that, however often (E14)."""
    options = AccountOptions(throttle=ThrottleOptions(login_ip_burst=4))
    plane = Plane(engine, options=options)
    for number in range(3):
        with pytest.raises(InvalidCredentials):
            await plane.logged_in(f"name{number}", password=WRONG)
    for number in range(5):
        # Each of them for the first time: as a stranger, counted with the address.
        await plane.accounts.admin.add_user(f"user{number}", PASSWORD)
        await plane.logged_in(f"user{number}")
    with pytest.raises(InvalidCredentials):
        await plane.logged_in("name3", password=WRONG)
    with pytest.raises(RateLimited):
        await plane.logged_in("name4", password=WRONG)


async def test_login_tries_at_once_are_all_counted(engine: MemoryHarness) -> None:
    plane = Plane(engine, options=FEW)
    await plane.accounts.admin.add_user("anna", PASSWORD)
    outcomes = await asyncio.gather(*(failed(plane, "anna") for _ in range(10)))
    assert outcomes.count(InvalidCredentials) == 3


async def test_login_throttle_is_bounded_in_memory(
    engine: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_limits, "KEYS_MAX", 10)
    plane = Plane(engine)
    for number in range(50):
        await failed(plane, f"guess{number}", f"192.0.2.{number}")
    limits = plane.accounts.service._logins
    for counted in (limits._strangers, limits._addresses, limits._effort):
        assert len(counted) <= 10


async def test_tries_are_shared_by_name_and_address(plane: Plane) -> None:
    views = plane.accounts.service.share_limits()
    await plane.registered("anna")
    assert [len(views[name].take_used(10)) for name in ("register_ip", "login_name")] == [1, 0]
    for device, ip in ((STRANGER, CAFE), (STRANGER, IP), (PHONE, IP), (PHONE, CAFE)):
        assert await failed(plane, "anna", ip, device) is InvalidCredentials
    used = {name: [count for _, count in view.take_used(10)] for name, view in views.items()}
    assert used == {
        "login_name": [1],
        "login_ip": [1],
        "login_known": [1, 1],
        "login_device": [1],
        "password_change": [],
        "register_ip": [],
        "refresh": [],
    }


# Ranks in the queue before the password hash (A11).


def rank(limits: LoginLimits, address: str, now_ms: int = 0) -> int:
    admitted = limits.admit("anna", None, device_id=PHONE, address=address, now_ms=now_ms)
    assert isinstance(admitted, Admitted)
    return admitted.rank()


def test_rank_rises_with_every_try_of_an_address_and_falls_with_time() -> None:
    limits = LoginLimits(ThrottleOptions(login_name_burst=1000, login_ip_burst=1000))
    assert [rank(limits, "192.0.2.1") for _ in range(4)] == [4, 5, 6, 7]
    assert rank(limits, "192.0.2.2") == 4
    minute = EFFORT_INTERVAL_MS
    assert rank(limits, "192.0.2.1", 3 * minute) == 5
    assert rank(limits, "192.0.2.1", 9 * minute) == 4
    worst = [rank(limits, "192.0.2.3", 9 * minute) for _ in range(200)][-1]
    assert worst == 67


def test_rank_of_what_waits_rises_with_what_comes_after_it() -> None:
    limits = LoginLimits(ThrottleOptions())
    first = limits.stranger("192.0.2.1", 0).rank
    assert first() == 4
    limits.stranger("192.0.2.1", 0)
    limits.stranger("192.0.2.1", 0)
    assert first() == limits.stranger("192.0.2.2", 0).rank() + 2
    # An interval later, as seen at the next try of anybody.
    limits.stranger("192.0.2.3", EFFORT_INTERVAL_MS)
    assert first() == 5


def test_try_for_which_the_queue_had_no_room_counts_for_nothing() -> None:
    """Whoever comes again when the server says so keeps the place that it had."""
    limits = LoginLimits(ThrottleOptions(login_ip_burst=2))
    for _ in range(5):
        admitted = limits.admit("anna", None, device_id=PHONE, address="192.0.2.1", now_ms=0)
        assert isinstance(admitted, Admitted)
        assert admitted.rank() == 4
        limits.was_not_made(admitted, 0)
    assert [rank(limits, "192.0.2.1") for _ in range(2)] == [4, 5]
    late = limits.admit("anna", None, device_id=PHONE, address="192.0.2.1", now_ms=0)
    assert late == ADDRESS_INTERVAL_MS


def without_room(plane: Plane) -> Passwords:
    """All slots are taken, and nothing can wait for one."""
    passwords = plane.accounts.service._passwords
    passwords._slots_taken = passwords._running_max
    passwords._turns = Turns(waiting_max=0)
    return passwords


async def test_login_refused_by_the_queue_is_told_when_to_come_again(
    engine: MemoryHarness,
) -> None:
    throttle = ThrottleOptions(login_ip_burst=1, register_ip_burst=100)
    plane = Plane(engine, options=AccountOptions(throttle=throttle))
    await plane.accounts.admin.add_user("anna", PASSWORD)
    passwords = without_room(plane)
    calls = len(plane.hasher.calls)
    for _ in range(3):
        with pytest.raises(TooManyLogins) as refused:
            await plane.logged_in("anna")
        assert refused.value.details == {"retry_after_seconds": 2}
        with pytest.raises(TooManyLogins):
            await plane.registered("ben")
    assert len(plane.hasher.calls) == calls
    passwords._slots_taken = 0
    await plane.logged_in("anna")


async def test_rank_of_a_good_login_counts_too(plane: Plane) -> None:
    """Logins that are good are free of limits, but not of the queue: they cost as much."""
    ranks: list[int] = []
    check = plane.accounts.service._passwords.check

    async def watched(stored: str | None, password: Secret, *, rank: Rank) -> PasswordCheck:
        ranks.append(rank())
        return await check(stored, password, rank=rank)

    plane.accounts.service._passwords.check = watched  # type: ignore[method-assign,assignment]
    await plane.registered("anna", PHONE)
    for _ in range(3):
        await plane.logged_in("anna", PHONE)
    assert ranks == [1, 2, 3]
    # From a busy address: the place of a known device is its own.
    await plane.accounts.admin.add_user("ben", PASSWORD)
    await plane.logged_in("ben", a_device(1))
    await plane.logged_in("ben", a_device(1))
    assert ranks[3:] == [8, 1]


# Showing the password once more.


async def test_showing_the_password_waits_in_the_queue_like_a_login(plane: Plane) -> None:
    """Only operators come first. Who changes the password again and again moves back."""
    anna = await plane.registered("anna")
    user_id, session_id = anna.user.user_id, anna.session.session_id
    service = plane.accounts.service
    check, hash_ = service._passwords.check, service._passwords.hash
    ranks: list[int] = []

    async def checked(
        stored: str | None, password: Secret, *, rank: Rank = operators
    ) -> PasswordCheck:
        ranks.append(rank())
        return await check(stored, password, rank=rank)

    async def hashed(password: Secret, *, rank: Rank = operators) -> str:
        ranks.append(rank())
        return await hash_(password, rank=rank)

    service._passwords.check = checked  # type: ignore[method-assign]
    service._passwords.hash = hashed  # type: ignore[method-assign]
    for _ in range(2):
        await service.change_password(user_id, session_id, old=PASSWORD, new=PASSWORD)
    await service.delete_account(user_id, password=PASSWORD)
    assert ranks == [4, 5, 6, 7, 8]


async def test_password_changes_that_are_good_are_limited_too(engine: MemoryHarness) -> None:
    """Each costs two hashes, and nobody needs many."""
    plane = Plane(engine, options=AccountOptions(throttle=ThrottleOptions(login_name_burst=2)))
    anna = await plane.registered("anna")
    user_id, session_id = anna.user.user_id, anna.session.session_id
    change = plane.accounts.service.change_password
    for _ in range(2):
        await change(user_id, session_id, old=PASSWORD, new=PASSWORD)
    with pytest.raises(RateLimited):
        await change(user_id, session_id, old=PASSWORD, new=PASSWORD)


async def test_password_change_without_room_in_the_queue_counts_for_nothing(
    engine: MemoryHarness,
) -> None:
    plane = Plane(engine, options=AccountOptions(throttle=ThrottleOptions(login_name_burst=1)))
    anna = await plane.registered("anna")
    user_id, session_id = anna.user.user_id, anna.session.session_id
    change = plane.accounts.service.change_password
    passwords = without_room(plane)
    for _ in range(3):
        with pytest.raises(TooManyLogins):
            await change(user_id, session_id, old=PASSWORD, new=PASSWORD)
    passwords._slots_taken = 0
    await change(user_id, session_id, old=PASSWORD, new=PASSWORD)


# The queue before the password hash: by rank, then by arrival, bounded.


def fixed(rank: int) -> Rank:
    return lambda: rank


def emptied(turns: Turns[str]) -> list[str]:
    served = []
    while (ticket := turns.take()) is not None:
        served.append(ticket)
    return served


def test_lowest_rank_is_first_and_equals_are_in_order() -> None:
    turns: Turns[str] = Turns(waiting_max=10)
    for ticket, rank in (("a", 5), ("b", 1), ("c", 5), ("d", 1), ("e", 3)):
        assert turns.enter(ticket, fixed(rank)) is None
    assert len(turns) == 5
    assert emptied(turns) == ["b", "d", "e", "a", "c"]


def test_last_place_is_given_up_for_a_better_one_only() -> None:
    turns: Turns[str] = Turns(waiting_max=2)
    assert turns.enter("a", fixed(5)) is None
    assert turns.enter("b", fixed(5)) is None
    assert turns.enter("c", fixed(5)) == "c"
    assert turns.enter("d", fixed(4)) == "b"
    assert emptied(turns) == ["d", "a"]


def test_address_that_goes_on_asking_moves_back_with_all_it_has_waiting() -> None:
    asked: Counter[str] = Counter()
    turns: Turns[str] = Turns(waiting_max=3)

    def come(ticket: str, address: str) -> str | None:
        asked[address] += 1
        return turns.enter(ticket, lambda: asked[address])

    assert [come("flood 1", "busy"), come("flood 2", "busy"), come("one", "calm")] == [None] * 3
    assert come("flood 3", "busy") == "flood 3"
    assert come("another", "quiet") == "flood 2"
    assert emptied(turns) == ["one", "another", "flood 1"]


def test_queue_without_places_keeps_none_waiting() -> None:
    turns: Turns[str] = Turns(waiting_max=0)
    assert turns.enter("a", fixed(0)) == "a"
    assert turns.take() is None


def test_place_can_be_given_up() -> None:
    turns: Turns[str] = Turns(waiting_max=9)
    tickets = ["first", "second", "third"]
    for ticket in tickets:
        turns.enter(ticket, fixed(1))
    turns.leave(tickets[1])
    turns.leave("nobody")
    assert emptied(turns) == ["first", "third"]


@given(st.lists(st.integers(1, 5), max_size=30), st.integers(0, 5))
def test_those_who_stay_are_the_best_that_came(ranks: list[int], waiting_max: int) -> None:
    turns: Turns[int] = Turns(waiting_max=waiting_max)
    for number, rank in enumerate(ranks):
        turns.enter(number, fixed(rank))
    served = []
    while (ticket := turns.take()) is not None:
        served.append(ticket)
    best = sorted(range(len(ranks)), key=lambda number: (ranks[number], number))
    assert served == best[:waiting_max]
