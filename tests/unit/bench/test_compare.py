"""Ratios of medians, how far rounds differ, and when a comparison is void."""

import msgspec

from tidewire_bench.compare import Side, ratios

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
    done = ratios(
        "pairs 1 1", [at(900), at(1000), at(5000)], [at(700), at(800), at(750)], [at(600)]
    )
    assert done.throughput_ratio == 0.75
    assert (done.bare_throughput_ratio, done.bare_server_cpu_ratio) == (0.6, 1.0)
    assert done.sketch_spread == 4.1
    assert done.product_spread == 0.133
    assert (done.ack_p50_ratio, done.server_cpu_ratio) == (1.0, 1.0)
    assert not done.is_void


def test_ratios_of_a_group_count_deliveries() -> None:
    more = msgspec.structs.replace(SIDE, deliveries_per_s=3000)
    assert ratios("group 100 4", [SIDE], [more], [SIDE]).throughput_ratio == 1.5


def test_ratios_are_void_when_the_generators_differ() -> None:
    assert ratios("pairs 1 1", [at(1, 0.05)], [at(1, 0.061)], [SIDE]).is_void
    assert not ratios("pairs 1 1", [at(1, 0.05)], [at(1, 0.059)], [SIDE]).is_void
