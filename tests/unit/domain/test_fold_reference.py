"""`domain.fold` against the naive fold that the JavaScript client is held to as well."""

from typing import Any

import pytest

from tests.web import fold_reference
from tidewire.domain.fold import AS_WRITTEN, MessageNow, fold
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message

READER = UserId("user_own")


def entry_of(case: dict[str, Any]) -> Message:
    amends = None
    if case["kind"] != "message":
        amends = Amendment(
            kind=EntryKind(case["kind"]),
            target=case["target"],
            emoji=case.get("emoji"),
            is_on=case.get("is_on", True),
        )
    return Message(
        ChatId("chat"),
        case["sequence"],
        case["prev_sequence"],
        MessageId(case["message_id"]),
        UserId(case["sender_id"]),
        ClientMessageId(case["client_message_id"]),
        case.get("content", ""),
        "text/plain",
        0,
        amends=amends,
        count=case.get("count", 0),
    )


def shown(entries: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """What is shown of each message, folded entry by entry."""
    known = [entry_of(case) for case in entries if case["kind"] != "pin"]
    now: dict[int, MessageNow] = {one.sequence: AS_WRITTEN for one in known if not one.amends}
    for entry in known:
        if entry.amends is not None and entry.amends.target in now:
            now[entry.amends.target] = fold(now[entry.amends.target], entry, READER)
    texts = {one.sequence: one.content for one in known}
    return [
        (
            sequence,
            one.is_deleted,
            one.deleted_sequence or None,
            "" if one.is_deleted else one.content or texts[sequence],
            one.edited_sequence or None,
            {each.emoji: (each.count, sorted(each.users)) for each in one.shown_reactions},
            {each.emoji for each in one.shown_reactions if each.is_own},
        )
        for sequence, one in now.items()
    ]


def wanted(view: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            row["sequence"],
            row["is_deleted"],
            row["deleted_sequence"],
            row["content"],
            row["edited_sequence"],
            {emoji: (len(users), users) for emoji, users in row["reactions"].items()},
            {emoji for emoji, users in row["reactions"].items() if READER in users},
        )
        for row in view
    ]


@pytest.mark.parametrize("seed", range(30))
def test_fold_is_what_the_whole_log_says(seed: int) -> None:
    """As entries were pushed, at some ends; and as a later sync gives them, with erased texts."""
    log = fold_reference.new_log(f"server {seed}", 40)
    for end in (7, 14, 28, len(log)):
        assert shown(log[:end]) == wanted(fold_reference.view(log[:end]))
    assert shown(fold_reference.served(log)) == wanted(fold_reference.view(log))
