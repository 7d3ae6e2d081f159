"""MS-01 to MS-07 and TW-01: how a client sends."""

import re
from typing import TYPE_CHECKING, Final

from tidewire_conformance.adapter import SendRefused
from tidewire_conformance.connection import Heard
from tidewire_conformance.registry import must, should
from tidewire_conformance.stage import Stage
from tidewire_conformance.truth import PlayedChat

if TYPE_CHECKING:
    from collections.abc import Callable

UUID4: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)


def key_of(heard: Heard) -> str:
    return str(heard.payload.get("client_message_id"))


async def stored(stage: Stage, chat: PlayedChat, *texts: str) -> None:
    """Wait until the server has these texts."""
    await stage.until(
        lambda: all(text in chat.texts for text in texts),
        f"not all of {list(texts)} reached the server",
    )


@must("MS-01", "UUIDv4 `client_message_id` per logical message")
async def each_message_has_an_id(stage: Stage) -> None:
    """Three texts are sent, two of them equal; each has a `client_message_id` of its own, of the
    form of a UUIDv4."""
    (chat,) = await stage.begin()
    for text in ("hello", "hello", "you"):
        await stage.adapter.send(chat.chat_id, text)
    await stage.until(lambda: len(chat.messages) == 3, "three texts are not three messages")
    keys = [key_of(heard) for heard in stage.server.of("send_message")]
    for key in keys:
        stage.expect(UUID4.fullmatch(key) is not None, f"{key!r} is no UUIDv4")
    stage.expect(len(set(keys)) == 3, "texts share an id")


@must("MS-02", "same id on retry")
async def retries_keep_the_id(stage: Stage) -> None:
    """The connection is cut at every point of a send: when it arrives, when it is stored, in the
    middle of its ack, after its ack; and once it is answered with a temporary error. However
    often a text comes, it comes under one id, and in the end it is stored and shown once."""
    server = stage.server
    (chat,) = await stage.begin()
    done: set[str] = set()

    def cut_at_arrival(heard: Heard) -> None:
        heard.connection.cut()

    def cut_when_stored(heard: Heard) -> None:
        server.store(heard)
        heard.connection.cut()

    def cut_in_the_ack(heard: Heard) -> None:
        heard.connection.send_part_of(server.ack_frame(heard, server.store(heard)))

    def cut_after_the_ack(heard: Heard) -> None:
        server.answer(heard, server.store(heard))
        heard.connection.close(1012)

    def pass_by(heard: Heard) -> None:
        server.error(heard, "SERVER_BUSY")

    faults: dict[str, Callable[[Heard], None]] = {
        "at arrival": cut_at_arrival,
        "when stored": cut_when_stored,
        "in the ack": cut_in_the_ack,
        "after the ack": cut_after_the_ack,
        "refused for now": pass_by,
    }

    def rule(heard: Heard) -> bool | None:
        text = str(heard.payload["content"])
        if text in done or text not in faults:
            return False
        done.add(text)
        faults[text](heard)
        return None

    server.rules["send_message"] = rule
    for text in faults:
        await stage.adapter.send(chat.chat_id, text)
        await stored(stage, chat, text)
        await stage.ready()
    await stage.shows(chat, list(faults))
    for text in faults:
        keys = {key_of(heard) for heard in server.sends(text)}
        stage.expect(len(keys) == 1, f"{text!r} was sent under {len(keys)} ids")
        stage.expect(chat.texts.count(text) == 1, f"{text!r} is stored more than once")


@must("MS-03", "unique `request_id` on send and sync")
async def requests_have_ids_of_their_own(stage: Stage) -> None:
    """Many texts are sent and several gaps are closed on one connection; every `send_message` and
    `sync_request` has a `request_id` that no other of them has."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    for number in range(12):
        await stage.adapter.send(chat.chat_id, f"text {number}")
        await stored(stage, chat, f"text {number}")
        if number % 4 == 0:
            server.say(chat, f"lost {number}", push=False)
            server.say(chat, f"seen {number}")
    await stage.ready()
    requests = server.of("send_message", "sync_request", connection=server.connection)
    ids = [heard.request_id for heard in requests]
    stage.expect(all(ids), "a request has no id")
    doubled = sorted({str(one) for one in ids if ids.count(one) > 1})
    stage.expect(not doubled, f"request_id {doubled} was used again on the same connection")


@must("MS-04", "persist id until send ack")
async def ids_survive_the_process(stage: Stage) -> None:
    """The client is killed when two sends have left and none was answered: the server has stored
    one of them. The next life sends the other one under the same id, and finds that the first is
    stored; each is stored once, and shown once."""
    server = stage.server
    lost, kept = await stage.begin(chats=2)

    def swallow(heard: Heard) -> None:
        if heard.payload["chat_id"] == kept.chat_id:
            server.store(heard)

    server.rules["send_message"] = swallow
    await stage.adapter.send(lost.chat_id, "not stored")
    await stage.adapter.send(kept.chat_id, "stored")
    await stage.until(lambda: len(server.of("send_message")) == 2, "it was not sent")
    await stage.adapter.kill()
    server.rules.clear()
    await stage.adapter.restart()
    await stored(stage, lost, "not stored")
    await stage.ready()
    for chat, text in ((lost, "not stored"), (kept, "stored")):
        await stage.shows(chat, [text])
        keys = {key_of(heard) for heard in server.sends(text)}
        stage.expect(len(keys) == 1, "the next life sent it under another id")
        stage.expect(len(chat.messages) == 1, f"stored are {chat.texts}")


@must("MS-05", "never reuse id")
async def ids_are_used_once(stage: Stage) -> None:
    """Texts are sent in two lives of the client, equal ones among them; none has the id of
    another."""
    (chat,) = await stage.begin()
    for text in ("one", "two", "one"):
        await stage.adapter.send(chat.chat_id, text)
    await stage.until(lambda: len(chat.messages) == 3, "not all texts reached the server")
    await stage.ready()
    await stage.relive(is_clean=True)
    await stage.ready()
    for text in ("three", "one"):
        await stage.adapter.send(chat.chat_id, text)
    await stage.until(
        lambda: len(chat.messages) == 5,
        "a text of the second life did not become a message of its own",
    )
    keys = [message.client_message_id for message in chat.messages]
    stage.expect(len(set(keys)) == 5, "an id was used for two messages")


@must("MS-06", "1–4096 bytes checked locally")
async def sizes_are_checked_here(stage: Stage) -> None:
    """An empty text, one of 4097 bytes and one of 4098 bytes in 2049 letters are refused by the
    client and never sent; 4096 bytes are sent, in 4096 letters or in 2048."""
    server = stage.server
    (chat,) = await stage.begin()
    for text in ("", "x" * 4097, "é" * 2049):
        try:
            await stage.adapter.send(chat.chat_id, text)
        except SendRefused:
            continue
        stage.fail(f"it took a text of {len(text.encode())} bytes")
    await stage.quiet(0.2)
    stage.expect(not server.of("send_message"), "it sent a text of a size that is not allowed")
    for text in ("x" * 4096, "é" * 2048):
        await stage.adapter.send(chat.chat_id, text)
        await stored(stage, chat, text)


@should("MS-07", "buffer sends while connecting/syncing")
async def sends_wait(stage: Stage) -> None:
    """The user sends a text while the client waits for the introduction and another one while it
    waits for the digest; both are taken, and sent afterwards, in this order."""
    server = stage.server
    (chat,) = await stage.begin(messages=1)
    server.hold("connection_established", "chat_digest")
    server.connection.cut()
    await stage.until(lambda: len(server.connections) == 2, "it did not come back")
    await server.connection.barrier(stage.patience_s)
    await stage.adapter.send(chat.chat_id, "while connecting")
    server.release("connection_established")
    await server.connection.barrier(stage.patience_s)
    await stage.adapter.send(chat.chat_id, "while syncing")
    server.release("chat_digest")
    await stored(stage, chat, "while connecting", "while syncing")
    await stage.shows(chat, ["first 1", "while connecting", "while syncing"])


class OrderKept:
    """Refuses like a server that keeps the order of a connection's sends to a chat."""

    def __init__(self, stage: Stage, code: str, text: str, *, times: int) -> None:
        """`text` is refused this many times with the code, and so is what is sent after it."""
        self._server = stage.server
        self._code = code
        self._text = text
        self._times_left = times
        self._key: str | None = None
        self.is_waiting = False
        """The refusals wait until `refuse` is called."""
        self.held: list[Heard] = []

    def __call__(self, heard: Heard) -> bool:
        key = key_of(heard).lower()
        if key == self._key or heard.payload.get("is_first") is True:
            self._key = None
        if self._key is None:
            if heard.payload["content"] != self._text or not self._times_left:
                return False
            self._times_left -= 1
            self._key = key
        self.held.append(heard)
        if not self.is_waiting:
            self.refuse()
        return True

    def refuse(self) -> None:
        self.is_waiting = False
        for heard in self.held:
            if key_of(heard).lower() == self._key:
                self._server.error(heard, self._code)
            else:
                self._server.error(heard, self._code, after=self._key)
        self.held.clear()


@must("TW-01", "resend in order, or say `is_first`")
async def the_order_is_kept(stage: Stage) -> None:
    """The first of three texts is refused for now, which takes the later ones of the connection and
    the chat along (`details.after`). Once the client knows of it, it sends the refused one again
    before the others, and all are stored in the order of writing. In another chat a text gets
    INTERNAL_ERROR until it is given up, ten times at most: what was written after it arrives."""
    server = stage.server
    first, second = await stage.begin(chats=2)
    order = server.rules["send_message"] = OrderKept(stage, "SERVER_BUSY", "one", times=1)
    order.is_waiting = True
    for text in ("one", "two", "three"):
        await stage.adapter.send(first.chat_id, text)
    await stage.until(lambda: bool(order.held), "it was not sent")
    await server.connection.barrier(stage.patience_s)
    before = len(server.of("send_message", chat=first))
    order.refuse()
    await server.connection.barrier(stage.patience_s)
    known_at = server.now()
    await stage.until(lambda: len(first.messages) == 3, "not all texts reached the server")
    stage.expect(first.texts == ["one", "two", "three"], f"they are stored as {first.texts}")
    for heard in server.of("send_message", chat=first)[before:]:
        text = str(heard.payload["content"])
        if text == "one":
            break
        # Sends that had left before the client could know are allowed.
        stage.expect(heard.at <= known_at, f"'one' was refused, and {text!r} was sent next")
    server.rules["send_message"] = OrderKept(stage, "INTERNAL_ERROR", "broken", times=10)
    for text in ("broken", "later"):
        await stage.adapter.send(second.chat_id, text)
    await stored(stage, second, "later")
