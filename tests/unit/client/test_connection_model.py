"""The core against a server that loses, doubles and delays frames, cuts, and refuses.

Whatever happens, what goes to the disk is a prefix of the chat without a hole, each message once;
nothing is acknowledged that is not on the disk; and each own message is at the server at most once,
in the order of writing. When the faults end, the disk holds exactly what the server has.
"""

from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.client.stage import (
    CHAT,
    ME,
    THEM,
    Stage,
    digest,
    entry,
    error,
    established,
    item,
    listed,
    page,
    push,
    send_ack,
)
from tidewire.client.acks import OWN_LATER
from tidewire.client.effects import ConnectionState, Effect, Keep, Mark, Send
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import FAILED, OutboxEntry
from tidewire.client.replica import ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.wire.client_frames import (
    AckFrame,
    ClientFrame,
    DigestRequestFrame,
    ReadFrame,
    SendMessageFrame,
    SyncRequestFrame,
)
from tidewire.wire.server_frames import ServerFrame, SyncItem

if TYPE_CHECKING:
    from tidewire.domain.ids import ClientMessageId

OPTIONS = ClientOptions(page_messages=3, waiting_max=4, unstored_max=6)
PICKS = st.integers(0, 7)


class Server:
    """Messages of one chat, and answers."""

    def __init__(self) -> None:
        self.messages: list[SyncItem] = []
        self.keys: dict[ClientMessageId, SyncItem] = {}

    @property
    def head(self) -> int:
        return self.messages[-1].sequence if self.messages else 0

    def append(self, gap: int, **fields: object) -> SyncItem:
        made = item(self.head + 1 + gap, self.head, **fields)  # type: ignore[arg-type]
        self.messages.append(made)
        self.keys[made.client_message_id] = made
        return made

    def answer(self, frame: ClientFrame) -> ServerFrame | None:
        match frame:
            case SendMessageFrame():
                wanted = frame.payload
                known = self.keys.get(wanted.client_message_id)
                stored = known or self.append(
                    0, sender=ME, client_message_id=wanted.client_message_id
                )
                return send_ack(
                    frame,
                    stored.sequence,
                    stored.prev_sequence,
                    deduplicated=known is not None,
                )
            case SyncRequestFrame():
                after, limit = frame.payload.last_acked_sequence, frame.payload.limit
                if after > self.head:
                    return error("CURSOR_AHEAD", frame.request_id, head=self.head)
                above = [one for one in self.messages if one.sequence > after]
                shown = above[:limit]
                through = shown[-1].sequence if shown else after
                return page(frame.request_id, shown, through=through, has_more=len(above) > limit)
            case DigestRequestFrame():
                return digest(listed(self.head), request_id=frame.request_id)
            case _:
                return None


class ClientMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        record = ReplicaRecord(chat_id=CHAT, chat_type=ChatType.DIRECT)
        self.stage = Stage(OPTIONS, replicas=[record], stores=False)
        self.to_server: list[ClientFrame] = []
        self.to_client: list[ServerFrame] = []
        self.disk: list[Keep | Mark] = []
        self.stored: list[int] = []
        self.acked = 0
        self.written = 0
        self.is_faulty = True
        self.connect()

    def note(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Keep | Mark):
                self.disk.append(effect)
            elif isinstance(effect, Send):
                self.to_server.append(effect.frame)
                if isinstance(effect.frame, AckFrame):
                    self.acked = max(self.acked, effect.frame.payload.last_acked_sequence)
                assert not isinstance(effect.frame, ReadFrame)

    def connect(self) -> None:
        stage = self.stage
        if stage.core.status.state is ConnectionState.OFFLINE:
            self.note(stage.did(stage.core.start(stage.now)))
        if stage.core.status.state is ConnectionState.CONNECTING:
            self.to_server.clear()
            self.to_client.clear()
            self.note(stage.did(stage.core.opened(stage.now)))
            self.note(stage.receive(established(), digest(listed(self.server.head))))

    # What people do.

    @rule(gap=st.sampled_from([0, 0, 0, 5]), reaches=st.booleans())
    def others_write(self, gap: int, reaches: bool) -> None:
        made = self.server.append(gap, sender=THEM)
        if reaches:
            self.to_client.append(push(made.sequence, made.prev_sequence))

    @precondition(lambda self: self.written < 12)
    @rule()
    def we_write(self) -> None:
        self.written += 1
        self.note(self.stage.submit(entry(self.written, left_at_ms=None)))

    # What the network does.

    @precondition(lambda self: self.to_server)
    @rule(pick=PICKS)
    def frame_reaches_the_server(self, pick: int) -> None:
        # The socket keeps the order; the answers may overtake each other.
        answer = self.server.answer(self.to_server.pop(0))
        if answer is not None:
            self.to_client.insert(pick % (len(self.to_client) + 1), answer)

    @precondition(lambda self: self.to_server)
    @rule(code=st.sampled_from(["SERVICE_UNAVAILABLE", "SERVER_BUSY"]))
    def server_is_busy(self, code: str) -> None:
        request_id = getattr(self.to_server.pop(0), "request_id", None)
        if request_id is not None:
            self.to_client.append(error(code, request_id))

    @precondition(lambda self: self.to_client)
    @rule(pick=PICKS, twice=st.booleans())
    def frame_reaches_the_client(self, pick: int, twice: bool) -> None:
        frame = self.to_client.pop(pick % len(self.to_client))
        self.note(self.stage.receive(frame))
        if twice:
            self.note(self.stage.receive(frame))

    @precondition(lambda self: any(f.__class__.__name__ == "MessageFrame" for f in self.to_client))
    @rule()
    def push_is_lost(self) -> None:
        lost = next(f for f in self.to_client if f.__class__.__name__ == "MessageFrame")
        self.to_client.remove(lost)

    @rule(strikes=st.sampled_from([True, False, False, False, False, False, False, False]))
    def lightning(self, strikes: bool) -> None:
        # Often enough to matter, seldom enough that something happens between.
        if strikes:
            self.connection_is_cut()

    def connection_is_cut(self) -> None:
        self.note(self.stage.lose())
        self.to_server.clear()
        self.to_client.clear()
        self.connect()

    @rule(ms=st.sampled_from([10, 300, 2_000]))
    def time_passes(self, ms: int) -> None:
        self.note(self.stage.wait(ms))
        self.connect()

    # What the disk does.

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        for _ in range(4):
            if self.to_server:
                self.frame_reaches_the_server(len(self.to_client))
            if self.to_client:
                self.frame_reaches_the_client(0, twice=False)

    @precondition(lambda self: self.disk)
    @rule()
    def disk_is_done(self) -> None:
        effect = self.disk.pop(0)
        stage = self.stage
        if isinstance(effect, Mark):
            self.note(stage.did(stage.core.marked(effect.entries, stage.now.wall_ms, stage.now)))
            return
        self.stored += [one.sequence for one in effect.items]
        self.note(
            stage.did(
                stage.core.stored(
                    effect.replica, effect.through, len(effect.items), effect.generation, stage.now
                )
            )
        )

    # What always holds.

    @invariant()
    def disk_holds_a_prefix_without_holes(self) -> None:
        held = self.stored + [
            one.sequence for keep in self.disk if isinstance(keep, Keep) for one in keep.items
        ]
        assert held == [one.sequence for one in self.server.messages[: len(held)]]

    @invariant()
    def nothing_is_acknowledged_that_is_not_stored(self) -> None:
        assert self.acked <= max(self.stored, default=0)

    @invariant()
    def own_messages_are_there_once_and_in_order(self) -> None:
        own = [one.client_message_id for one in self.server.messages if one.sender_id == ME]
        assert own == sorted(own)
        assert len(own) == len(set(own))

    @invariant()
    def queues_are_bounded(self) -> None:
        assert len(self.stage.core.replicas[CHAT].waiting) <= OPTIONS.waiting_max

    def teardown(self) -> None:
        """The faults end: a digest, and then every frame arrives."""
        self.connection_is_cut()
        for _ in range(400):
            if self.disk:
                self.disk_is_done()
            elif self.to_server:
                self.frame_reaches_the_server(len(self.to_client))
            elif self.to_client:
                self.frame_reaches_the_client(0, twice=False)
            elif self.is_settled:
                break
            else:
                self.time_passes(2_000)
        assert self.stored == [one.sequence for one in self.server.messages]
        own = [one for one in self.server.messages if one.sender_id == ME]
        assert len(own) == self.written
        assert self.stage.core.status.state is ConnectionState.READY
        self.note(self.stage.wait(OWN_LATER * OPTIONS.ack_ms))
        assert self.acked == self.server.head

    @property
    def is_settled(self) -> bool:
        core = self.stage.core
        waiting: list[OutboxEntry] = [e for e in core.outbox.entries() if e.state is not FAILED]
        return not waiting and core.status.state is ConnectionState.READY


def test_core_holds_its_promises_on_a_bad_network() -> None:
    run_state_machine_as_test(
        ClientMachine,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True),
    )
