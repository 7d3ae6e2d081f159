"""What the client's core does, written down for the other language: `python -m tests.web.vectors`.

Each file of web/vectors has cases: what happened, step by step, and what the Python core made of
it. The JavaScript core runs the same steps and has to come to the same. The steps are random, from
seeds that are written here; chance inside of the core is always one half.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from tests.web import fold_reference
from tidewire.client.acks import Acks
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Outbox, OutboxEntry
from tidewire.client.replica import Replica, ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import DigestEntry, tick
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.messages import Amendment, EntryKind, MessageBody
from tidewire.wire.server_frames import MessagePayload, StatusUpdatePayload

DIRECTORY: Final = Path(__file__).parents[2] / "web/vectors"
OWN: Final = "user_own"
CODES: Final = (
    "RATE_LIMITED",
    "SERVER_BUSY",
    "SERVICE_UNAVAILABLE",
    "INTERNAL_ERROR",
    "OF_NEXT_YEAR",
    "NOT_A_MEMBER",
    "MESSAGE_TOO_LARGE",
)

Case = dict[str, Any]


class Half(Random):
    """No chance."""

    def random(self) -> float:
        return 0.5


# The chain.


def _items(random: Random, count: int) -> list[Case]:
    """A chain with holes in its numbers, of two people."""
    items: list[Case] = []
    sequence = 0
    for _ in range(count):
        prev, sequence = sequence, sequence + random.choice((1, 1, 1, 2, 7))
        items.append(
            {
                "message_id": f"msg_{sequence}",
                "sequence": sequence,
                "prev_sequence": prev,
                "sender_id": random.choice((OWN, "user_other")),
                "client_message_id": f"key_{sequence}",
                "content": f"text {sequence}",
                "content_type": "text/plain",
                "created_at": "2031-05-04T11:20:07.412Z",
            }
        )
    return items


def _pushed(item: Case) -> MessagePayload:
    return msgspec.convert({**item, "chat_id": "chat_1"}, MessagePayload)


def replica_cases() -> Iterator[Case]:
    """Pushes in any order and again, pages, digests, news of positions, restores."""
    for seed in range(14):
        random = Random(f"replica {seed}")
        items = _items(random, 12)
        start = random.choice((0, 0, items[3]["sequence"]))
        record = ReplicaRecord(
            chat_id=ChatId("chat_1"), chat_type=ChatType.DIRECT, start=start, cursor=start
        )
        waiting_max = random.choice((2, 1000))
        replica = Replica(**msgspec.structs.asdict(record), waiting_max=waiting_max)
        steps = []
        for _ in range(30):
            step = _replica_step(random, items, replica.cursor)
            step["expect"] = {"taken": _do_replica(replica, step), **_numbers(replica)}
            steps.append(step)
        yield {
            "record": msgspec.to_builtins(record),
            "waiting_max": waiting_max,
            "own_id": OWN,
            "steps": steps,
        }


def _replica_step(random: Random, items: list[Case], cursor: int) -> Case:
    match random.choices(
        ("offer", "page", "digest", "status", "read", "restart"), (12, 4, 2, 3, 3, 0.3)
    )[0]:
        case "offer":
            return {"offer": random.choice(items)}
        case "page":
            above = [item for item in items if item["sequence"] > random.choice((0, cursor))]
            some = above[: random.choice((1, 3, 99))]
            if len(some) > 2 and random.random() < 0.2:
                del some[1]
            last = some[-1]["sequence"] if some else cursor
            return {"page": some, "through": last + random.choice((0, 0, 3))}
        case "digest":
            head = random.choice(items)["sequence"]
            read = random.randrange(head + 1)
            return {
                "digest": {
                    "chat_id": "chat_1",
                    "chat_type": "direct",
                    "head": head,
                    "membership_version": 1,
                    "joined_sequence": 0,
                    "delivered": head,
                    "read": read,
                    "others_delivered": random.randrange(head + 1),
                    "others_read": random.randrange(head + 1),
                    "unread": random.randrange(5),
                }
            }
        case "status":
            own = {"own_read": random.randrange(30), "unread": random.randrange(5)}
            return {
                "status": {
                    "chat_id": "chat_1",
                    "others_delivered": random.randrange(30),
                    "others_read": random.randrange(30),
                    **(own if random.random() < 0.5 else {}),
                }
            }
        case "read":
            return {"read": random.randrange(40)}
        case _:
            return {"restart": random.randrange(30)}


def _do_replica(replica: Replica, step: Case) -> list[int]:
    taken: list[Any] = []
    if "offer" in step:
        taken = [*replica.offer(_pushed(step["offer"]))]
    elif "page" in step:
        taken = [*replica.offer_page([_pushed(one) for one in step["page"]], step["through"])]
    elif "digest" in step:
        replica.merge_digest(msgspec.convert(step["digest"], DigestEntry))
    elif "status" in step:
        replica.merge_status(msgspec.convert(step["status"], StatusUpdatePayload))
    elif "read" in step:
        replica.read_through(step["read"])
    else:
        replica.restart(step["restart"])
    replica.count_unread(taken, OWN)
    return [item.sequence for item in taken]


def _numbers(replica: Replica) -> Case:
    names = ("cursor", "head", "start", "read", "unread", "delivered", "others_delivered")
    return {
        **{name: getattr(replica, name) for name in (*names, "others_read", "seen")},
        "is_behind": replica.is_behind,
        "waiting": sorted(replica.waiting),
    }


# Acknowledgements.


def ack_cases() -> Iterator[Case]:
    for seed in range(16):
        random = Random(f"acks {seed}")
        acks = Acks(ClientOptions(ack_frames_max=3))
        replicas = {
            f"chat_{n}": Replica(
                chat_id=ChatId(f"chat_{n}"),
                chat_type=random.choice((ChatType.DIRECT, ChatType.GROUP)),
                waiting_max=9,
            )
            for n in range(4)
        }
        kinds = {chat_id: str(one.chat_type) for chat_id, one in replicas.items()}
        now_ms, steps = 1000, []
        for _ in range(40):
            now_ms += random.choice((0, 1, 20, 100, 300, 6000))
            step = _ack_step(random, replicas, now_ms)
            frames = _do_acks(acks, replicas, step)
            step["expect"] = {"frames": frames, "next_deadline_ms": acks.next_deadline_ms()}
            steps.append(step)
        yield {"options": {"ack_frames_max": 3}, "chats": kinds, "steps": steps}


def _ack_step(random: Random, replicas: dict[str, Replica], now_ms: int) -> Case:
    chat_id = random.choice([*replicas])
    replica = replicas[chat_id]
    do = random.choices(("stored", "read", "flush", "flush_last", "reconnected", "wait"),
                        (8, 2, 8, 0.5, 0.5, 0.5))[0]  # fmt: skip
    step: Case = {"do": do, "chat_id": chat_id, "now_ms": now_ms, "set": {}}
    if do == "stored":
        step["count"] = count = random.choice((1, 1, 3, 12))
        stored = replica.stored + count
        step["set"] = {"stored": stored, "cursor": stored}
        if random.random() < 0.7:
            step["set"]["others_through"] = stored
    elif do == "read":
        step["set"] = {"read": replica.read + random.randrange(6)}
    return step


def _do_acks(acks: Acks, replicas: dict[str, Replica], step: Case) -> list[Any]:
    replica, now_ms = replicas[step["chat_id"]], step["now_ms"]
    for name, value in step["set"].items():
        setattr(replica, name, value)
    match step["do"]:
        case "stored":
            acks.stored(replica, step["count"], now_ms)
        case "read":
            acks.read(replica, now_ms)
        case "reconnected":
            acks.reconnected(replicas.values(), now_ms)
        case "wait":
            acks.wait(now_ms + 500)
        case do:
            frames = acks.flush(now_ms, is_last=do == "flush_last")
            return [msgspec.to_builtins(frame) for frame in frames]
    return []


# Ticks.


def tick_cases() -> Iterator[Case]:
    for sequence in range(1, 5):
        for delivered in range(5):
            for read in range(delivered + 1):
                shown = tick(sequence, others_delivered=delivered, others_read=read)
                yield {
                    "sequence": sequence,
                    "others_delivered": delivered,
                    "others_read": read,
                    "tick": str(shown),
                }


# The outbox.


def outbox_cases() -> Iterator[Case]:
    for seed in range(16):
        random = Random(f"outbox {seed}")
        options = {"window": random.choice((1, 1, 3)), "sends_max": random.choice((2, 64))}
        box = Outbox(ClientOptions(**options), Half())
        now_ms, steps = 1000, []
        flying: list[str] = []
        ever: dict[str, OutboxEntry] = {}
        for number in range(1, 61):
            now_ms += random.choice((0, 10, 1000, 5000))
            step = _outbox_step(
                random, number, now_ms, flying, [e.client_message_id for e in box.entries()]
            )
            if step["do"] == "saved":
                step["keys"] = [one for one in ever if random.random() < 0.9]
            is_edit = step["key"] in flying and ever[step["key"]].kind is EntryKind.EDIT
            if step["do"] == "refused" and is_edit and random.random() < 0.5:
                step |= {"code": "MESSAGE_DELETED", "after": None}
            result = _do_outbox(box, step, ever)
            entries = box.entries()
            ever |= {one.client_message_id: one for one in entries}
            flying = [one.client_message_id for one in entries if one.state == "flying"]
            step["expect"] = {
                "result": result,
                "entries": [[one.client_message_id, str(one.state)] for one in entries],
                "flying_count": box.flying_count,
                "next_deadline_ms": box.next_deadline_ms(),
            }
            steps.append(step)
        yield {"options": options, "steps": steps}


def _outbox_step(
    random: Random, number: int, now_ms: int, flying: list[str], known: list[str]
) -> Case:
    do = random.choices(
        (
            *("add", "release", "take", "mark", "stored", "refused", "lost", "retry", "drop"),
            *("saved", "erase"),
        ),
        (10, 5, 10, 4, 6, 7, 0.7, 2, 1, 6, 1),
    )[0]
    step: Case = {"do": do, "number": number, "now_ms": now_ms}
    step["chat_id"] = random.choice(("chat_1", "chat_2"))
    step["key"] = f"key_{number}"
    if do == "add":
        step["kind"] = random.choice(("message", "message", "edit"))
    if do in ("stored", "refused", "mark") and flying:
        step["key"] = random.choice(flying)
    elif do in ("retry", "drop") and known:
        step["key"] = random.choice(known)
    if do == "refused":
        step["code"] = random.choice(CODES)
        step["retry_after_ms"] = random.choice((0, 0, 3000))
        retried = step["code"] in CODES[:4]
        step["after"] = random.choice((None, None, *known, "KEY_0")) if retried else None
    return step


def _do_outbox(box: Outbox, step: Case, ever: dict[str, OutboxEntry]) -> Any:
    key, now_ms, number = ClientMessageId(step["key"]), step["now_ms"], step["number"]
    match step["do"]:
        case "add":
            entry = _entry(key, step["chat_id"], number)
            if step["kind"] == "edit":
                entry.amends = Amendment(kind=EntryKind.EDIT, target=41)
            box.add(entry)
        case "release":
            box.release(ChatId(step["chat_id"]))
        case "take":
            leaving, doubtful = box.take(now_ms, now_ms)
            return {
                "leaving": [[one.client_message_id, one.is_first] for one in leaving],
                "doubtful": [one.client_message_id for one in doubtful],
            }
        case "mark":
            known = box.get(key)
            return [one.client_message_id for one in box.marked([known] if known else [], now_ms)]
        case "stored":
            return box.stored(key, number) is not None
        case "refused":
            return _refused(box, step)
        case "lost":
            box.lost()
        case "retry":
            return bool(box.retry(key, number))
        case "saved":
            box.saved(ever[one] for one in step["keys"])
        case "erase":
            return sorted(one.client_message_id for one in box.erased(ChatId(step["chat_id"]), 41))
        case _:
            return bool(box.drop(key))
    return None


def _refused(box: Outbox, step: Case) -> bool:
    """Whether it has failed for good."""
    refused = box.refused(
        ClientMessageId(step["key"]),
        step["code"],
        "no",
        retry_after_ms=step["retry_after_ms"],
        now_ms=step["now_ms"],
        after=step["after"],
    )
    return refused is not None and refused.entry.code is not None


def _entry(key: ClientMessageId, chat_id: str, number: int) -> OutboxEntry:
    return OutboxEntry(
        client_message_id=key,
        chat_id=ChatId(chat_id),
        body=MessageBody(content=f"text {number}"),
        seen_sequence=0,
        created_at_ms=number,
        number=number,
    )


def edit_cases() -> Iterator[Case]:
    """Which edits a deletion takes along, as `client/sending.py` does it before it enters one."""
    for seed in range(12):
        random = Random(f"edits {seed}")
        options = {"window": random.choice((1, 2)), "sends_max": 64}
        box = Outbox(ClientOptions(**options), Half())
        entries, steps = [], []
        for number in range(1, 11):
            kind = random.choice(("message", "edit", "edit", "edit", "react"))
            target = random.choice((41, 42))
            entry = {"key": f"key_{number}", "number": number, "kind": kind, "target": target}
            entries.append(entry)
            box.add(_amending(entry))
        box.release(ChatId("chat_1"))
        for _ in range(random.randrange(4)):
            do = random.choice(("take", "take", "lost"))
            steps.append(do)
            if do == "take":
                box.take(1000, 1000)
            else:
                box.lost()
        dropped: list[str] = []
        while pending := box.last_edit(ChatId("chat_1"), 41):
            if not (gone := box.drop(pending.client_message_id)):
                break
            dropped += [one.client_message_id for one in gone]
        yield {
            "options": options,
            "entries": entries,
            "steps": steps,
            "target": 41,
            "dropped": sorted(dropped),
        }


def _amending(told: Case) -> OutboxEntry:
    entry = _entry(ClientMessageId(told["key"]), "chat_1", told["number"])
    if told["kind"] != "message":
        entry.amends = Amendment(kind=EntryKind(told["kind"]), target=told["target"], emoji="+")
    return entry


# All of it.

CASES: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "replica": replica_cases,
    "acks": ack_cases,
    "tick": tick_cases,
    "outbox": outbox_cases,
    "edits": edit_cases,
    "fold": fold_reference.cases,
}


def text_of(name: str) -> str:
    """What the file of this name has to hold: one case a line."""
    lines = [json.dumps(case, separators=(",", ":"), ensure_ascii=False) for case in CASES[name]()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name in CASES:
        (DIRECTORY / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
