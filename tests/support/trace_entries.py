"""The trace invariants about messages that change. PURE. See `trace.py`."""

from collections.abc import Iterator

from msgspec.structs import replace

from tests.support.history import (
    Acked,
    FinalState,
    Found,
    History,
    Sent,
    SyncAsked,
    Synced,
    TextsAsked,
    TextsShown,
)
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import EntryKind, Message


def check_deleted_is_not_read(history: History, final: FinalState) -> Iterator[Found]:
    """After a deletion no read shows the text. A push from before it is no read: it may be late."""
    told = _told_deletions(history)

    def is_over(chat_id: ChatId, subject: int | None, began: int) -> bool:
        return subject is not None and told.get((chat_id, subject), began) < began

    for began, _, asked, page in history.exchanges(SyncAsked, Synced):
        for message in page.messages:
            if _says(message) and is_over(asked.chat_id, subject_of(message), began):
                found = f"a sync from {asked.after} gave {message.sequence} after its deletion"
                yield asked.chat_id, found
    for began, _, looked, shown in history.exchanges(TextsAsked, TextsShown):
        for sequence, text in shown.texts.items():
            if text and is_over(looked.chat_id, sequence, began):
                yield looked.chat_id, f"{looked.way} showed {sequence} after its deletion"
    for chat_id, messages in final.messages.items():
        for message in messages:
            if _says(message) and is_over(chat_id, subject_of(message), len(history.entries)):
                yield chat_id, f"{message.sequence} still has its text after its deletion"


def _told_deletions(history: History) -> dict[tuple[ChatId, int], int]:
    """The messages whose deletion was acknowledged or shown, and the first place where it was."""
    places: dict[tuple[ChatId, int], int] = {}
    for _, ended, sent, _ in history.exchanges(Sent, Acked):
        if sent.deletes is not None:
            places.setdefault((sent.chat_id, sent.deletes), ended)
    for _, ended, asked, page in history.exchanges(SyncAsked, Synced):
        for message in page.messages:
            if message.amends is not None and message.kind is EntryKind.DELETE:
                key = asked.chat_id, message.amends.target
                places[key] = min(ended, places.get(key, ended))
    return places


def subject_of(message: Message) -> int | None:
    """The message whose text an entry contains: itself, or the one that it edits."""
    if message.amends is None:
        return message.sequence
    return message.amends.target if message.kind is EntryKind.EDIT else None


def is_shown_as_stored(shown: Message, stored: Message | None) -> bool:
    """Whether a page showed the entry as it is stored, or as it was before it was erased."""
    if stored is not None and stored.is_deleted and not shown.is_deleted:
        shown = replace(shown, content="", mentions=(), deleted_by=stored.deleted_by)
    return shown == stored


def is_stored_as_sent(stored: Message, sent: Sent) -> bool:
    """Whether an entry is stored as it was sent; an erased one has no text left to compare."""
    said = (stored.content, stored.reply_to, stored.mentions, stored.amends)
    if stored.is_deleted:
        return said == ("", sent.reply_to, (), sent.amends)
    return (stored.sender_id, *said) == sent.said


def _says(message: Message) -> bool:
    return bool(message.content or message.mentions)
