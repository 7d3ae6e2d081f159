"""What a trace check about messages that change compares; the checks are tried in test_trace.py."""

from msgspec.structs import replace

from tests.support.history import Sent
from tests.support.trace_entries import is_shown_as_stored, is_stored_as_sent, subject_of
from tests.unit.support.story import ANN, BOB, CHAT, Story
from tidewire.domain.ids import ClientMessageId
from tidewire.domain.messages import Amendment, EntryKind


def test_text_is_that_of_the_message_itself_or_of_the_one_it_edits() -> None:
    message = Story().store(7, "k7")
    edit, reaction = (
        replace(message, amends=Amendment(kind=kind, target=3))
        for kind in (EntryKind.EDIT, EntryKind.REACT)
    )
    assert [subject_of(one) for one in (message, edit, reaction)] == [7, 3, None]


def test_what_was_shown_before_its_deletion_is_as_stored() -> None:
    shown = replace(Story().store(1, "k1", text="secret"), mentions=(BOB,))
    stored = replace(shown, content="", mentions=(), deleted_by=2)
    assert is_shown_as_stored(shown, stored)
    assert is_shown_as_stored(stored, stored)
    assert not is_shown_as_stored(shown, None)
    assert not is_shown_as_stored(replace(shown, sender_id=BOB), stored)
    assert not is_shown_as_stored(stored, shown), "it was shown as deleted, and is not"


def test_entry_is_stored_as_it_was_sent_or_erased() -> None:
    stored = Story().store(1, "k1", text="secret")
    key = ClientMessageId("k1")
    sent = Sent(op=1, chat_id=CHAT, user_id=ANN, client_message_id=key, content="secret")
    assert is_stored_as_sent(stored, sent)
    assert not is_stored_as_sent(replace(stored, content="other"), sent)
    assert not is_stored_as_sent(replace(stored, reply_to=1), sent)
    erased = replace(stored, content="", deleted_by=2)
    assert is_stored_as_sent(erased, sent)
    assert not is_stored_as_sent(replace(erased, content="secret"), sent)
    assert not is_stored_as_sent(replace(erased, mentions=(BOB,)), replace(sent, mentions=(BOB,)))
