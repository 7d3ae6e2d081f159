"""Open questions of a connection."""

from tests.unit.client.stage import entry
from tidewire.client.effects import Now
from tidewire.client.outbox import OutboxEntry
from tidewire.client.replica import Replica
from tidewire.client.requests import DIGEST, Requests


def test_answer_finds_its_question_once() -> None:
    requests = Requests(10)
    asked = entry(1)
    request_id = requests.ask(asked, Now(5, 0))
    assert requests.answered(request_id, Replica) is None, "it is no answer to that"
    assert requests.answered(request_id, OutboxEntry) is asked
    assert requests.answered(request_id, OutboxEntry) is None
    assert requests.answered(None, OutboxEntry) is None


def test_first_question_is_the_first_to_be_overdue() -> None:
    requests = Requests(10)
    assert requests.next_deadline_ms() is None
    first = requests.ask(entry(1), Now(5, 0))
    second = requests.ask(entry(2), Now(7, 0))
    assert len({first, second, requests.new_id()}) == 3
    assert requests.next_deadline_ms() == 15
    requests.answered(first, OutboxEntry)
    assert requests.next_deadline_ms() == 17
    requests.clear()
    assert requests.next_deadline_ms() is None


def test_any_digest_answers_every_question_for_one() -> None:
    requests = Requests(10)
    kept = requests.ask(entry(1), Now(6, 0))
    for _ in range(2):
        requests.ask(DIGEST, Now(5, 0))
    requests.digest_answered()
    assert requests.next_deadline_ms() == 16
    assert requests.answered(kept, OutboxEntry) is not None
