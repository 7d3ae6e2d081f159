"""A message store for tests that does what it is told, when it is told: hold, fail, break."""

import asyncio
from collections.abc import Sequence

import msgspec

from tidewire.domain.errors import KeyReused, MessageNotFound, NotAMember
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import (
    Appended,
    AppendOutcome,
    Message,
    MessagePage,
    SendMessage,
)
from tidewire.ports.storage import AppendDone, MessageStore

OUTSIDER = UserId("user_outsider")


class Call:
    """One append that has arrived at the store and waits for its fate."""

    def __init__(self, store: "FakeStore", sends: list[SendMessage], now_ms: int) -> None:
        self.sends = sends
        self.now_ms = now_ms
        self._store = store
        self.fate: asyncio.Future[list[AppendOutcome]] = asyncio.Future()

    @property
    def contents(self) -> list[str]:
        return [send.content for send in self.sends]

    def commit(self) -> None:
        self.fate.set_result(self._store.store(self.sends, self.now_ms))

    def fail(self, error: Exception) -> None:
        self.fate.set_exception(error)

    def commit_then_fail(self, error: Exception) -> None:
        self._store.store(self.sends, self.now_ms)
        self.fate.set_exception(error)

    def answer(self, outcomes: list[AppendOutcome]) -> None:
        self.fate.set_result(outcomes)


class FakeStore(MessageStore):
    """Keeps messages in a list. While `is_holding`, each append waits as a `Call`."""

    def __init__(self, *, appends_per_chat: bool = False, is_holding: bool = False) -> None:
        self.is_holding = is_holding
        self.calls: list[Call] = []
        self.messages: list[Message] = []
        self.in_flight_count_max = 0
        self._appends_per_chat = appends_per_chat
        self._arrivals: asyncio.Queue[Call] = asyncio.Queue()
        self.poison: str | None = None
        """The content of a message that the store cannot stand."""
        self.moderated: UserId | None = None
        """Whose message everything that is stored deletes."""
        self.refusal: Exception | None = None
        """Why the store takes nothing in."""
        self._chats_in_flight: list[ChatId] = []
        self._in_flight_count = 0
        self._first_by_key: dict[tuple[ChatId, ClientMessageId], Message] = {}

    @property
    def appends_per_chat(self) -> bool:
        return self._appends_per_chat

    @property
    def contents(self) -> list[str]:
        return [message.content for message in self.messages]

    async def arrival(self) -> Call:
        """The next append that arrives, or has arrived and was not asked for."""
        return await self._arrivals.get()

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        if self.refusal is not None:
            raise self.refusal
        chats = sorted({send.chat_id for send in sends})
        if self._appends_per_chat:
            assert len(chats) == 1
            assert chats[0] not in self._chats_in_flight, "two appends to a chat at once"
        else:
            assert self._in_flight_count == 0, "two appends at once"
        keys = {(send.chat_id, send.client_message_id) for send in sends}
        assert len(keys) == len(sends), "a key twice in one append"
        self._in_flight_count += 1
        self.in_flight_count_max = max(self.in_flight_count_max, self._in_flight_count)
        self._chats_in_flight += chats

        def landed(fate: asyncio.Future[list[AppendOutcome]]) -> None:
            self._in_flight_count -= 1
            for chat_id in chats:
                self._chats_in_flight.remove(chat_id)
            error = fate.exception()
            done(error if isinstance(error, Exception) else fate.result())

        call = Call(self, list(sends), now_ms)
        call.fate.add_done_callback(landed)
        self.calls.append(call)
        self._arrivals.put_nowait(call)
        if any(send.content == self.poison for send in sends):
            call.fail(ZeroDivisionError())
        elif not self.is_holding:
            call.commit()

    def store(self, sends: Sequence[SendMessage], now_ms: int) -> list[AppendOutcome]:
        return [self._store_one(send, now_ms) for send in sends]

    def _store_one(self, send: SendMessage, now_ms: int) -> AppendOutcome:
        first = self._first_by_key.get((send.chat_id, send.client_message_id))
        if first is not None and first.sender_id == send.sender_id:
            answer = _answer(first, deduplicated=True)
            return answer if first.content == send.content else KeyReused(answer)
        if send.sender_id == OUTSIDER:
            return NotAMember()
        if first is not None:
            return KeyReused()
        head = max(
            (one.sequence for one in self.messages if one.chat_id == send.chat_id), default=0
        )
        message = Message(
            send.chat_id,
            head + 1,
            head,
            send.message_id,
            send.sender_id,
            send.client_message_id,
            send.content,
            send.content_type,
            now_ms,
            amends=send.amends,
        )
        self.messages.append(message)
        self._first_by_key[send.chat_id, send.client_message_id] = message
        return msgspec.structs.replace(
            _answer(message, deduplicated=False), moderated=self.moderated
        )

    # Ingest reads nothing.

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        raise NotAMember

    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        raise NotAMember

    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        raise MessageNotFound

    async def messages_now(
        self, reader: UserId, chat_id: ChatId, sequences: Sequence[int]
    ) -> dict[int, MessageNow]:
        raise NotAMember

    async def chats_of_author(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        return []

    async def messages_by(
        self, user_id: UserId, chat_id: ChatId, *, after: int, count_max: int
    ) -> list[int]:
        return []


def _answer(message: Message, *, deduplicated: bool) -> Appended:
    return Appended(
        message.message_id,
        message.sequence,
        message.prev_sequence,
        message.created_at_ms,
        deduplicated,
    )


_CONFORMS: type[MessageStore] = FakeStore
