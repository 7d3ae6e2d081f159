"""The lane of pages: one at a time, in turn, nothing left behind."""

import pytest

from tests.unit.gateway.fakes import sync
from tidewire.domain.ids import ChatId
from tidewire.gateway.pages import DigestRun, PageLane


def test_lane_reads_at_once_when_nothing_is_before() -> None:
    lane = PageLane()
    assert lane.offer(sync("s1")) == sync("s1")
    assert lane.current == sync("s1")
    assert len(lane) == 1


def test_lane_takes_turns_in_order_of_arrival() -> None:
    lane = PageLane()
    lane.offer(sync("s1"))
    assert lane.offer(sync("s2")) is None
    assert lane.offer(sync("s3")) is None
    assert len(lane) == 3
    lane.is_draining = True
    assert lane.next() == sync("s2")
    assert not lane.is_draining
    assert lane.next() == sync("s3")
    assert lane.next() is None
    assert len(lane) == 0


def test_lane_gives_every_digest_an_id_of_its_own() -> None:
    lane = PageLane()
    assert lane.begin_digest(None) == DigestRun(None, "digest_1")
    assert lane.begin_digest("d1") == DigestRun("d1", "digest_2")


def test_digest_goes_on_from_where_it_was() -> None:
    run = DigestRun("d1", "digest_2")
    assert run.continued(ChatId("chat_9")) == DigestRun("d1", "digest_2", 1, ChatId("chat_9"))


def test_lane_is_empty_after_clear() -> None:
    lane = PageLane()
    lane.offer(sync("s1"))
    lane.offer(sync("s2"))
    lane.is_draining = True
    lane.clear()
    assert (len(lane), lane.current, lane.is_draining) == (0, None, False)


def test_lane_without_work_has_no_next() -> None:
    with pytest.raises(AssertionError):
        PageLane().next()
