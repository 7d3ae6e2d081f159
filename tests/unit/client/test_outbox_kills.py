"""The outbox, its disk, which is always late, and a process that is killed at any instant."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from tests.unit.client.stage import CHAT, WALL_MS, amending, entry, key
from tests.unit.client.test_outbox import NOW_MS, outbox, taken
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Outbox, OutboxEntry
from tidewire.domain.ids import ClientMessageId
from tidewire.domain.messages import EntryKind


def drop(box: Outbox) -> list[OutboxEntry]:
    box.stored(key(1), 1)
    return box.drop(key(2))


def erase(box: Outbox) -> list[OutboxEntry]:
    box.stored(key(1), 1)
    return box.erased(CHAT, 7)


def refuse(box: Outbox) -> list[OutboxEntry]:
    refused = box.refused(key(1), "FORBIDDEN", "no", retry_after_ms=0, now_ms=NOW_MS)
    assert refused is not None
    return [refused.entry, *refused.dropped]


@pytest.mark.parametrize("end", [drop, erase, refuse])
def test_nothing_leaves_before_the_disk_has_how_an_earlier_one_has_ended(
    end: Callable[[Outbox], list[OutboxEntry]],
) -> None:
    """Else a process that is killed meanwhile sends the earlier one again, after the later one."""
    second = entry(2) if end is drop else amending(2, EntryKind.EDIT, 7)
    box = outbox(entry(1))
    for one in (second, entry(3)):
        box.add(one)
    assert taken(box) == [1]
    ended = end(box)
    assert len(ended) == 1
    assert taken(box) == []
    box.add(entry(4))
    assert taken(box) == [], "it is on the disk, but so is the one that has ended"
    box.saved(ended)
    assert taken(box) == ([2] if end is refuse else [3])


def test_connection_that_is_lost_does_not_open_a_chat_for_which_the_disk_is_late() -> None:
    box = outbox(entry(1), entry(2, left_at_ms=None), entry(3, left_at_ms=None))
    assert taken(box) == [1]
    dropped = box.drop(key(2))
    box.lost()
    box.stored(key(1), 1)
    box.release(CHAT)
    assert taken(box) == []
    box.saved(dropped)
    assert taken(box) == [3]


class Device:
    """An outbox and its disk, which does one thing after the other, when it is told to."""

    def __init__(self) -> None:
        self.disk: dict[ClientMessageId, OutboxEntry] = {}
        self.jobs: deque[tuple[Callable[[], object], Callable[[], None]]] = deque()
        self.flying: deque[OutboxEntry] = deque()
        self.server: list[ClientMessageId] = []
        self.written = 0
        self.start()

    def start(self) -> None:
        """After a kill, too: what the server has, a sync brings before anything leaves."""
        self.jobs.clear()
        self.flying.clear()
        entries = sorted((replace(one) for one in self.disk.values()), key=lambda one: one.number)
        self.box = Outbox(ClientOptions(), Random(1), entries)
        for sent in self.server:
            self.arrived(sent)
        self.box.release(CHAT)

    def arrived(self, sent: ClientMessageId) -> None:
        if self.box.stored(sent, 1) is not None:
            self.job(lambda: self.disk.pop(sent, None))

    def job(self, write: Callable[[], object], then: Callable[[], None] = lambda: None) -> None:
        self.jobs.append((write, then))

    def work(self) -> None:
        if self.jobs:
            write, then = self.jobs.popleft()
            write()
            then()

    def save(self, entries: Iterable[OutboxEntry]) -> None:
        for one in entries:
            self.disk[one.client_message_id] = replace(one)

    def write(self, *, is_ready: bool) -> None:
        self.written += 1
        one = entry(self.written, left_at_ms=WALL_MS if is_ready else None)

        def enter() -> None:
            self.box.add(one)
            self.box.release(CHAT)

        self.job(lambda: self.save([one]), enter)

    def take(self) -> None:
        leaving, _ = self.box.take(NOW_MS, WALL_MS)
        self.flying.extend(one for one in leaving if one.left_at_ms is not None)
        unmarked = [one for one in leaving if one.left_at_ms is None]

        def mark() -> None:
            for one in unmarked:
                self.disk[one.client_message_id].left_at_ms = WALL_MS

        if unmarked:
            self.job(mark, lambda: self.flying.extend(self.box.marked(unmarked, WALL_MS)))

    def arrive(self) -> None:
        """The server stores one; its answer is still to come."""
        waiting = [one for one in self.flying if one.client_message_id not in self.server]
        if waiting:
            self.server.append(waiting[0].client_message_id)

    def answer(self, *, is_refused: bool) -> None:
        if not self.flying:
            return
        one = self.flying.popleft()
        sent = one.client_message_id
        if sent in self.server or not is_refused:
            if sent not in self.server:
                self.server.append(sent)
            self.arrived(sent)
            return
        refused = self.box.refused(sent, "FORBIDDEN", "no", retry_after_ms=0, now_ms=NOW_MS)
        assert refused is not None
        ended = refused.entry
        self.job(lambda: self.save([ended]), lambda: self.box.saved([ended]))

    def drop(self) -> None:
        found = (self.box.drop(one.client_message_id) for one in self.box.entries())
        dropped = next((gone for gone in found if gone), None)
        if dropped is not None:
            key_of = dropped[0].client_message_id
            self.job(lambda: self.disk.pop(key_of, None), lambda: self.box.saved(dropped))

    def rewrite(self) -> None:
        found = (self.box.rewrite(one.client_message_id, "x") for one in self.box.entries())
        changed = next((one for one in found if one is not None), None)
        if changed is not None:
            self.job(lambda: self.save([changed]))


STEPS = ["write", "write-offline", "take", "arrive", "answer", "refuse", "drop", "rewrite"]


@settings(max_examples=400)
@given(steps=st.lists(st.sampled_from([*STEPS, "work", "work", "work", "kill"]), max_size=60))
def test_order_of_writing_survives_every_kill(steps: list[str]) -> None:
    device = Device()
    for step in steps:
        match step:
            case "write" | "write-offline":
                device.write(is_ready=step == "write")
            case "answer" | "refuse":
                device.answer(is_refused=step == "refuse")
            case "kill":
                device.start()
            case _:
                getattr(device, step)()
    device.start()
    for _ in range(4 * device.written + 4):
        device.take()
        device.answer(is_refused=False)
        device.work()
    assert device.server == sorted(device.server)
    assert len(set(device.server)) == len(device.server)
    assert device.box.waiting_chats() == []
