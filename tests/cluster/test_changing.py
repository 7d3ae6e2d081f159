"""Tests that the checkers of changed messages notice faults. Needs no cluster."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cluster.changing import Changing, reactions_of
from tidewire.client import Client, ServerUnreachable

PLACE = ("chat_1", 7)


class Server:
    """Answers each read of a message with the next of these views."""

    def __init__(self, *views: Any) -> None:
        self.views = list(views)

    async def call(self, *_asked: object) -> Any:
        view = self.views.pop(0)
        if isinstance(view, Exception):
            raise view
        return SimpleNamespace(data=view)


class Stored:
    async def stored(self) -> int:
        return 9


def a_view(content: str, *, is_deleted: bool) -> Any:
    return SimpleNamespace(content=content, is_deleted=is_deleted)


@pytest.mark.parametrize(
    ("view", "is_fault"),
    [
        (a_view("", is_deleted=True), False),
        (a_view("secret", is_deleted=True), True),
        (a_view("", is_deleted=False), True),
    ],
)
async def test_text_that_is_read_after_its_deletion_is_a_fault(view: Any, is_fault: bool) -> None:
    """Also if the first try does not get through."""
    server = Server(ServerUnreachable("not now"), view)
    changing = Changing(0, cast("Client", SimpleNamespace(rest=server)))
    await changing._look_for(PLACE, cast("Any", Stored()))
    assert bool(changing.faults) is is_fault
    assert server.views == []


def test_counts_of_reactions_are_those_of_the_people() -> None:
    people = [Changing(number, cast("Client", None)) for number in range(4)]
    for one in people[:3]:
        one.marks[PLACE] = True
    people[2].marks["chat_1", 8] = True
    people[1].marks[PLACE] = False
    assert reactions_of(people, PLACE) == {people[0].emoji: 2}
    assert reactions_of(people, ("chat_1", 8)) == {people[2].emoji: 1}
    assert reactions_of(people, ("chat_2", 7)) == {}
