"""TW-15 to TW-17: how a client handles messages that change.

A client that has not offered `entries` gets the entries as empty messages with a `kind`, and
has to hold them just the same.
"""

from tidewire.domain.messages import EntryKind
from tidewire.wire.features import Feature
from tidewire_conformance.registry import must
from tidewire_conformance.stage import Stage
from tidewire_conformance.truth import PlayedChat


async def _has_acked_all(stage: Stage, chat: PlayedChat) -> None:
    """The client has acknowledged the last entry, and goes on from there in its next life."""
    if not await stage.acked(chat, chat.head):
        await stage.adapter.stop()
    before = stage.server.connection.number
    await stage.adapter.restart()
    await stage.reconnected(before)
    await stage.ready()
    asked = stage.server.of("sync_request", connection=stage.server.connection, chat=chat)
    cursors = [one.payload["last_acked_sequence"] for one in asked]
    stage.expect(
        all(cursor >= chat.head for cursor in cursors),
        f"it has everything up to {chat.head}, and asked again from {cursors}",
    )


@must("TW-15", "hold entries of unknown kinds")
async def unknown_kinds_are_held(stage: Stage) -> None:
    """Entries of a kind that no client knows come between messages, pushed. Nothing is shown for
    them, the messages around them are, and they are acknowledged like messages: what the client
    holds is complete, so it asks for nothing again."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    for text in ("between", "behind"):
        server.push_unknown(chat)
        server.say(chat, text)
    await stage.shows(chat, ["first 1", "between", "behind"])
    server.push_unknown(chat)
    await _has_acked_all(stage, chat)
    await stage.shows(chat, ["first 1", "between", "behind"])


@must("TW-16", "show the last edit")
async def last_edit_is_shown(stage: Stage) -> None:
    """A message is edited twice, and a reaction comes; one edit comes again later, and all of it
    again in a page. The text of the last edit is shown in the place of the message, also in the
    next life. A client that has not offered `entries` shows the first text."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    message = server.say(chat, "frist")
    server.say(chat, "last")
    first = server.truth.amend(chat, EntryKind.EDIT, message, "fisrt")
    second = server.truth.amend(chat, EntryKind.EDIT, message, "first")
    for entry in (second, first, second, server.truth.amend(chat, EntryKind.REACT, message)):
        server.push(entry)
    server.push(message)
    knows_entries = Feature.ENTRIES in server.connection.features
    wanted = ["first 1", "first" if knows_entries else "frist", "last"]
    await stage.shows(chat, wanted)
    await _has_acked_all(stage, chat)
    await stage.shows(chat, wanted)


@must("TW-17", "erase what was deleted")
async def deleted_text_is_erased(stage: Stage) -> None:
    """A message that was edited is deleted while the client is connected, another one while it is
    away. Their texts are shown nowhere any more, also not when pushes from before come again, nor
    in the next life. A client that has not offered `entries` is not told which message it is."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    message, other = server.say(chat, "secret"), server.say(chat, "also secret")
    if Feature.ENTRIES not in server.connection.features:
        await stage.shows(chat)
        return
    edit = server.truth.amend(chat, EntryKind.EDIT, message, "still secret")
    server.push(edit)
    server.say(chat, "last")
    await stage.shows(chat)
    server.push(server.truth.amend(chat, EntryKind.DELETE, message))
    await _shows_no_secret(stage, chat)
    server.push(message)
    server.push(edit)
    server.say(chat, "after")
    await _shows_no_secret(stage, chat)
    await stage.adapter.kill()
    server.truth.amend(chat, EntryKind.DELETE, other)
    before = server.connection.number
    await stage.adapter.restart()
    await stage.reconnected(before)
    await stage.ready()
    await _shows_no_secret(stage, chat)
    await stage.acked(chat, chat.head)


async def _shows_no_secret(stage: Stage, chat: PlayedChat) -> None:
    wanted = [text for text in chat.texts if text]
    await stage.eventually(
        lambda: stage.texts(chat),
        lambda seen: [text for text in seen if text] == wanted,
        lambda seen: f"it shows {seen}, not {wanted}",
    )
