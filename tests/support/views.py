"""What a chat looks like to a reader: naively from the whole log, as a device folds it, and by the
answers of a store. All three have to be the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from tidewire.domain.fold import AS_WRITTEN, MessageNow, Reaction, fold
from tidewire.domain.ids import UserId
from tidewire.domain.limits import REACTION_USERS_MAX
from tidewire.domain.messages import EntryKind, Message

View = dict[int, tuple[str, MessageNow]]
"""By message: its text, and how it was changed."""

# From the whole log.


def view_of(log: Sequence[Message], reader: UserId) -> View:
    """All messages, as a reader sees them after these entries."""
    entries: defaultdict[int, list[Message]] = defaultdict(list)
    for entry in log:
        if entry.amends is not None:
            entries[entry.amends.target].append(entry)
    return {
        message.sequence: _shown(message, entries[message.sequence], reader)
        for message in log
        if message.amends is None
    }


def _shown(message: Message, entries: Sequence[Message], reader: UserId) -> tuple[str, MessageNow]:
    deletions = [one.sequence for one in entries if one.kind is EntryKind.DELETE]
    if deletions:
        return "", MessageNow(deleted_sequence=deletions[0])
    edits = [one for one in entries if one.kind is EntryKind.EDIT]
    emojis = sorted({one.amends.emoji or "" for one in entries if one.amends} - {""})
    now = MessageNow(
        content=edits[-1].content if edits else None,
        edited_sequence=edits[-1].sequence if edits else 0,
        reactions=tuple(_reaction(entries, emoji, reader) for emoji in emojis),
    )
    return (edits or [message])[-1].content, now


def _reaction(entries: Sequence[Message], emoji: str, reader: UserId) -> Reaction:
    with_it = [one for one in entries if one.amends is not None and one.amends.emoji == emoji]
    users = users_of(entries, emoji)
    return Reaction(
        emoji=emoji,
        count=len(users),
        sequence=with_it[-1].sequence,
        is_own=reader in users,
        own_sequence=max((one.sequence for one in with_it if one.sender_id == reader), default=0),
        users=tuple(sorted(users)[:REACTION_USERS_MAX]),
    )


def users_of(entries: Sequence[Message], emoji: str | None) -> set[UserId]:
    """The users who have an emoji on a message: those whose last reaction with it was "on"."""
    last = {
        one.sender_id: one.amends.is_on
        for one in entries
        if one.amends is not None and one.kind is EntryKind.REACT and one.amends.emoji == emoji
    }
    return {user for user, is_on in last.items() if is_on}


def about(log: Iterable[Message], target: int) -> list[Message]:
    return [one for one in log if one.amends is not None and one.amends.target == target]


# A device, and what a store answers it.


def catch_up(stale: View, entries: Iterable[Message], reader: UserId) -> View:
    """An older view, with the entries since then taken in one by one."""
    view = dict(stale)
    for entry in entries:
        take_in(view, entry, reader)
    return {sequence: (text, _in_order(now)) for sequence, (text, now) in view.items()}


def take_in(view: View, entry: Message, reader: UserId) -> None:
    """Apply an entry to a view, as a device does."""
    if entry.amends is None:
        view[entry.sequence] = entry.content, AS_WRITTEN
        return
    text, now = view[entry.amends.target]
    now = fold(now, entry, reader)
    view[entry.amends.target] = _text(text, now), now


def counted(view: View) -> View:
    """A view without the names of users who reacted, because only some of them are shown."""
    return {
        sequence: (
            text,
            replace(now, reactions=tuple(replace(one, users=()) for one in now.reactions)),
        )
        for sequence, (text, now) in view.items()
    }


def view_in(history: Iterable[Message], found: Mapping[int, MessageNow]) -> View:
    """The view that history pages and their `now` show."""
    view: View = {}
    for message in history:
        if message.amends is None:
            now = _in_order(found.get(message.sequence, AS_WRITTEN))
            view[message.sequence] = _text(message.content, now), now
    return view


def _text(held: str, now: MessageNow) -> str:
    if now.is_deleted:
        return ""
    return held if now.content is None else now.content


def _in_order(now: MessageNow) -> MessageNow:
    """Sort, because the users of a reaction come in no order."""
    reactions = [replace(one, users=tuple(sorted(one.users))) for one in now.reactions]
    return replace(now, reactions=tuple(sorted(reactions, key=lambda one: one.emoji)))
