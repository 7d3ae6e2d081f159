"""Ratios of medians, how far rounds differ, and when a comparison is void."""

import msgspec

from tidewire.ops.load.compare import Side, ratios

SIDE = Side(
    messages_per_s=1000,
    deliveries_per_s=2000,
    ack_p50_ms=2,
    ack_p99_ms=4,
    delivered_p50_ms=3,
    delivered_p99_ms=5,
    server_cpu_s_per_1000=0.1,
    generator_cpu_s_per_1000=0.05,
)


def at(messages_per_s: float, generator: float = 0.05) -> Side:
    return msgspec.structs.replace(
        SIDE, messages_per_s=messages_per_s, generator_cpu_s_per_1000=generator
    )


def test_ratios_are_of_medians_and_tell_how_far_rounds_differ() -> None:
    done = ratios("pairs 1 1", [at(900), at(1000), at(5000)], [at(700), at(800), at(750)])
    assert done.throughput_ratio == 0.75
    assert done.sketch_spread == 4.1
    assert done.product_spread == 0.133
    assert (done.ack_p50_ratio, done.server_cpu_ratio) == (1.0, 1.0)
    assert not done.is_void


def test_ratios_of_a_group_count_deliveries() -> None:
    more = msgspec.structs.replace(SIDE, deliveries_per_s=3000)
    assert ratios("group 100 4", [SIDE], [more]).throughput_ratio == 1.5


def test_ratios_are_void_when_the_generators_differ() -> None:
    assert ratios("pairs 1 1", [at(1, 0.05)], [at(1, 0.061)]).is_void
    assert not ratios("pairs 1 1", [at(1, 0.05)], [at(1, 0.059)]).is_void


def test_ratios_are_absent_without_a_sketch() -> None:
    done = ratios("pairs 1 1", [], [SIDE])
    assert (done.sketch, done.throughput_ratio) == (None, None)
    assert done.product_spread == 0


def test_ratios_are_undecided_while_rounding_could_move_the_verdict() -> None:
    coarse = msgspec.structs.replace(SIDE, generator_cpu_error=0.2)
    done = ratios("pairs 1 1", [coarse], [at(1000, 0.065)])
    assert done.is_too_coarse
    assert not done.is_void
    assert ratios("pairs 1 1", [coarse], [at(1000, 0.1)]).is_void
