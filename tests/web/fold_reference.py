"""What a chat looks like after its entries, computed naively: the whole log each time.

It states what every fold has to come to, that of `domain.fold` and that of each client: the highest
edit wins, a deletion is final and takes text, mentions, edits and reactions away, reactions are
a set of (target, user, emoji) in which the later entry wins, counts are the sizes of those sets, a
kind that is not known changes nothing.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

Case = dict[str, Any]

USERS: Final = ("user_own", "user_b", "user_c")
EMOJIS: Final = ("👍", "🎉")


def view(entries: list[Case]) -> list[Case]:
    """The messages as they are shown, in order."""
    return [_shown(entry, entries) for entry in entries if entry["kind"] == "message"]


def _shown(message: Case, entries: list[Case]) -> Case:
    about = [entry for entry in entries if entry.get("target") == message["sequence"]]
    deletions = [entry["sequence"] for entry in about if entry["kind"] == "delete"]
    edits = [entry for entry in about if entry["kind"] == "edit"]
    is_deleted = bool(deletions) or message.get("is_deleted", False)
    shown: Case = {
        "sequence": message["sequence"],
        "sender_id": message["sender_id"],
        "is_deleted": is_deleted,
        "deleted_sequence": min(deletions, default=None),
        "content": "" if is_deleted else message["content"],
        "edited_sequence": None,
        "reply_to": message.get("reply_to"),
        "mentions": [] if is_deleted else message.get("mentions", []),
        "reactions": {},
    }
    if not is_deleted:
        if edits:
            shown["content"] = edits[-1]["content"]
            shown["edited_sequence"] = edits[-1]["sequence"]
        shown["reactions"] = _reactions(about)
    return shown


def _reactions(about: list[Case]) -> dict[str, list[str]]:
    """By emoji: who has it on the message now."""
    latest: dict[tuple[str, str], bool] = {}
    for entry in about:
        if entry["kind"] == "react":
            latest[entry["emoji"], entry["sender_id"]] = entry["is_on"]
    reactions: dict[str, list[str]] = {}
    for (emoji, user_id), is_on in latest.items():
        if is_on:
            reactions.setdefault(emoji, []).append(user_id)
    return {emoji: sorted(users) for emoji, users in reactions.items()}


def new_log(seed: str, count: int) -> list[Case]:
    """A log as a server would take it in: nothing is said about what is deleted."""
    random = Random(seed)
    log: list[Case] = []
    sequence = 0
    alive: list[int] = []
    for _ in range(count):
        prev, sequence = sequence, sequence + random.choice((1, 1, 1, 5))
        kind = random.choices(("message", "edit", "delete", "react", "pin"), (6, 4, 1, 8, 1))[0]
        entry: Case = {
            "kind": kind if alive else "message",
            "message_id": f"msg_{sequence}",
            "sequence": sequence,
            "prev_sequence": prev,
            "sender_id": random.choice(USERS),
            "client_message_id": f"key_{sequence}",
            "created_at": "2031-05-04T11:20:07.412Z",
        }
        _fill(random, entry, alive, log)
        log.append(entry)
    return log


def _fill(random: Random, entry: Case, alive: list[int], log: list[Case]) -> None:
    kind, sequence = entry["kind"], entry["sequence"]
    if kind == "message":
        entry["content"] = f"text {sequence}"
        if alive and random.random() < 0.2:
            entry["reply_to"] = random.choice(alive)
        if random.random() < 0.2:
            entry["mentions"] = [random.choice(USERS)]
        alive.append(sequence)
        return
    target = entry["target"] = random.choice(alive)
    if kind == "edit":
        entry["content"] = f"edit {sequence}"
    elif kind == "delete":
        alive.remove(target)
    elif kind == "react":
        emoji = entry["emoji"] = random.choice(EMOJIS)
        entry["is_on"] = random.random() < 0.7
        about = [one for one in log if one.get("target") == target]
        # Counted by the server, in the transaction of the entry.
        entry["count"] = len(_reactions([*about, entry]).get(emoji, []))


def served(log: list[Case]) -> list[Case]:
    """The log as a later sync gives it: what was deleted is erased."""
    deleted = {entry["target"] for entry in log if entry["kind"] == "delete"}
    later = []
    for entry in log:
        subject = entry["sequence"] if entry["kind"] == "message" else entry.get("target")
        if subject in deleted and entry["kind"] in ("message", "edit"):
            erased = {k: v for k, v in entry.items() if k not in ("content", "mentions")}
            later.append({**erased, "is_deleted": True})
        else:
            later.append(entry)
    return later


def cases() -> Iterator[Case]:
    """Logs, as they are pushed and as they are synced later, with the view after some of them."""
    for seed in range(12):
        log = new_log(f"fold {seed}", 20)
        yield {
            "entries": log,
            "served": served(log),
            "views": {str(end): view(log[:end]) for end in (7, 14, len(log))},
        }
