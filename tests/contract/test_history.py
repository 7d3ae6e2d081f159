"""Many people use a store at once, and its history keeps every trace invariant.

Goal: the checks that crash runs and the simulator rest on are true of every engine, and complain
about none that is sound. Method: actors with a seed of their own do random things side by side,
while members come and go; then the history is checked, and after that bent in ways that must show.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import msgspec
import pytest

from tests.support.history import Acked, Entry, FinalState, Refused, Synced
from tests.support.inspectors import inspector_of, verify_engine, violated
from tests.support.recorder import Recorder, final_state
from tests.support.trace import check_history
from tests.support.world import World
from tidewire.domain.ids import ChatId, UserId

STEPS = 100

Bend = Callable[[list[Entry], FinalState], tuple[list[Entry], FinalState]]


async def act(recorder: Recorder, user_id: UserId, chats: Sequence[ChatId], random: Random) -> None:
    """What one person does with one device: cursors follow what it has."""
    cursors = dict.fromkeys(chats, 0)
    keys = [recorder.world.key() for _ in range(8)]
    for _ in range(STEPS):
        chat_id = random.choice(chats)
        match random.randrange(6):
            case 0 | 1:
                # Few keys, so that retries and reuse with another text both happen.
                key = random.choice(keys)
                await recorder.send(user_id, chat_id, key, random.choice(["one", "other"]))
            case 2:
                await recorder.sync(user_id, chat_id, cursors[chat_id], random.choice([1, 3, 500]))
                answer = recorder.entries[-1]
                if isinstance(answer, Synced):
                    cursors[chat_id] = answer.synced_through
            case 3:
                read = random.randrange(cursors[chat_id] + 1)
                await recorder.advance(user_id, chat_id, cursors[chat_id], read)
            case 4:
                await recorder.look(user_id, chat_id)
            case _:
                await recorder.summary(user_id, chat_id, random.randint(1, 3))


async def rule(
    recorder: Recorder, owner: UserId, chat_id: ChatId, others: Sequence[UserId]
) -> None:
    """Throws people out and takes them back."""
    random = Random(99)
    for _ in range(STEPS // 2):
        await recorder.remove(owner, chat_id, random.choice(others))
        await recorder.add(owner, chat_id, random.choice(others))


async def record(world: World) -> tuple[Recorder, FinalState]:
    recorder = Recorder(world)
    ann, bob, cleo, dave = await world.people(4)
    group = await world.group(ann, bob, cleo)
    direct = await world.direct(ann, bob)
    recorder.there_from_the_start(group, ann, bob, cleo)
    recorder.there_from_the_start(direct, ann, bob)
    world.new_events()
    await asyncio.gather(
        *(
            act(recorder, user_id, [group, direct], Random(number))
            for number, user_id in enumerate([ann, bob, cleo, dave])
        ),
        rule(recorder, ann, group, [bob, cleo, dave]),
    )
    recorder.take_events()
    return recorder, await final_state(world, inspector_of(world.engine)(), [group, direct])


def lost_message(entries: list[Entry], final: FinalState) -> tuple[list[Entry], FinalState]:
    """The last one of each chat."""
    left = {chat_id: messages[:-1] for chat_id, messages in final.messages.items()}
    return entries, msgspec.structs.replace(final, messages=left)


def wrong_answer(field: str) -> Bend:
    """To the first send that was a retry."""

    def bend(entries: list[Entry], final: FinalState) -> tuple[list[Entry], FinalState]:
        place, answer = next(
            (place, entry)
            for place, entry in enumerate(entries)
            if isinstance(entry, Acked) and entry.deduplicated
        )
        wrong = msgspec.structs.replace(answer, **{field: getattr(answer, field) + 1})
        return [*entries[:place], wrong, *entries[place + 1 :]], final

    return bend


BENDS: Final[tuple[tuple[Bend, str], ...]] = (
    (lost_message, "ack_implies_persistence"),
    (wrong_answer("sequence"), "idempotency_guarantee"),
    (wrong_answer("created_at_ms"), "idempotency_guarantee"),
)
"""Each with the invariant that must be found broken."""


# Five hundred acts are thousands of requests to DynamoDB Local, which shares the machine.
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_history_of_many_people_keeps_every_invariant(world: World) -> None:
    recorder, final = await record(world)
    assert check_history(recorder.entries, final) == []
    assert violated(verify_engine(world.engine)) == []
    # There was something to check.
    kinds = [type(entry).__name__ for entry in recorder.entries]
    for kind in ("Acked", "Refused", "Synced", "AdvanceAcked", "SummaryShown", "Published"):
        assert kinds.count(kind) >= 5, kind
    assert any(isinstance(entry, Acked) and entry.deduplicated for entry in recorder.entries)
    assert {e.code for e in recorder.entries if isinstance(e, Refused)} >= {
        "NOT_A_MEMBER",
        "IDEMPOTENCY_KEY_REUSED",
    }
    # And it would have been seen if something were wrong.
    for bend, invariant in BENDS:
        violations = check_history(*bend(recorder.entries, final))
        assert invariant in {violation.invariant for violation in violations}
