"""Counters have the wire's names when they are shown."""

from tidewire.gateway.counters import GatewayCounters, Histogram
from tidewire.wire.client_frames import AckFrame, SendMessageFrame
from tidewire.wire.server_frames import SendMessageAckFrame


def test_counters_show_frames_by_the_wires_names() -> None:
    counters = GatewayCounters()
    counters.frames_received = {SendMessageFrame: 3, AckFrame: 2}
    counters.frames_unknown = 1
    assert counters.frames_received_by_type == {
        "send_message": 3,
        "ack": 2,
        "unknown": 1,
        "invalid": 0,
    }
    counters.frames_sent = {SendMessageAckFrame: 3}
    counters.pushes_by_type = {"message": 30}
    assert counters.frames_sent_by_type == {"send_message_ack": 3, "message": 30}


def test_histogram_counts_up_to_its_bounds() -> None:
    histogram = Histogram((10, 100))
    for value in (0, 10, 11, 100, 101):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 222
