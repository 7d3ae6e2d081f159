"""kill -9 of the whole server while people talk, again and again. Slow: ten lives of a server.

What was acknowledged is there once, clients are complete after they synced, and no number that
anybody was shown was too high.
"""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.e2e.chatting import RISING, Account, Frame, HungUp, Phone, Site, new_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

ROUNDS = 10
UNDER_WAY_MAX = 8
"""Messages of one person that wait for their acks."""


class Talker:
    """Somebody whose device remembers everything across the server's deaths."""

    def __init__(self, account: Account, chats: list[str]) -> None:
        self.account = account
        self.chats = chats
        self.kept: dict[str, dict[int, Frame]] = {chat_id: {} for chat_id in chats}
        """Per chat and sequence: pushed, synced, or one's own."""
        self.cursors = dict.fromkeys(chats, 0)
        """Up to where a chat is complete here."""
        self.unacked: dict[str, tuple[str, str]] = {}
        self.acked: dict[str, tuple[str, int]] = {}
        self.shown: dict[str, dict[str, int]] = {chat_id: {} for chat_id in chats}
        self.faults: list[str] = []
        self.phone: Phone | None = None
        self._count = 0
        self._room = asyncio.Event()

    # Living.

    def attach(self, phone: Phone) -> None:
        self.phone = phone
        phone.on_frame = self._frame
        self._room.set()

    def _frame(self, frame: Frame) -> None:
        assert self.phone is not None
        payload = frame["payload"]
        match frame["type"]:
            case "message":
                self._keep(payload["chat_id"], payload)
            case "send_message_ack":
                self._acked(payload)
            case "error":
                self.faults.append(f"{self.account.username} got {payload}")
            case "status_update":
                self.remember(self.phone)
            case _:
                pass
        if frame["type"] in ("message", "send_message_ack", "status_update"):
            self.phone.inbox.remove(frame)

    def remember(self, phone: Phone) -> None:
        for chat_id in self.chats:
            shown = self.shown[chat_id]
            for name, value in phone.shown[chat_id].items():
                shown[name] = max(shown.get(name, 0), value)

    def _keep(self, chat_id: str, message: Frame) -> None:
        before = self.kept[chat_id].setdefault(message["sequence"], message)
        if before["message_id"] != message["message_id"]:
            self.faults.append(f"sequence {message['sequence']} was two messages in {chat_id}")
        if message["prev_sequence"] == self.cursors[chat_id]:
            self.cursors[chat_id] = message["sequence"]

    def _acked(self, ack: Frame) -> None:
        key, sequence = ack["client_message_id"], ack["sequence"]
        chat_id, _ = self.unacked.pop(key, (ack["chat_id"], ""))
        if self.acked.setdefault(key, (chat_id, sequence)) != (chat_id, sequence):
            self.faults.append(f"{key} was acked as {self.acked[key]} and as {sequence}")
        if ack["prev_sequence"] == self.cursors[chat_id]:
            self.cursors[chat_id] = sequence
        self._room.set()

    async def talk(self, generator: random.Random) -> None:
        """Write, acknowledge and read until the server dies."""
        phone = self.phone
        assert phone is not None
        while not phone.is_over:
            while len(self.unacked) >= UNDER_WAY_MAX and not phone.is_over:
                self._room.clear()
                await self._room.wait()
            self._count += 1
            chat_id = generator.choice(self.chats)
            key = new_key()
            self.unacked[key] = chat_id, f"{self.account.username} {self._count}"
            await self._send(phone, key)
            cursor = self.cursors[chat_id]
            if cursor and generator.random() < 0.5:
                await (phone.read if generator.random() < 0.5 else phone.ack)(chat_id, cursor)

    async def _send(self, phone: Phone, key: str) -> None:
        chat_id, content = self.unacked[key]
        payload = {"chat_id": chat_id, "client_message_id": key, "content": content}
        await phone.post("send_message", payload, key)

    def wake(self) -> None:
        self._room.set()

    # Coming back.

    def check_digest(self, phone: Phone) -> None:
        """Nothing that was shown before the kill was more than what is true after it."""
        for chat_id in self.chats:
            now = phone.shown[chat_id]
            for name in RISING:
                told = self.shown[chat_id].get(name, 0)
                if told > now[name]:
                    self.faults.append(
                        f"{self.account.username} was shown {name} {told}, now it is {now[name]}"
                    )
            if self.kept[chat_id] and max(self.kept[chat_id]) > now["head"]:
                self.faults.append(f"{self.account.username} has more of {chat_id} than there is")

    async def retry(self, phone: Phone) -> None:
        for key in list(self.unacked):
            await self._send(phone, key)
        await phone.until(lambda: not self.unacked or bool(self.faults))

    async def catch_up(self, phone: Phone) -> None:
        for chat_id in self.chats:
            for message in await phone.sync(chat_id, self.cursors[chat_id]):
                self._keep(chat_id, message)

    def check_against(self, history: dict[str, list[Frame]]) -> None:
        """Hold what this device has and was promised against what the server has stored."""
        for chat_id in self.chats:
            stored = {m["sequence"]: m["message_id"] for m in history[chat_id]}
            have = {s: m["message_id"] for s, m in self.kept[chat_id].items()}
            own = {sequence for chat, sequence in self.acked.values() if chat == chat_id}
            if not have.items() <= stored.items():
                self.faults.append(f"{self.account.username} was shown what was not stored")
            if stored.keys() - have.keys() - own:
                self.faults.append(f"{self.account.username} is not complete after sync")
        keys = {m["client_message_id"]: m["sequence"] for c in self.chats for m in history[c]}
        for key, (_, sequence) in self.acked.items():
            if keys.get(key) != sequence:
                self.faults.append(f"{key}, acked as {sequence}, is {keys.get(key)}")


def check_history(history: dict[str, list[Frame]]) -> list[str]:
    faults = []
    for chat_id, messages in history.items():
        cursor = 0
        for message in messages:
            if message["prev_sequence"] != cursor or message["sequence"] <= cursor:
                faults.append(f"{chat_id} has no order at {message['sequence']}")
            cursor = message["sequence"]
        keys = Counter(message["client_message_id"] for message in messages)
        faults += [f"{key} is stored {count} times" for key, count in keys.items() if count > 1]
    return faults


async def talk_until_killed(site: Site, talkers: list[Talker], generator: random.Random) -> None:
    tasks = [asyncio.create_task(one.talk(random.Random(generator.random()))) for one in talkers]
    acks_before = sum(len(one.acked) for one in talkers)
    wanted = generator.randrange(20, 400)
    first = talkers[0].phone
    assert first is not None
    await first.until(lambda: sum(len(one.acked) for one in talkers) >= acks_before + wanted)
    await asyncio.to_thread(site.kill)
    for one in talkers:
        assert one.phone is not None
        await one.phone.closed()
        one.remember(one.phone)
        one.wake()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(end is None or isinstance(end, ConnectionClosed) for end in ends), ends


async def come_back(talkers: list[Talker], phones: list[Phone]) -> dict[str, list[Frame]]:
    """Everybody checks the digest, sends again what was not acked, and syncs; the history."""
    for one, phone in zip(talkers, phones, strict=True):
        one.check_digest(phone)
        one.attach(phone)
    for one, phone in zip(talkers, phones, strict=True):
        await one.retry(phone)
    for one, phone in zip(talkers, phones, strict=True):
        await one.catch_up(phone)
    history: dict[str, list[Frame]] = {}
    for one, phone in zip(talkers, phones, strict=True):
        for chat_id in one.chats:
            if chat_id not in history:
                history[chat_id] = await phone.sync(chat_id)
    return history


async def test_kill_under_load_ten_times_on_one_data_directory(tmp_path: Path) -> None:
    generator = random.Random(20261115)
    with Site(tmp_path, fanout__status_interval_ms=20) as site:
        accounts = await site.people("ann", "bob", "cleo", "dan")
        ann, bob, cleo, dan = accounts
        group = await site.group(ann, bob, cleo, dan)
        pairs = {await site.direct(ann, bob): (ann, bob), await site.direct(cleo, dan): (cleo, dan)}
        talkers = [
            Talker(one, [group, *(chat_id for chat_id, pair in pairs.items() if one in pair)])
            for one in accounts
        ]
        acked = 0
        for number in range(ROUNDS + 1):
            async with AsyncExitStack() as stack:
                phones = [
                    await stack.enter_async_context(site.phone(one.account)) for one in talkers
                ]
                history = await come_back(talkers, phones)
                for one in talkers:
                    one.check_against(history)
                faults = [fault for one in talkers for fault in one.faults]
                assert faults + check_history(history) == [], f"after kill {number}"
                stored = sum(len(messages) for messages in history.values())
                assert stored == sum(len(one.acked) for one in talkers) >= acked
                acked = stored
                if number < ROUNDS:
                    await talk_until_killed(site, talkers, generator)
            if number < ROUNDS:
                await asyncio.to_thread(site.start)
        assert acked > 20 * ROUNDS
        assert any(one.shown[group].get("others_read", 0) > 0 for one in talkers)
        assert site.complaints() == []


async def test_waiting_on_a_server_that_was_killed_ends(tmp_path: Path) -> None:
    """What the test above relies on: a client learns at once that the server is gone."""
    with Site(tmp_path) as site:
        ann = await site.person("ann")
        async with site.phone(ann) as phone:
            await asyncio.to_thread(site.kill)
            with pytest.raises(HungUp):
                await phone.get("message")
