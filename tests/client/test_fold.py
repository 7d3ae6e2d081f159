"""The core and the store together, against the domain's fold: at every split point, whatever comes
first and however often, and after every restart.
"""

from collections.abc import Iterable, Sequence

import hypothesis.strategies as st
from hypothesis import given, settings
from msgspec.structs import replace

from tests.client.test_store_entries import record
from tests.unit.client.stage import (
    CHAT,
    ME,
    THEM,
    Stage,
    deletion,
    digest,
    edit,
    entry_push,
    established,
    item,
    listed,
    page,
    reaction,
)
from tidewire.client.effects import Effect, Keep, Send
from tidewire.client.entries import amendment_of, kind_of
from tidewire.client.model import ChangeRow
from tidewire.client.options import ClientOptions
from tidewire.client.schema import MEMORY, connect
from tidewire.client.tables import Tables
from tidewire.domain.fold import AS_WRITTEN, MessageNow, fold
from tidewire.wire.client_frames import SyncRequestFrame
from tidewire.wire.server_frames import SyncItem


class Truth:
    """A chat's log that is made of choices, and what people should see of any beginning of it."""

    def __init__(self) -> None:
        self.items: list[SyncItem] = []
        self._on: set[tuple[int, str, str]] = set()

    @property
    def head(self) -> int:
        return len(self.items)

    def messages(self) -> list[int]:
        return [one.sequence for one in self.items if one.kind is None]

    def is_deleted(self, target: int) -> bool:
        return any(one.kind == "delete" and one.target == target for one in self.items)

    def add(self, choice: tuple[str, int, bool, int]) -> None:
        """Append an entry, if the rules of the domain let it be."""
        kind, pick, is_mine, which = choice
        sender = ME if is_mine else THEM
        sequence, messages = self.head + 1, self.messages()
        if kind == "message" or not messages:
            reply_to = messages[pick % len(messages)] if messages and which else None
            mentions = (ME,) if which == 2 else ()
            self.items.append(
                item(
                    sequence,
                    sender=sender,
                    content=f"said<{sequence}>",
                    reply_to=reply_to,
                    mentions=mentions,
                )
            )
            return
        if kind == "poll":
            self.items.append(item(sequence, sender=sender, kind="poll", content=""))
            return
        target = messages[pick % len(messages)]
        if self.is_deleted(target):
            return
        if kind == "edit":
            self.items.append(edit(sequence, target, f"said<{sequence}>", sender=sender))
        elif kind == "delete":
            self.items.append(deletion(sequence, target, sender=sender))
            self.items = [self._erased(one, target) for one in self.items]
        else:
            emoji, is_on = "👍🎉"[which % 2], pick % 3 > 0
            mark = (target, emoji, sender)
            (self._on.add if is_on else self._on.discard)(mark)
            count = sum(one[:2] == mark[:2] for one in self._on)
            made = reaction(sequence, target, emoji, count=count, is_on=is_on, sender=sender)
            self.items.append(made)

    def _erased(self, one: SyncItem, target: int) -> SyncItem:
        is_of_it = one.sequence == target or (one.kind == "edit" and one.target == target)
        return replace(one, content="", mentions=(), is_deleted=True) if is_of_it else one

    def now(self, target: int, through: int) -> MessageNow:
        now = AS_WRITTEN
        for one in self.items[:through]:
            made = amendment_of(CHAT, one)
            if made is not None and made.amends is not None and made.amends.target == target:
                now = fold(now, made, ME)
        return now


CHOICES = st.tuples(
    st.sampled_from(["message", "message", "edit", "edit", "delete", "react", "react", "poll"]),
    st.integers(0, 9),
    st.booleans(),
    st.integers(0, 2),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "push", "page", "cut", "restart", "history"]),
        CHOICES,
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=40,
)


class Device:
    """The core with a store in memory. A push is what it was when it was sent: it may say what is
    erased by now."""

    def __init__(self) -> None:
        self.database = connect(MEMORY)
        self.truth = Truth()
        self.pushes: list[SyncItem] = []
        self.early: dict[int, int] = {}
        """Deletions that a page of history told of."""
        self.tables = Tables(self.database)
        self.tables.save_replicas([record()])
        self.tables.set_meta(user_id=ME, epoch="one")
        self.stage = self._stage()
        self.connect()

    def _stage(self) -> Stage:
        options = ClientOptions(page_messages=3, waiting_max=4, unstored_max=6)
        return Stage(options, replicas=self.tables.replicas(), entries=self.tables.entries())

    def connect(self) -> None:
        stage = self.stage
        self.do(stage.core.start(stage.now))
        self.do(stage.core.opened(stage.now))
        self.do(stage.core.receive(established(), stage.now))
        self.do(stage.core.receive(digest(listed(self.truth.head)), stage.now))

    def do(self, effects: Iterable[Effect]) -> None:
        stage = self.stage
        for effect in effects:
            if isinstance(effect, Keep):
                erased = self.tables.keep([effect], ME).get(CHAT, [])
                count = len(effect.items)
                self.do(
                    stage.core.stored(
                        effect.replica, effect.through, count, effect.generation, stage.now
                    )
                )
                self.do(stage.core.erased(effect, erased, stage.now))
            elif isinstance(effect, Send) and isinstance(effect.frame, SyncRequestFrame):
                self.asked = effect.frame

    asked: SyncRequestFrame | None = None

    def answer(self) -> None:
        asked, self.asked = self.asked, None
        if asked is not None:
            after, limit = asked.payload.last_acked_sequence, asked.payload.limit
            above = self.truth.items[after:]
            shown = above[:limit]
            through = shown[-1].sequence if shown else after
            frame = page(asked.request_id, shown, through=through, has_more=len(above) > limit)
            self.do(self.stage.core.receive(frame, self.stage.now))

    def step(self, kind: str, choice: tuple[str, int, bool, int], pick: int) -> None:
        stage = self.stage
        if kind == "write":
            self.truth.add(choice)
            if self.truth.items:
                self.pushes.append(self.truth.items[-1])
        elif kind == "push" and self.pushes:
            made = self.pushes[pick % len(self.pushes)]
            self.do(stage.core.receive(entry_push(made), stage.now))
        elif kind == "page":
            self.answer()
        elif kind == "cut":
            self.asked = None
            self.do(stage.core.lost(stage.now))
            self.connect()
        elif kind == "restart":
            self.asked = None
            self.tables = Tables(self.database)
            self.stage = self._stage()
            self.connect()
        elif kind == "history" and self.truth.messages():
            self.look_back(pick % (self.truth.head + 1))

    def look_back(self, as_of: int) -> None:
        """A page of history of some moment, fresh or stale."""
        messages = [one for one in self.truth.messages() if one <= as_of]
        told = {one: self.truth.now(one, as_of) for one in messages}
        cursor = self.tables.replicas()[0].cursor
        joined, _ = self.tables.join_page(CHAT, told)
        for one in messages:
            if told[one].is_deleted:
                self.early[one] = told[one].deleted_sequence
            assert same(joined[one], self.expected(one, max(as_of, cursor)))

    def expected(self, message: int, through: int) -> MessageNow:
        now = self.truth.now(message, through)
        if message in self.early and not now.is_deleted:
            return MessageNow(deleted_sequence=self.early[message])
        return now

    def check(self) -> None:
        cursor = self.tables.replicas()[0].cursor
        rows = self.tables.messages(CHAT, before=None, after=0, limit=1_000, newest_first=False)
        shown = [one for one in self.truth.items[:cursor] if one.kind is None]
        assert [row.sequence for row in rows] == [one.sequence for one in shown]
        file = self.database.serialize("main")
        for row in rows:
            now = self.expected(row.sequence, cursor)
            assert same(row.now, now), (row.sequence, cursor)
            if now.is_deleted:
                assert row.is_erased
                for one in self.truth.items:
                    if one.sequence == row.sequence or one.target == row.sequence:
                        assert f"said<{one.sequence}>".encode() not in file
        others = [one for one in self.truth.items if one.kind is None and one.sender_id != ME]
        alive = [
            one.sequence
            for one in others[:]
            if one.sequence <= cursor
            and not self.expected(one.sequence, cursor).is_deleted
            # What the server had erased when it was fetched is a tombstone from the beginning.
            and not self.tables.at(CHAT, [one.sequence])[one.sequence].is_erased
        ]
        assert self.tables.count_unread(CHAT, 0)[0] == len(alive)

    def finish(self) -> None:
        self.step("cut", ("message", 0, False, 0), 0)
        for _ in range(200):
            if self.asked is None:
                break
            self.answer()


def same(one: MessageNow, other: MessageNow) -> bool:
    """All but the sample of users, of which a page may have others. A push that was sent before the
    text was erased has it, until the deletion has come."""
    if None in (one.content, other.content):
        one, other = replace(one, content=None), replace(other, content=None)
    return _without_users(one) == _without_users(other)


def _without_users(now: MessageNow) -> MessageNow:
    return replace(now, reactions=tuple(replace(one, users=()) for one in now.reactions))


@settings(max_examples=150, deadline=None, print_blob=True)
@given(STEPS)
def test_device_shows_what_the_domain_folds_at_every_split_point(
    steps: Sequence[tuple[str, tuple[str, int, bool, int], int]],
) -> None:
    device = Device()
    for step in steps:
        device.step(*step)
        device.check()
    device.finish()
    device.check()
    truth = device.truth
    assert device.tables.replicas()[0].cursor == truth.head
    rows = device.tables.messages(CHAT, before=None, after=0, limit=1_000, newest_first=False)
    for row in rows:
        assert same(row.now, truth.now(row.sequence, truth.head))
        assert row.is_erased == truth.items[row.sequence - 1].is_deleted
    # The events tell one change for each entry that is known, and lead to the same.
    latest: dict[int, MessageNow] = {}
    for event in device.tables.next_events(0, 10_000)[0]:
        if isinstance(event, ChangeRow):
            assert kind_of(truth.items[event.entry.sequence - 1]) is not None
            latest[event.entry.target or 0] = event.after
    for target, now in latest.items():
        assert same(now, truth.now(target, truth.head))
