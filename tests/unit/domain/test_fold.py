"""What people see of a message: a stale view and the entries since then give the fresh view."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.domain.entries import (
    ANNA,
    BEN,
    CLEO,
    Log,
    a_deletion,
    a_reaction,
    an_edit,
)
from tidewire.domain.fold import AS_WRITTEN, MessageNow, Reaction, fold, join
from tidewire.domain.ids import UserId
from tidewire.domain.limits import REACTION_USERS_MAX
from tidewire.domain.messages import Amendment, EntryKind, Message, SendMessage

USERS = [ANNA, BEN, CLEO, *(UserId(f"user_{number:02}") for number in range(12))]
EMOJI = ["👍", "🎉", "🌊"]


def folded(
    entries: Sequence[Message], reader: UserId = BEN, now: MessageNow = AS_WRITTEN
) -> MessageNow:
    for entry in entries:
        now = fold(now, entry, reader)
    return now


def log_of(*sends: SendMessage) -> list[Message]:
    log = Log()
    for send in sends:
        log.append(send)
    return log.entries


def users_with(entries: Sequence[Message], emoji: str) -> set[UserId]:
    """Naively: the users who have an emoji on."""
    found: set[UserId] = set()
    for entry in entries:
        if entry.amends is not None and entry.amends.emoji == emoji:
            (found.add if entry.amends.is_on else found.discard)(entry.sender_id)
    return found


def store_says(entries: Sequence[Message], reader: UserId) -> MessageNow:
    """What a store that keeps sets says a message is now, however it was folded elsewhere."""
    deletions = [one for one in entries if one.kind is EntryKind.DELETE]
    if deletions:
        return MessageNow(deleted_sequence=deletions[-1].sequence)
    edits = [one for one in entries if one.kind is EntryKind.EDIT]
    reactions = []
    for emoji in sorted(EMOJI):
        about = [one for one in entries if one.amends is not None and one.amends.emoji == emoji]
        own = [one for one in about if one.sender_id == reader]
        on = users_with(entries, emoji)
        if about:
            reaction = Reaction(
                emoji=emoji,
                count=len(on),
                sequence=about[-1].sequence,
                is_own=reader in on,
                own_sequence=own[-1].sequence if own else 0,
                users=tuple(sorted(on)[:REACTION_USERS_MAX]),
            )
            reactions.append(reaction)
    return MessageNow(
        content=edits[-1].content if edits else None,
        edited_sequence=edits[-1].sequence if edits else 0,
        reactions=tuple(reactions),
    )


def without_users(now: MessageNow) -> MessageNow:
    return replace(now, reactions=tuple(replace(one, users=()) for one in now.reactions))


@st.composite
def logs(
    draw: st.DrawFn, users: Sequence[UserId] = USERS, *, are_deleted: bool = False
) -> list[Message]:
    """Entries about one message that the rules have let through. Few logs end in a deletion."""
    reactions = st.builds(
        a_reaction, st.sampled_from(users), st.sampled_from(EMOJI), is_on=st.booleans()
    )
    edits = st.builds(an_edit, content=st.sampled_from(["one", "two", "three"]))
    sends = draw(st.lists(st.one_of(reactions, reactions, reactions, edits), max_size=40))
    if are_deleted or draw(st.integers(0, 4)) == 0:
        sends.append(a_deletion())
    return log_of(*sends)


readers = st.sampled_from(USERS)


# The fold.


@given(logs(), readers, st.data())
def test_stale_view_and_the_entries_since_are_the_fresh_view(
    entries: list[Message], reader: UserId, data: st.DataObject
) -> None:
    """Also if old entries come again."""
    fresh = folded(entries, reader)
    split = data.draw(st.integers(0, len(entries)))
    stale = folded(entries[:split], reader)
    again = data.draw(st.integers(0, split))
    assert folded(entries[again:], reader, stale) == fresh
    assert join(stale, fresh) == join(fresh, stale) == fresh


@given(logs(), readers, st.data())
def test_entry_that_comes_twice_changes_nothing(
    entries: list[Message], reader: UserId, data: st.DataObject
) -> None:
    twice = [entry for entry in entries for _ in range(data.draw(st.integers(1, 3)))]
    assert folded(twice, reader) == folded(entries, reader)


@given(logs(), readers, st.data())
def test_page_of_the_store_joins_with_what_a_reader_holds(
    entries: list[Message], reader: UserId, data: st.DataObject
) -> None:
    """The page may be older or newer than what the reader has folded, and comes at any moment."""
    end, read_at, held_at = sorted(data.draw(st.integers(0, len(entries))) for _ in range(3))[::-1]
    held = folded(entries[:held_at], reader)
    page = store_says(entries[:read_at], reader)
    fresh = store_says(entries[:end], reader)
    for now in (
        folded(entries[held_at:end], reader, join(held, page)),
        join(folded(entries[held_at:end], reader, held), page),
        folded(entries[:end], reader, page),
    ):
        assert without_users(now) == without_users(fresh)


@given(logs(), readers, st.data())
def test_users_are_some_of_those_who_have_it(
    entries: list[Message], reader: UserId, data: st.DataObject
) -> None:
    split = data.draw(st.integers(0, len(entries)))
    now = folded(entries[split:], reader, store_says(entries[:split], reader))
    for reaction in now.reactions:
        on = users_with(entries, reaction.emoji)
        assert reaction.count == len(on)
        assert len(reaction.users) <= REACTION_USERS_MAX
        assert len(set(reaction.users)) == len(reaction.users)
        assert set(reaction.users) <= on


@given(logs(USERS[:REACTION_USERS_MAX]), readers, st.data())
def test_users_are_all_who_have_it_while_they_are_few(
    entries: list[Message], reader: UserId, data: st.DataObject
) -> None:
    split = data.draw(st.integers(0, len(entries)))
    now = folded(entries[split:], reader, store_says(entries[:split], reader))
    assert without_users(now) == without_users(store_says(entries, reader))
    for reaction in now.reactions:
        assert set(reaction.users) == users_with(entries, reaction.emoji)


@given(logs(are_deleted=True), readers)
def test_view_of_erased_entries_is_that_of_the_deletion(
    entries: list[Message], reader: UserId
) -> None:
    """Who syncs after a deletion gets edits without their texts."""
    erased = [replace(one, content="", deleted_by=entries[-1].sequence) for one in entries]
    fresh = folded(entries, reader)
    assert fresh == MessageNow(deleted_sequence=entries[-1].sequence)
    for split in range(len(entries)):
        assert folded(erased[split:], reader, folded(entries[:split], reader)) == fresh


# The join. Of each part there is one truth a sequence; only samples of users differ.


@st.composite
def views(draw: st.DrawFn) -> MessageNow:
    deleted = draw(st.sampled_from([0, 0, 0, 7]))
    if deleted:
        return MessageNow(deleted_sequence=deleted)
    edited = draw(st.integers(0, 3))
    content = draw(st.sampled_from([None, f"edit {edited}"])) if edited else None
    reactions = []
    for emoji in sorted(draw(st.sets(st.sampled_from(EMOJI)))):
        sequence, own = draw(st.integers(1, 4)), draw(st.integers(0, 4))
        users = draw(st.lists(st.sampled_from(USERS[:4]), unique=True, max_size=3))
        reaction = Reaction(
            emoji=emoji,
            count=sequence,
            sequence=sequence,
            is_own=own % 2 == 1,
            own_sequence=own,
            users=tuple(users),
        )
        reactions.append(reaction)
    return MessageNow(content=content, edited_sequence=edited, reactions=tuple(reactions))


@given(views(), views(), views())
def test_join_does_not_depend_on_order_or_repetition(
    one: MessageNow, two: MessageNow, three: MessageNow
) -> None:
    assert join(one, two) == join(two, one)
    assert join(join(one, two), three) == join(one, join(two, three))
    assert join(one, one) == one
    assert join(one, AS_WRITTEN) == one
    assert join(join(one, two), two) == join(one, two)


# What is shown.


def test_reactions_that_all_took_back_are_not_shown() -> None:
    now = folded(log_of(a_reaction(BEN), a_reaction(ANNA, "🎉"), a_reaction(BEN, is_on=False)))
    assert [(one.emoji, one.count) for one in now.reactions] == [("🎉", 1), ("👍", 0)]
    assert [one.emoji for one in now.shown_reactions] == ["🎉"]


def test_message_is_as_written_edited_or_deleted() -> None:
    edited = folded(log_of(an_edit(content="new")))
    deleted = folded(log_of(an_edit(content="new"), a_reaction(), a_deletion()))
    shown = [(one.is_edited, one.is_deleted) for one in (AS_WRITTEN, edited, deleted)]
    assert shown == [(False, False), (True, False), (False, True)]
    assert (edited.content, deleted.content, deleted.reactions) == ("new", None, ())
    assert MessageNow(edited_sequence=2, deleted_sequence=3).is_edited is False


def test_entry_of_a_kind_that_is_not_known_changes_nothing() -> None:
    [edit] = log_of(an_edit())
    unknown = replace(edit, amends=Amendment(kind=EntryKind.MESSAGE, target=1))
    assert fold(AS_WRITTEN, unknown, ANNA) is AS_WRITTEN
