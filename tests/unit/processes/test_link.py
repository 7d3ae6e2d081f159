"""Calls, answers and word over a real socket pair: in order, once, and never waited for."""

import asyncio
import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tidewire.domain import errors
from tidewire.domain.errors import NotAMember, StoreUnavailable, StoreUnusable, TidewireError
from tidewire.processes.link import FailedThere, Link
from tidewire.runtime.supervise import TaskSupervisor

BYTES_MAX = 1_000_000


class Pair:
    """Two ends in one process; `there` offers acts."""

    def __init__(self, acts: dict[str, Callable[..., Any]], bytes_max: int = BYTES_MAX) -> None:
        self.died: list[str] = []
        self.tasks = TaskSupervisor(lambda name, _: self.died.append(name))
        self.lost = asyncio.Event()
        self.here = Link({}, tasks=self.tasks, on_lost=self.lost.set, bytes_max=bytes_max)
        self.there = Link(acts, tasks=self.tasks, on_lost=lambda: None, bytes_max=bytes_max)

    async def connect(self) -> None:
        ours, theirs = socket.socketpair()
        await self.here.connect(ours)
        await self.there.connect(theirs)

    async def close(self) -> None:
        self.here.cut()
        self.there.cut()
        await self.tasks.close()


async def test_what_is_said_arrives_in_order_whatever_it_is() -> None:
    heard: list[str] = []

    async def slow(word: str) -> str:
        heard.append(word)
        return word.upper()

    pair = Pair({"hear": heard.append, "slow": slow, "at_once": str.title})
    await pair.connect()
    pair.here.tell("hear", "one")
    answers = await asyncio.gather(
        pair.here.call("slow", word="two"), pair.here.call("at_once", "three")
    )
    assert list(answers) == ["TWO", "Three"]
    pair.here.tell("hear", "four")
    await pair.here.call("at_once", "five")
    assert heard == ["one", "two", "four"]
    await pair.close()


async def test_answer_by_callback_may_be_a_value_or_an_error() -> None:
    kept: list[Callable[[Any], None]] = []

    def append(text: str, *, done: Callable[[Any], None]) -> None:
        if not text:
            raise StoreUnavailable("it takes nothing in")
        kept.append(done)

    pair = Pair({"append": append})
    await pair.connect()
    answers: asyncio.Queue[Any] = asyncio.Queue()
    for text in ("a", "b", ""):
        pair.here.call_back("append", text, done=answers.put_nowait)
    assert isinstance(await answers.get(), StoreUnavailable)
    kept[1]([1, NotAMember()])
    kept[0](StoreUnavailable("later"))
    first, second = await answers.get(), await answers.get()
    assert first[0] == 1
    assert isinstance(first[1], NotAMember)
    assert str(second) == "later"
    await pair.close()


async def test_refusals_travel_and_what_no_code_expected_is_told_and_counted() -> None:
    def fail(error: Exception) -> None:
        raise error

    async def fail_later(error: Exception) -> None:
        raise error

    pair = Pair({"fail": fail, "fail_later": fail_later})
    await pair.connect()
    for name in ("fail", "fail_later"):
        with pytest.raises(StoreUnavailable, match="away"):
            await pair.here.call(name, StoreUnavailable("away"))
        with pytest.raises(FailedThere, match="ValueError: no"):
            await pair.here.call(name, ValueError("no"))
    pair.here.tell("nonsense")
    with pytest.raises(FailedThere, match="KeyError"):
        await pair.here.call("nonsense")
    assert pair.tasks.failures_by_kind == {"link": 2}
    assert pair.died == []
    await pair.close()


async def test_store_that_cannot_be_trusted_ends_its_process() -> None:
    def fail() -> None:
        raise StoreUnusable("in doubt")

    pair = Pair({"fail": fail})
    await pair.connect()
    with pytest.raises(StoreUnusable):
        await pair.here.call("fail")
    assert pair.died == ["store"]
    await pair.close()


async def test_calls_are_not_answered_when_the_link_is_lost() -> None:
    def never(done: Callable[[Any], None]) -> None:
        pair.there.cut()

    pair = Pair({"never": never})
    await pair.connect()
    answers: list[Any] = []
    pair.here.call_back("never", done=answers.append)
    await pair.lost.wait()
    pair.here.tell("hear", "nobody")
    await pair.close()
    assert answers == []


async def test_link_that_is_not_read_is_cut_and_nothing_waits_for_it() -> None:
    pair = Pair({}, bytes_max=300_000)
    ours, theirs = socket.socketpair()
    await pair.here.connect(ours)
    pair.here.tell("hear", b"x" * 1_000_000)
    async with asyncio.timeout(30):
        await pair.lost.wait()
    theirs.close()
    await pair.close()


async def test_frames_larger_than_a_read_arrive_whole() -> None:
    pair = Pair({"size": len}, bytes_max=10_000_000)
    await pair.connect()
    assert await pair.here.call("size", b"x" * 5_000_000) == 5_000_000
    await pair.close()


def every_error() -> list[TidewireError]:
    made = {
        "Unauthorized": (errors.AuthFailure.TOKEN_EXPIRED,),
        "Throttled": ("slowly",),
        "InvalidContentType": ("a/b",),
        "ChatIsFull": (5,),
        "UsernameTaken": ("ann",),
        "StoreDamaged": ("bytes",),
        "CounterMissing": ("chat_1",),
        "TargetNotFound": (5,),
        "MessageDeleted": (5,),
        "TooManyEdits": (5,),
        "TooManyReactions": (5,),
        "InvalidMention": ("user_1",),
    }
    named: dict[str, dict[str, Any]] = {
        "Throttled": {"retry_after_ms": 5},
        "RateLimited": {"retry_after_ms": 5},
        "TooManyLogins": {"retry_after_ms": 5},
        "MessageTooLarge": {"size_bytes": 5, "size_bytes_max": 4},
        "SequenceAboveHead": {"sequence": 5, "head": 4},
        "CursorAhead": {"cursor": 5, "head": 4},
        "EditConflict": {"content": "text", "edited_by": 5},
    }
    found = []
    kinds: dict[str, Any] = vars(errors)
    for name, kind in kinds.items():
        if isinstance(kind, type) and issubclass(kind, TidewireError):
            args: tuple[Any, ...] = made.get(name, ())
            if name == "RateLimited":
                args = ("slowly",)
            make: Any = kind
            found.append(make(*args, **named.get(name, {})))
    return found


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_error_is_the_same_at_the_other_end(error: TidewireError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, copy.details, copy.__dict__) == (
        str(error),
        error.args,
        error.details,
        error.__dict__,
    )
