"""How the figures of a load are said."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from tidewire.runtime.console import say, tell

if TYPE_CHECKING:
    from tidewire.ops.load.compare import Comparison, Side
    from tidewire.ops.load.figures import Figures
    from tidewire.ops.load.soak import SoakFigures


def show(figures: "Figures", *, is_json: bool) -> None:
    """One run: on stdout the figures, on stderr what is wrong with them."""
    if is_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
    else:
        tell(f"{figures.workload} ({figures.durability})")
        for name, text in _lines(figures):
            tell(f"  {name:<34}{text}", indent=" " * 36)
    for fault in figures.faults:
        say(f"FAULT: {fault}")
    if figures.fault_count > len(figures.faults):
        say(f"and {figures.fault_count - len(figures.faults)} more faults")


def _lines(figures: "Figures") -> Iterable[tuple[str, str]]:
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


def show_soak(figures: "SoakFigures", *, is_json: bool) -> None:
    """A long run: what was watched on stdout, what is wrong on stderr."""
    if is_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
    else:
        _show_soak(figures)
    for complaint in figures.complaints:
        say(f"GREW OR BROKE: {complaint}")
    for fault in figures.faults:
        say(f"FAULT: {fault}")
    if figures.fault_count > len(figures.faults):
        say(f"and {figures.fault_count - len(figures.faults)} more faults")


def _show_soak(figures: "SoakFigures") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tidewire.ops.load.flatness import shown

    tell(
        f"soak of {figures.seconds:.0f} s: {figures.messages} messages ({figures.messages_per_s} "
        f"a second) of {figures.connections} clients, {figures.deliveries} deliveries"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("watched", no_wrap=True)
    for name in ("first", "last", "highest", "judged", "allowed", ""):
        table.add_column(name, justify="right", no_wrap=True)
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


def show_comparison(done: "Sequence[Comparison]", *, is_json: bool) -> None:
    """Product beside sketch."""
    if is_json:
        text = msgspec.json.format(msgspec.json.encode({"points": done}), indent=2).decode()
        typer.echo(text)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("synced", no_wrap=True)
    for name in ("msgs/s", "dlv/s", "ack p50", "ack p99", "srv CPU", "gen CPU"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in done:
        table.add_row(point.workload)
        if point.sketch is not None:
            table.add_row("  sketch", *_cells(point.sketch))
        table.add_row("  tidewire", *_cells(point.product))
        if point.sketch is not None:
            table.add_row("  ratio", *_ratio_cells(point))
    Console(highlight=False).print(table)
    tell("Times in ms, CPU in seconds per 1000 messages.")
    for point in done:
        spreads = (("sketch", point.sketch_spread), ("tidewire", point.product_spread))
        told = ", ".join(f"{name} {value:.0%}" for name, value in spreads if value is not None)
        tell(f"{point.workload}: throughput between the rounds differed by {told}.")
        if point.is_too_coarse:
            tell(
                f"{point.workload}: too short to tell whether the generators differ by more than "
                "20 %, because the sketch rounds its own CPU to 0.1 s; give it more --seconds."
            )
        if point.is_void:
            tell(
                f"{point.workload}: the generators differ by more than 20 %, so compare the "
                "servers' CPU instead of the throughput."
            )


def _cells(side: "Side") -> tuple[str, ...]:
    return (
        f"{side.messages_per_s:,.0f}",
        f"{side.deliveries_per_s:,.0f}",
        f"{side.ack_p50_ms:.2f}",
        f"{side.ack_p99_ms:.2f}",
        f"{side.server_cpu_s_per_1000:.3f}",
        f"{side.generator_cpu_s_per_1000:.3f}",
    )


def _ratio_cells(point: "Comparison") -> tuple[str, ...]:
    is_group = point.workload.startswith("group")
    throughput = _ratio(point.throughput_ratio)
    return (
        "" if is_group else throughput,
        throughput if is_group else "",
        _ratio(point.ack_p50_ratio),
        "",
        _ratio(point.server_cpu_ratio),
        _ratio(point.generator_cpu_ratio),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
