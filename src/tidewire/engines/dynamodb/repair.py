"""Puts a chat's missing counter back while servers are running.

Without its counter a chat gets no new numbers, so no new commit is begun; a commit that is under
way has its numbers already, and the new counter begins at a margin above them. A message is stored
only if its number is free. The new value is not decided here; see `ops/recover.py`.
"""

from collections.abc import Callable

from tidewire.domain.ids import ChatId
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.errors import ConditionFailed
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row
from tidewire.ports.inspection import CounterEvidence, CounterRepair, NewCounter


class DynamoCounterRepair:
    """Satisfies `ports.inspection.CounterRepair`."""

    def __init__(self, options: DynamoOptions) -> None:
        self._tables = Tables(options)

    def close(self) -> None:
        self._tables.close()

    def evidence(self, chat_id: ChatId) -> CounterEvidence:
        """Reads every position of the store: those of former members have no index by chat."""
        tables = self._tables
        positions = [
            max(row["last_acked_sequence"], row["last_read_sequence"])
            for row in tables.scan(schema.POSITIONS)
            if row["chat_id"] == chat_id
        ]
        joined = [
            row["joined_sequence"]
            for page in tables.query(schema.MEMBERSHIPS, chat_id)
            for row in page
        ]
        highest = tables.highest_entry(chat_id)
        chat = tables.get(schema.CHATS, {"chat_id": chat_id})
        counter = tables.get(schema.COUNTERS, {"chat_id": chat_id})
        head = 0 if chat is None else chat["last_sequence"]
        return CounterEvidence(
            chat_exists=chat is not None,
            counter=None if counter is None else counter["sequence_counter"],
            highest_message=max(head, highest),
            highest_position=max([0, *positions, *joined]),
        )

    def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        while True:
            evidence = self.evidence(chat_id)
            new = decide(evidence)
            if new is None:
                return evidence
            try:
                self._tables.write(rows.put_new(schema.COUNTERS, counter_row(chat_id, new)))
            except ConditionFailed:
                # Another process has put it back: the next look finds nothing to do.
                continue
            return evidence


def counter_row(chat_id: ChatId, new: NewCounter) -> Row:
    return {
        "chat_id": chat_id,
        "sequence_counter": new.sequence_counter,
        "created_at": new.now_ms,
        "updated_at": new.now_ms,
        "recovered_at": new.now_ms,
        "recovered_from_sequence": new.recovered_from_sequence,
    }


_CONFORMS: type[CounterRepair] = DynamoCounterRepair
