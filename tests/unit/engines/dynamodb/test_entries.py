import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engines.dynamodb.samples import ANNA, BEN, CHAT, NOW_MS, a_message, a_send
from tidewire.domain.fold import Reaction
from tidewire.domain.ids import UlidSource, UserId, placed
from tidewire.domain.limits import REACTION_USERS_MAX, SEQUENCE_MAX
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind, Message, SendMessage
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.entries import (
    KEY_LIFE_SECONDS,
    Mark,
    StoredMessage,
    counts_text,
    earlier_send_of,
    entry_of,
    entry_row,
    key_row,
    mark_key,
    mark_of,
    mark_row,
    marks_range,
    reactions_of,
    said_hash,
    stored_message_of,
    table_of,
)
from tidewire.engines.dynamodb.rows import Row, Value, pack, unpack

EDIT = Amendment(kind=EntryKind.EDIT, target=1)
DELETION = Amendment(kind=EntryKind.DELETE, target=1, reason="a mistake")
REACTION = Amendment(kind=EntryKind.REACT, target=1, emoji="👍")
TAKEN_BACK = replace(REACTION, is_on=False)


def stored(row: dict[str, Value]) -> Row:
    """A row as it comes back from the database."""
    return unpack(pack(row))


# Entries.


def test_row_of_a_plain_message_has_the_attributes_of_0_1_0() -> None:
    assert set(pack(entry_row(a_message(), is_indexed=True))) == {
        "chat_id",
        "sequence",
        "prev_sequence",
        "message_id",
        "sender_id",
        "client_message_id",
        "content",
        "content_type",
        "created_at",
    }


@pytest.mark.parametrize(
    "message",
    [
        a_message(5, 3, content="naïve 👍"),
        a_message(5, 3, reply_to=2, mentions=(BEN, MENTION_ALL)),
        a_message(5, 3, amends=EDIT),
        a_message(5, 3, amends=DELETION, content=""),
        a_message(5, 3, amends=REACTION, content="", count=2),
        a_message(5, 3, amends=TAKEN_BACK, content="", count=0),
        a_message(5, 3, content="", deleted_by=9),
        a_message(5, 3, amends=EDIT, content="", deleted_by=9),
    ],
)
def test_entry_comes_back_as_it_was(message: Message) -> None:
    assert entry_of(stored(entry_row(message, is_indexed=False))) == message
    is_message = message.amends is None
    assert table_of(message.amends) == (schema.MESSAGES if is_message else schema.AMENDMENTS)


def test_id_that_carries_its_place_stays_out_of_the_index() -> None:
    given = UlidSource(lambda bits: 3).message_id(NOW_MS)
    message = replace(a_message(5, 3), message_id=placed(given, 5))
    row = stored(entry_row(message, is_indexed=False))
    assert "message_id" not in row
    assert entry_of(row) == message
    # As earlier releases read it.
    assert stored(entry_row(message, is_indexed=True))["message_id"] == message.message_id
    # Without its own place in it, it can be found by the index only.
    elsewhere = replace(message, message_id=placed(given, 4))
    assert "message_id" in stored(entry_row(elsewhere, is_indexed=False))


@pytest.mark.parametrize("name", ["sender_id", "created_at"])
def test_row_without_what_it_must_have_is_no_entry(name: str) -> None:
    row = stored(entry_row(a_message(), is_indexed=True))
    del row[name]
    with pytest.raises(ValueError, match=name):
        entry_of(row)


def test_row_of_a_message_says_what_has_become_of_it() -> None:
    message = a_message(1)
    row = entry_row(message, is_indexed=False)
    as_written = stored_message_of(stored(row))
    assert as_written == StoredMessage(message)
    assert as_written.edited_by == 0
    counts = {"👍": (2, 9), "🎉": (1, 7)}
    row |= {"edits": (4, 6), "reacted_by": 9, "reactions": counts_text(counts)}
    changed = stored_message_of(stored(row))
    assert changed == StoredMessage(message, (4, 6), 9, counts)
    target = changed.target("later text")
    assert (target.author_id, target.created_at_ms, target.content) == (ANNA, NOW_MS, "later text")
    assert (target.edited_by, target.edits, target.deleted_by) == (6, 2, None)
    assert target.counts == {"👍": 2, "🎉": 1}


def test_emoji_that_no_user_has_is_not_counted() -> None:
    """Else the row would grow with every emoji that was ever tried."""
    assert counts_text({"👍": (0, 9)}) is None
    assert counts_text({"👍": (0, 9), "🎉": (1, 7)}) == '{"🎉":[1,7]}'


# Keys.

VECTORS: dict[str, SendMessage] = {
    # That of 0.1.0.
    "97ef98f924d843749ab0e7f56c8362af9c86e7d214492543f8dbfb6cdf679037": a_send(),
    "7c1d28d0bdf40381bb719e5f9e132f7d41ee2e3673fe4d0f5c7ee25921509ac7": a_send(reply_to=2),
    "94942e8469d56c0c9d7d5384ff0b2914ab2de49c625766f5a0f0b0b3be151ca8": a_send(mentions=(BEN,)),
    "3fe4dbd1dcacbcf1e8a4aae32360271d28b25ff6669931c4f016b439fdf54dbf": a_send(amends=EDIT),
    "4f9f2f15079d2b6aaca4179937e48a58634b467366ac7a2fa34819d3eddad272": a_send(
        content="", amends=DELETION
    ),
    "ef9fab2f7481c99a00cf3f7c5b764bfbf593706924b2ea52dbd9d254a39d99f7": a_send(
        content="", amends=REACTION
    ),
    "005d5e89dec5accea187557bcb31feaff72115f16086f03ed427905858b59bf5": a_send(
        content="", amends=TAKEN_BACK
    ),
}
"""Keys live for seven days: a hash that came out differently would refuse retries."""


@pytest.mark.parametrize(("digest", "send"), VECTORS.items())
def test_hash_of_what_was_said_stays_as_it_is(digest: str, send: SendMessage) -> None:
    assert said_hash(send).hex() == digest


DIFFERENT = [
    a_send(),
    a_send(content="other"),
    a_send(content_type="text/other"),
    a_send(reply_to=1),
    a_send(reply_to=2),
    a_send(mentions=(BEN,)),
    a_send(mentions=(BEN, ANNA)),
    a_send(mentions=(BEN,), reply_to=1),
    a_send(amends=EDIT),
    a_send(amends=replace(EDIT, target=2)),
    a_send(content="", amends=DELETION),
    a_send(content="", amends=replace(DELETION, reason=None)),
    a_send(content="", amends=REACTION),
    a_send(content="", amends=TAKEN_BACK),
    a_send(content="", amends=replace(REACTION, emoji="🎉")),
]


@pytest.mark.parametrize("send", DIFFERENT)
def test_key_is_of_the_same_words_only(send: SendMessage) -> None:
    """All that the client chose counts, and nothing else does."""
    rows = [
        stored(key_row(a_message(
            5, 3,
            content=one.content, content_type=one.content_type, reply_to=one.reply_to,
            mentions=one.mentions, amends=one.amends, count=7,
        )))
        for one in DIFFERENT
    ]  # fmt: skip
    again = replace(send, base=4, seen_sequence=3)
    found = [earlier_send_of(row, again, now_ms=NOW_MS) for row in rows]
    assert [one is not None and one.is_same for one in found] == [one == send for one in DIFFERENT]


def test_key_answers_with_the_first_numbers_and_says_nothing() -> None:
    message = a_message(5, 3, mentions=(BEN,), reply_to=2)
    row = stored(key_row(message))
    found = earlier_send_of(row, a_send(), now_ms=NOW_MS)
    assert found is not None
    assert (found.sender_id, found.is_deleted) == (ANNA, False)
    answer = found.answer
    assert (answer.message_id, answer.sequence, answer.prev_sequence) == (message.message_id, 5, 3)
    assert (answer.created_at_ms, answer.deduplicated) == (NOW_MS, True)
    assert not {"content", "mentions", "reply_to", "content_type"} & set(row)


def test_key_of_an_erased_entry_compares_nothing() -> None:
    row = stored(key_row(a_message(content="", deleted_by=9)))
    assert "content_hash" not in row
    found = earlier_send_of(row, a_send(), now_ms=NOW_MS)
    assert found is not None
    assert (found.is_deleted, found.is_same) == (True, False)


@pytest.mark.parametrize(("later_seconds", "is_there"), [(-1, True), (0, False), (1, False)])
def test_key_counts_as_absent_once_it_has_expired(later_seconds: int, is_there: bool) -> None:
    row = stored(key_row(a_message()))
    now_ms = NOW_MS + (KEY_LIFE_SECONDS + later_seconds) * 1000
    assert (earlier_send_of(row, a_send(), now_ms=now_ms) is not None) == is_there
    assert earlier_send_of(None, a_send(), now_ms=now_ms) is None


# Reactions.

targets = st.integers(1, SEQUENCE_MAX)
emoji = st.sampled_from(["👍", "🎉", ":+1:", "~", "!", "👩🏽\u200d🚀"])


@given(targets, emoji, targets, st.booleans())
def test_mark_comes_back_as_it_was(target: int, one: str, sequence: int, is_on: bool) -> None:
    mark = Mark(target, one, ANNA, sequence, is_on)
    assert mark_of(stored(mark_row(CHAT, mark))) == mark


@given(targets, emoji, targets, targets)
def test_marks_of_a_page_are_one_range(target: int, one: str, first: int, last: int) -> None:
    key = str(mark_key(CHAT, Mark(target, one, ANNA))["reaction"]).encode()
    low, high = marks_range(first, last)
    assert (low.encode() <= key <= high.encode()) == (first <= target <= last)


def test_reactions_are_counted_on_the_message_and_named_by_their_marks() -> None:
    message = StoredMessage(a_message(1), (), 9, {"👍": (2, 9), "🎉": (1, 7)})
    marks = [
        Mark(1, "👍", BEN, 9, True),
        Mark(1, "👍", ANNA, 5, True),
        Mark(1, "🎉", BEN, 7, True),
        Mark(1, "🎉", ANNA, 6, False),
        Mark(1, "😢", ANNA, 8, False),
    ]
    party, sad, thumb = sorted(reactions_of(message, marks, ANNA), key=lambda one: one.emoji)[:3]
    by_emoji = {one.emoji: one for one in (party, sad, thumb)}
    assert by_emoji["👍"] == Reaction(
        emoji="👍", count=2, sequence=9, is_own=True, own_sequence=5, users=(ANNA, BEN)
    )
    assert by_emoji["🎉"] == Reaction(
        emoji="🎉", count=1, sequence=7, is_own=False, own_sequence=6, users=(BEN,)
    )
    assert by_emoji["😢"] == Reaction(
        emoji="😢", count=0, sequence=8, is_own=False, own_sequence=8, users=()
    )


def test_marks_that_are_newer_than_the_message_are_left_to_their_entries() -> None:
    """Or older, if one does not show itself yet: the count is that of the message's own row."""
    message = StoredMessage(a_message(1), (), 9, {"👍": (2, 9)})
    newer = [Mark(1, "🎉", BEN, 12, True), Mark(1, "😢", BEN, 11, False)]
    assert reactions_of(message, newer, ANNA) == (Reaction(emoji="👍", count=2, sequence=9),)
    older = [Mark(1, "😢", BEN, 4, True)]
    assert reactions_of(message, older, ANNA) == (Reaction(emoji="👍", count=2, sequence=9),)


def test_some_of_many_users_are_named() -> None:
    count = REACTION_USERS_MAX + 5
    message = StoredMessage(a_message(1), (), count, {"👍": (count, count)})
    marks = [Mark(1, "👍", UserId(f"user_{n:03d}"), count - n, True) for n in range(count)]
    [reaction] = reactions_of(message, marks, ANNA)
    assert reaction.count == count
    assert reaction.users == tuple(
        UserId(f"user_{n:03d}") for n in range(count - 1, count - 1 - REACTION_USERS_MAX, -1)
    )
