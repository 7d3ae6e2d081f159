"""Several keys at once: which one signs, which ones check, and when an old one goes."""

from random import Random

import pytest

from tests.support.engines import MemoryHarness
from tests.support.world import START_MS
from tests.unit.accounts.forgery import decoded_part, hs256
from tests.unit.accounts.parts import PHONE, SERVER_SECRET, Plane
from tests.unit.accounts.test_tokens import SESSION, good_claims
from tidewire.accounts.keys import KEYS_MAX, KeyRing, TokenKey, with_new_key, without_key
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import InvalidOperation, InvalidRefreshToken, Unauthorized

NOW_MS = START_MS
LIFE_MS = 1_000_000
MINUTE_MS = 60_000


def a_secret(number: int) -> Secret:
    return Secret(f"secret number {number:02} of the tests, long enough")


FIRST = TokenKey(secret=a_secret(1))


def rotated(
    keys: tuple[TokenKey, ...] | list[TokenKey], number: int, *, wait_ms: int = 0, now_ms: int = 0
) -> list[TokenKey]:
    return with_new_key(
        keys,
        a_secret(number),
        signs_from_ms=NOW_MS + now_ms + wait_ms,
        life_ms=LIFE_MS,
        now_ms=NOW_MS + now_ms,
    )


def tokens_of(*keys: TokenKey) -> AccessTokens:
    return AccessTokens(KeyRing(keys), Random(1).randbytes)


def issued(tokens: AccessTokens, now_ms: int = NOW_MS) -> str:
    return tokens.issue(SESSION, life_ms=3_600_000, now_ms=now_ms)[0].reveal()


def is_good(tokens: AccessTokens, token: str, now_ms: int = NOW_MS) -> bool:
    try:
        tokens.verify(token, now_ms=now_ms)
    except Unauthorized:
        return False
    return True


def test_token_names_its_key() -> None:
    header = decoded_part(issued(tokens_of(FIRST)), 0)
    assert header == {"alg": "HS256", "typ": "JWT", "kid": FIRST.key_id}
    assert len(FIRST.key_id) == 12
    assert FIRST.secret.reveal() not in repr(FIRST)


def test_tokens_of_both_keys_are_good_until_the_old_one_ends() -> None:
    before = tokens_of(FIRST)
    old = issued(before)
    both = tokens_of(*rotated([FIRST], 2))
    new = issued(both)
    assert decoded_part(new, 0)["kid"] != decoded_part(old, 0)["kid"]
    assert is_good(both, old)
    assert is_good(both, new)
    # A process that has not heard of the new key refuses its tokens, and no others.
    assert not is_good(before, new)
    end_ms = NOW_MS + LIFE_MS
    assert is_good(both, old, end_ms - 1)
    assert not is_good(both, old, end_ms)
    assert is_good(both, new, end_ms)


def test_token_of_an_earlier_version_names_no_key_and_stays_good() -> None:
    both = tokens_of(*rotated([FIRST], 2))
    claims = good_claims(tokens_of(FIRST))
    for secret, expected in ((a_secret(1), True), (a_secret(2), True), (a_secret(3), False)):
        assert is_good(both, hs256(claims, secret.reveal().encode())) is expected


def test_token_that_names_another_key_than_its_own_is_refused() -> None:
    one, two = rotated([FIRST], 2)
    forged = tokens_of(TokenKey(secret=a_secret(3)))
    assert not is_good(tokens_of(one, two), issued(forged))
    old = issued(tokens_of(one))
    head, rest = old.split(".", 1)
    other_head = issued(tokens_of(two)).split(".", 1)[0]
    assert head != other_head
    assert not is_good(tokens_of(one, two), f"{other_head}.{rest}")


def test_new_key_signs_when_its_time_has_come() -> None:
    ring = KeyRing(rotated([FIRST], 2, wait_ms=10 * MINUTE_MS))
    assert ring.signing(NOW_MS).key_id == FIRST.key_id
    assert ring.signing(NOW_MS + 10 * MINUTE_MS - 1).key_id == FIRST.key_id
    assert ring.signing(NOW_MS + 10 * MINUTE_MS).key_id == ring.keys[1].key_id
    # Whoever has it already takes tokens of those whose clock is ahead.
    new = tokens_of(ring.keys[1])
    assert is_good(AccessTokens(ring, bytes), issued(new))
    # The old one ends a token's life after the new one began.
    assert ring.keys[0].good_until_ms == NOW_MS + 10 * MINUTE_MS + LIFE_MS


def test_keys_can_be_rotated_again_before_the_old_ones_end() -> None:
    keys = rotated([FIRST], 2)
    keys = rotated(keys, 3, now_ms=500)
    ends = [None if key.good_until_ms is None else key.good_until_ms - NOW_MS for key in keys]
    assert ends == [LIFE_MS, LIFE_MS + 500, None]
    keys = rotated(keys, 4, now_ms=LIFE_MS)
    assert [key.secret for key in keys] == [a_secret(2), a_secret(3), a_secret(4)]


def test_keys_are_bounded() -> None:
    keys = [FIRST]
    for number in range(2, KEYS_MAX + 1):
        keys = rotated(keys, number)
    with pytest.raises(InvalidOperation, match="keys already"):
        rotated(keys, 99)


def test_key_that_is_dropped_takes_its_tokens_along() -> None:
    keys = rotated([FIRST], 2)
    left = without_key(keys, FIRST.key_id, now_ms=NOW_MS)
    assert left == keys[1:]
    assert not is_good(tokens_of(*left), issued(tokens_of(FIRST)))
    with pytest.raises(InvalidOperation, match="there is no key"):
        without_key(left, FIRST.key_id, now_ms=NOW_MS)
    with pytest.raises(InvalidOperation, match="signs tokens now"):
        without_key(left, left[0].key_id, now_ms=NOW_MS)


def test_new_key_that_is_dropped_before_it_signs_leaves_all_as_it_was() -> None:
    keys = rotated([FIRST], 2, wait_ms=MINUTE_MS)
    assert without_key(keys, keys[1].key_id, now_ms=NOW_MS) == [FIRST]
    with pytest.raises(InvalidOperation, match="signs tokens now"):
        without_key(keys, FIRST.key_id, now_ms=NOW_MS)


def test_ring_has_a_key_whatever_the_clock_says() -> None:
    early = TokenKey(secret=a_secret(1), signs_from_ms=NOW_MS)
    ring = KeyRing([early])
    assert ring.signing(0) == early
    ended = TokenKey(secret=a_secret(1), good_until_ms=1)
    assert KeyRing([ended]).signing(NOW_MS) == ended
    assert KeyRing([ended]).oldest(NOW_MS) == ended


def test_ring_of_nothing_or_of_something_short_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        KeyRing([])
    with pytest.raises(ValueError, match="32 bytes"):
        KeyRing.of(Secret("x" * 31))


# Sessions over a change of keys.


async def test_sessions_live_on_over_a_rotation(engine: MemoryHarness) -> None:
    """Access tokens, an answer that was lost, and theft that is noticed: all as if nothing was."""
    plane = Plane(engine)
    ring = plane.keys
    anna = await plane.registered("anna", PHONE)
    service, authenticator = plane.accounts.service, plane.accounts.authenticator
    lost = await service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    ring.replace(
        with_new_key(
            [TokenKey(secret=SERVER_SECRET)],
            a_secret(2),
            signs_from_ms=plane.clock.wall_ms(),
            life_ms=LIFE_MS,
            now_ms=plane.clock.wall_ms(),
        )
    )
    await authenticator.authenticate(anna.tokens.access_token.reveal(), device_id=PHONE)
    again = await service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    assert again.tokens.refresh_token == lost.tokens.refresh_token
    header = decoded_part(again.tokens.access_token.reveal(), 0)
    assert header["kid"] == TokenKey(secret=a_secret(2)).key_id
    await authenticator.authenticate(again.tokens.access_token.reveal(), device_id=PHONE)
    for _ in range(3):
        again = await service.refresh(again.tokens.refresh_token, device_id=PHONE)
    # The old key goes; who has the last refresh token goes on.
    ring.replace(ring.keys[1:])
    with pytest.raises(Unauthorized):
        await authenticator.authenticate(anna.tokens.access_token.reveal(), device_id=PHONE)
    again = await service.refresh(again.tokens.refresh_token, device_id=PHONE)
    await authenticator.authenticate(again.tokens.access_token.reveal(), device_id=PHONE)
    assert plane.take_revoked() == []


async def test_refresh_token_from_before_a_rotation_is_still_known_as_stolen(
    engine: MemoryHarness,
) -> None:
    plane = Plane(engine)
    anna = await plane.registered("anna", PHONE)
    token = anna.tokens.refresh_token
    for number in range(2, 5):
        token = (await plane.accounts.service.refresh(token, device_id=PHONE)).tokens.refresh_token
        ring = plane.keys
        now_ms = plane.clock.wall_ms()
        ring.replace(
            with_new_key(
                ring.keys, a_secret(number), signs_from_ms=now_ms, life_ms=LIFE_MS, now_ms=now_ms
            )
        )
    with pytest.raises(InvalidRefreshToken):
        await plane.accounts.service.refresh(anna.tokens.refresh_token, device_id=PHONE)
    assert plane.take_revoked() == [anna.session.session_id]
