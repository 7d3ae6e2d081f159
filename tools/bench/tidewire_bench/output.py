"""Prints figures."""

from collections.abc import Iterable, Sequence

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tidewire.runtime.console import EXIT_CHECK_FAILED, say, tell
from tidewire_bench.compare import Comparison, Side
from tidewire_bench.entries import EntryCost
from tidewire_bench.figures import Figures
from tidewire_bench.flatness import shown
from tidewire_bench.ingest import Level
from tidewire_bench.mixes import Bar, Cost
from tidewire_bench.soak import SoakFigures


def show(figures: Figures, *, is_json: bool) -> None:
    """Print one run: the figures on stdout, faults on stderr. Exits with 1 if there are faults."""
    if is_json:
        show_json(figures)
    else:
        tell(f"{figures.workload} ({figures.durability})")
        for name, text in _lines(figures):
            tell(f"  {name:<34}{text}", indent=" " * 36)
    _end_if_wrong(figures)


def show_json(result: object) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())


def _end_if_wrong(figures: Figures | SoakFigures, complaints: Sequence[str] = ()) -> None:
    for complaint in complaints:
        say(f"GREW OR BROKE: {complaint}")
    for fault in figures.faults:
        say(f"FAULT: {fault}")
    if figures.fault_count > len(figures.faults):
        say(f"and {figures.fault_count - len(figures.faults)} more faults")
    if figures.fault_count or complaints:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _lines(figures: Figures) -> Iterable[tuple[str, str]]:
    quantities = (
        ("messages/s", figures.messages_per_s, ",.0f", ""),
        ("deliveries/s", figures.deliveries_per_s, ",.0f", ""),
        ("connections", figures.connections, ",d", ""),
        ("connections accepted/s", figures.connections_per_s, ",.0f", ""),
        ("send to ack p50", figures.ack_p50_ms, ".2f", " ms"),
        ("send to ack p99", figures.ack_p99_ms, ".2f", " ms"),
        ("send to delivered p50", figures.delivered_p50_ms, ".2f", " ms"),
        ("send to delivered p99", figures.delivered_p99_ms, ".2f", " ms"),
        ("server unreachable for", figures.unreachable_s, ".2f", " s"),
        ("then 50 % complete after", figures.half_s, ".2f", " s"),
        ("then 99 % complete after", figures.most_s, ".2f", " s"),
        ("then all complete after", figures.all_s, ".2f", " s"),
        ("from its try to complete p50", figures.try_half_s, ".2f", " s"),
        ("from its try to complete p99", figures.try_most_s, ".2f", " s"),
        ("server CPU per client", figures.server_cpu_ms_per_client, ".2f", " ms"),
        ("server RSS growth per connection", figures.server_rss_kb_per_connection, ".1f", " KB"),
        ("server RSS", figures.server_rss_mb, ".1f", " MB"),
        ("server RSS, highest", figures.server_rss_mb_highest, ".1f", " MB"),
        ("server CPU per 1000 messages", figures.server_cpu_s_per_1000, ".3f", " s"),
        ("fan-out CPU per 1000 messages", figures.fanout_cpu_s_per_1000, ".3f", " s"),
        ("generator CPU per 1000 messages", figures.generator_cpu_s_per_1000, ".3f", " s"),
        ("generator CPU", figures.generator_cpu_s, ".1f", " s"),
        ("messages in an append", figures.mean_batch, ".1f", ""),
        ("the database's limit, messages/s", figures.database_limit_per_s, ",.0f", ""),
        ("of that limit", figures.part_of_limit, ".0%", ""),
        ("pushes that came again", figures.repeated_pushes, ",d", ""),
    )
    for name, value, form, unit in quantities:
        if value is not None:
            yield name, f"{value:{form}}{unit}"
    if figures.generator_was_the_limit:
        yield "limit", "the generator was the limit: it used its whole core"
    if figures.incomplete:
        yield "incomplete", f"{figures.incomplete} clients"
    if figures.errors:
        yield "errors", ", ".join(f"{kind} {count}" for kind, count in figures.errors.items())
    if figures.limits:
        yield "settings", ", ".join(f"{name}={value}" for name, value in figures.limits.items())


def show_soak(figures: SoakFigures, *, is_json: bool) -> None:
    """Print a long run: what was watched on stdout, faults on stderr. Exits with 1 on a fault."""
    if is_json:
        show_json(figures)
    else:
        _show_soak(figures)
    _end_if_wrong(figures, figures.complaints)


def _show_soak(figures: SoakFigures) -> None:
    tell(
        f"soak of {figures.seconds:.0f} s: {figures.messages} messages ({figures.messages_per_s} "
        f"a second) of {figures.connections} clients, {figures.deliveries} deliveries"
    )
    table = _table("watched", "first", "last", "highest", "judged", "allowed", "")
    for line in figures.watched:
        name = f"{line.what}, {line.unit}" if line.unit else line.what
        values = (line.first, line.last, line.highest, line.judged, line.allowed)
        verdict = "" if line.is_flat else "NO"
        table.add_row(name, *(shown(value, line.unit) for value in values), verdict)
    Console(highlight=False).print(table)
    tell("Judged is growth, of what has a bound the highest or the median.")
    for name, counts in (("done", figures.done), ("errors", figures.errors)):
        told = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        tell(f"{name}: {told}", indent="  ")
    tell(
        f"SIGTERM ended it in {figures.stop_s} s; verify: {figures.verified}. This tool used "
        f"{figures.generator_rss_mb} MB and remembered at most {figures.remembered_highest} "
        "messages at a time.",
        indent="  ",
    )


def show_comparison(done: Sequence[Comparison], *, is_json: bool) -> None:
    """Print the product beside the sketch."""
    if is_json:
        show_json({"points": done})
        return
    table = _table("synced", "msgs/s", "dlv/s", "ack p50", "ack p99", "srv CPU", "gen CPU")
    for point in done:
        table.add_row(point.workload)
        table.add_row("  sketch", *_cells(point.sketch))
        table.add_row("  tidewire", *_cells(point.product))
        table.add_row("  ratio", *_ratio_cells(point))
        table.add_row("  without batch", *_cells(point.bare))
        table.add_row("  ratio", *_bare_ratio_cells(point))
    Console(highlight=False).print(table)
    tell("Times in ms, CPU in seconds per 1000 messages.")
    for point in done:
        spreads = (("sketch", point.sketch_spread), ("tidewire", point.product_spread))
        told = ", ".join(f"{name} {value:.0%}" for name, value in spreads if value is not None)
        tell(f"{point.workload}: throughput between the rounds differed by {told}.")
        if point.is_void:
            tell(
                f"{point.workload}: the generators differ by more than 20 %, so compare the "
                "servers' CPU instead of the throughput."
            )


def _cells(side: Side) -> tuple[str, ...]:
    return (
        f"{side.messages_per_s:,.0f}",
        f"{side.deliveries_per_s:,.0f}",
        f"{side.ack_p50_ms:.2f}",
        f"{side.ack_p99_ms:.2f}",
        f"{side.server_cpu_s_per_1000:.3f}",
        f"{side.generator_cpu_s_per_1000:.3f}",
    )


def _throughput_cells(point: Comparison, ratio: float | None) -> tuple[str, str]:
    return ("", _ratio(ratio)) if point.workload.startswith("group") else (_ratio(ratio), "")


def _bare_ratio_cells(point: Comparison) -> tuple[str, ...]:
    throughput = _throughput_cells(point, point.bare_throughput_ratio)
    return (*throughput, "", "", _ratio(point.bare_server_cpu_ratio), "")


def _ratio_cells(point: Comparison) -> tuple[str, ...]:
    return (
        *_throughput_cells(point, point.throughput_ratio),
        _ratio(point.ack_p50_ratio),
        "",
        _ratio(point.server_cpu_ratio),
        _ratio(point.generator_cpu_ratio),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def show_levels(levels: Sequence[Level], *, is_json: bool) -> None:
    """Print durable appends beside the ceiling."""
    if is_json:
        shares = ("share_of_ceiling", "p50_ratio")
        rows = [
            {**msgspec.to_builtins(level), **{name: getattr(level, name) for name in shares}}
            for level in levels
        ]
        show_json({"levels": rows})
        return
    names = ("messages/s", "ceiling", "share", "p50 ms", "ceiling", "p99 ms", "CPU µs")
    table = _table("senders", *names)
    for level in levels:
        product, ceiling = level.product, level.ceiling
        table.add_row(
            f"{level.senders:>7}",
            f"{product.messages_per_s:,.0f}",
            f"{ceiling.messages_per_s:,.0f}",
            f"{level.share_of_ceiling:.0%}",
            f"{product.p50_ms:.2f}",
            f"{ceiling.p50_ms:.2f}",
            f"{product.p99_ms:.2f}",
            f"{product.cpu_us_per_message:.0f}",
        )
    Console(highlight=False).print(table)


def show_costs(costs: Sequence[Cost], *, is_json: bool) -> None:
    """Print the mixes of `bench units`, then each by cause. Exits with 1 above a bar."""
    if is_json:
        show_json(costs)
    else:
        table = _table("a message", "W", "R", "requests", "$/M", "bar")
        for cost in costs:
            numbers = (cost.writes, cost.reads, cost.requests, cost.dollars)
            table.add_row(cost.mix, *map(str, numbers), _bar(cost.bar))
        Console(highlight=False).print(table)
        for cost in costs:
            parts = _table(f"{cost.mix}, by cause", "W", "R", "requests")
            for name, part in cost.by_cause.items():
                columns = (part.get(one) for one in ("writes", "reads", "requests"))
                parts.add_row(name, *("" if one is None else str(one) for one in columns))
            Console(highlight=False).print(parts)
    complaints = [sentence for cost in costs for sentence in cost.above()]
    for complaint in complaints:
        say(f"ABOVE ITS BAR: {complaint}")
    if complaints:
        raise typer.Exit(EXIT_CHECK_FAILED)


def show_entry_costs(costs: Sequence[EntryCost], *, is_json: bool) -> None:
    """Print entries beside messages. Exits with 1 above a bar."""
    if is_json:
        show_json(costs)
    else:
        table = _table("CPU of the store, µs", "it", "beside it", "ratio", "quartiles", "bar")
        for cost in costs:
            table.add_row(
                cost.what,
                f"{cost.cost_us:.1f}",
                f"{cost.beside_us:.1f}",
                f"{cost.ratio:.2f}",
                f"{cost.low_quartile:.2f} to {cost.high_quartile:.2f}",
                f"{cost.bar:g}",
            )
        Console(highlight=False).print(table)
    for cost in costs:
        if not cost.is_held:
            say(f"ABOVE ITS BAR: {cost.what} costs {cost.ratio:.2f} times a {cost.beside}")
    if not all(cost.is_held for cost in costs):
        raise typer.Exit(EXIT_CHECK_FAILED)


def _bar(bar: Bar) -> str:
    units = {"writes": "W", "reads": "R", "requests": "requests", "dollars": "$/M"}
    return ", ".join(
        f"{most:g} {units[name]}"
        for name, most in msgspec.structs.asdict(bar).items()
        if most is not None
    )
