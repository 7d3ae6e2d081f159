"""The mixes of `bench units`: their words say their numbers, and a bar can be missed."""

from tidewire_bench.mixes import BY_NAME, MIXES, Bar, Cost, described


def test_help_defines_every_mix_by_its_numbers() -> None:
    words = described()
    for mix in MIXES:
        assert f"\n\n{mix.name}: " in words
    assert "100 members, 30 online, one message each 1 s, 20 measured" in words
    assert "each reads 0.5 to 7 s after the arrival" in words
    assert "2 members, 1 online, each after the answer" in words
    assert "84\nbytes" in words


def test_mix_says_how_long_it_takes() -> None:
    assert BY_NAME["quiet-group"].seconds == 72
    assert BY_NAME["idle"].seconds == 180
    assert BY_NAME["idle"].is_idle


def test_cost_above_its_bar_is_told() -> None:
    cost = Cost(
        mix="direct",
        what="",
        writes=12.0,
        reads=3.0,
        requests=8.0,
        dollars=8.0,
        bar=Bar(requests=7, dollars=8),
        by_cause={},
    )
    assert cost.above() == ["direct: 8.0 requests, not 7"]
    assert cost.above(Bar(writes=11.9, requests=8)) == ["direct: 12.0 writes, not 11.9"]
