"""What is held of all chats; the conversation's tests are in test_connection."""

from random import Random

from tests.unit.client.stage import CHAT, ME, WALL_MS, item, listed, push
from tidewire.client.effects import PAUSE, RESUME, Effect, Keep, Now
from tidewire.client.holdings import Holdings
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Outbox
from tidewire.wire.server_frames import ChatDigestPayload

NOW = Now(1_000, WALL_MS)


def holdings(**options: int) -> tuple[Holdings, list[Effect]]:
    chosen = ClientOptions(**options)
    effects: list[Effect] = []
    random = Random(1)
    made = Holdings(
        chosen,
        random,
        outbox=Outbox(chosen, random),
        effects=effects,
        records=(),
        user_id=ME,
    )
    made.begin(ME, is_new_epoch=False, epoch="one", now=NOW)
    made.digest(ChatDigestPayload(digest_id="d", page=0, last=True, chats=[listed(0)]), NOW)
    effects.clear()
    return made, effects


def test_messages_on_their_way_to_the_disk_are_bounded() -> None:
    made, effects = holdings(unstored_max=3, page_messages=3)
    for sequence in range(1, 4):
        made.message(push(sequence).payload, NOW)
    assert effects[-2:] == [PAUSE, effects[-1]]
    assert made.is_full
    place = made.places[CHAT]
    assert made.stored(place, 1, 1, place.life)
    assert RESUME not in effects
    assert made.stored(place, 2, 1, place.life)
    assert effects[-1] == RESUME
    assert not made.is_full


def test_second_digest_is_not_the_first() -> None:
    made, _ = holdings()
    again = ChatDigestPayload(digest_id="e", page=0, last=True, chats=[listed(0)])
    assert not made.digest(again, NOW)
    first = ChatDigestPayload(digest_id="f", page=0, last=False, chats=[])
    assert not made.digest(first, NOW)


def test_digest_in_pages_is_complete_with_its_last() -> None:
    made, _ = holdings()
    made.disconnected()
    assert [made.is_complete] == [False]
    made.begin(ME, is_new_epoch=False, epoch="one", now=NOW)
    made.digest(ChatDigestPayload(digest_id="d", page=0, last=False, chats=[]), NOW)
    assert [made.is_complete] == [False]
    assert made.digest(ChatDigestPayload(digest_id="d", page=1, last=True, chats=[listed(0)]), NOW)
    assert made.is_complete
    assert made.places[CHAT].is_member


def test_what_continues_the_chat_is_kept() -> None:
    made, effects = holdings()
    made.message(push(1).payload, NOW)
    (keep,) = [effect for effect in effects if isinstance(effect, Keep)]
    assert [one.sequence for one in keep.items] == [item(1).sequence]
