"""Edits, deletions and reactions of one person, and their expected results. Holds no test.

A text is "person-number". Authors delete only messages of odd numbers, and people react only to
those of even ones, so no change is ever refused.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from tidewire.client import Chat, Client, EntryKind, RefusedByServer, Sent, ServerUnreachable
from tidewire.wire.rest_models import Envelope, MessageView

EMOJI: Final = ("👍", "🎉")
KINDS: Final = {3: EntryKind.EDIT, 5: EntryKind.REACT, 7: EntryKind.DELETE}
"""What a person does in each of eight turns; in the others a message is sent."""

Place = tuple[str, int]
"""A message: its chat and its sequence."""


class Changing:
    def __init__(self, number: int, client: Client) -> None:
        self.sent: list[Sent] = []
        """All changes."""
        self.texts: dict[Place, str] = {}
        """The expected texts of own messages that are changed; empty: deleted."""
        self.marks: dict[Place, bool] = {}
        """Whether this person's emoji is on a message."""
        self.emoji = EMOJI[number % len(EMOJI)]
        self.reactable: dict[str, list[int]] = {}
        """By chat: messages that are never deleted, in the order in which they arrive."""
        self.faults: list[str] = []
        self._client = client
        self._last: dict[Place, Sent] = {}
        """The last change of a message by this person."""
        self._look: asyncio.Task[None] | None = None

    def has_heard(self, chat_id: str, sequence: int, text: str) -> None:
        if text and not _number(text) % 2:
            self.reactable.setdefault(chat_id, []).append(sequence)

    async def change(self, turn: int, chat: Chat, own: Sequence[Sent]) -> bool:
        """Make the change of this turn; False: it is the turn of a message, or there is nothing to
        change."""
        match KINDS.get(turn % 8):
            case EntryKind.EDIT:
                return await self._edit(chat, own)
            case EntryKind.REACT:
                return await self._react(chat)
            case EntryKind.DELETE:
                return await self._delete(chat, own)
            case _:
                return False

    async def _edit(self, chat: Chat, own: Sequence[Sent]) -> bool:
        for one in reversed(own):
            place = _place(one)
            if one.chat_id == chat.chat_id and place is not None and place not in self.texts:
                self.texts[place] = f"{one.text}-edited"
                self._sent(place, await chat.edit(place[1], self.texts[place]))
                return True
        return False

    async def _react(self, chat: Chat) -> bool:
        for sequence in reversed(self.reactable.get(chat.chat_id, [])[-3:]):
            place = (chat.chat_id, sequence)
            if not self._is_settled(place):
                continue
            is_on = self.marks[place] = not self.marks.get(place, False)
            act = chat.react if is_on else chat.unreact
            self._sent(place, await act(sequence, self.emoji))
            return True
        return False

    async def _delete(self, chat: Chat, own: Sequence[Sent]) -> bool:
        for one in reversed(own):
            place = _place(one)
            if one.chat_id != chat.chat_id or place is None or not _number(one.text) % 2:
                continue
            if self.texts.get(place) == "" or not self._is_settled(place):
                continue
            self.texts[place] = ""
            deletion = await chat.delete(place[1])
            self._sent(place, deletion)
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_for(place, deletion))
            return True
        return False

    def _sent(self, place: Place, sent: Sent) -> None:
        self.sent.append(sent)
        self._last[place] = sent

    def _is_settled(self, place: Place) -> bool:
        """False for a change that still waits in the outbox: another would change it in place."""
        last = self._last.get(place)
        return last is None or last.sequence is not None

    async def _look_for(self, place: Place, deletion: Sent) -> None:
        """Read the message, at any gateway, once its deletion is acknowledged."""
        await deletion.stored()
        path = f"/chats/{place[0]}/messages/{place[1]}"
        while True:
            try:
                view = (await self._client.rest.call(Envelope[MessageView], "GET", path)).data
            except (RefusedByServer, ServerUnreachable):
                # The tests cause faults, so a failed read is tried again.
                await asyncio.sleep(0.2)
                continue
            if view.content or not view.is_deleted:
                self.faults.append(f"{place} was read after its deletion: {view}")
            return

    async def settle(self) -> None:
        """Wait until every change is acknowledged, and the last read after a deletion is done."""
        for sent in self.sent:
            await sent.stored()
        if self._look is not None:
            await self._look

    def stop(self) -> None:
        if self._look is not None:
            self._look.cancel()


def _place(sent: Sent) -> Place | None:
    return None if sent.sequence is None else (sent.chat_id, sent.sequence)


def _number(text: str) -> int:
    return int(text.split("-")[1])


def reactions_of(people: Sequence[Changing], place: Place) -> dict[str, int]:
    """By emoji: how many people have it on a message."""
    on = [one.emoji for one in people if one.marks.get(place)]
    return {emoji: on.count(emoji) for emoji in sorted(set(on))}
