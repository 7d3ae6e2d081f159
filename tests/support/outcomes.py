"""Outcomes of appends and chains of messages, in a form that a test can compare easily."""

from collections.abc import Sequence
from itertools import pairwise

from tidewire.domain.messages import AppendOutcome, Message


def chained(messages: Sequence[Message]) -> bool:
    """True if the chain is whole: every message points at the one before it, the first at 0."""
    sequences = [0, *(message.sequence for message in messages)]
    links = [(message.prev_sequence, message.sequence) for message in messages]
    return links == list(pairwise(sequences)) and all(prev < own for prev, own in links)


def describe(outcomes: Sequence[AppendOutcome]) -> list[str]:
    """Each outcome in a few words: `stored 4 after 3`, `again 1 after 0`, or the error's name."""
    return [
        type(outcome).__name__
        if isinstance(outcome, Exception)
        else f"{'again' if outcome.deduplicated else 'stored'} {outcome.sequence}"
        f" after {outcome.prev_sequence}"
        for outcome in outcomes
    ]
