"""The commands `tidewire bench …`: they wire a benchmark of `ops/` and print what it measured."""

import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidewire.runtime.cli_load import add_load_commands
from tidewire.runtime.console import errors_told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tidewire.ops.bench import Level, Machine
    from tidewire.ops.endurance import Endurance

bench_app: Final = typer.Typer(
    help="Measure this machine.", no_args_is_help=True, rich_markup_mode=None
)


@bench_app.callback()
def bench() -> None:
    """Measure how fast Tidewire is on this machine."""


add_load_commands(bench_app)


@bench_app.command()
def ingest(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to put the databases: the disk to measure. Default: this directory.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each measurement takes.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is repeated.")] = 3,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, for programs.")
    ] = False,
) -> None:
    """Durable messages a second, beside a bare loop's.

    Each message is on the disk before it counts. Product and ceiling take turns
    with 1, 8, 64 and 256 senders. The databases are deleted afterwards.
    """
    with errors_told():
        import uvloop

        with _directory(data_dir) as directory:
            levels = uvloop.run(_measure(directory, seconds, rounds))
        if json:
            _print_json(levels)
        else:
            _print_table(levels)


@bench_app.command()
def endurance(
    messages: Annotated[
        int, typer.Option(min=1_000, help="How many messages to store.")
    ] = 1_000_000,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to put the database: 600 bytes a message. Default: this directory.",
        ),
    ] = None,
) -> None:
    """Store many messages, verify them, and show the memory.

    The memory of the process must not grow with the number of messages.
    """
    with errors_told():
        import msgspec
        import uvloop

        with _directory(data_dir) as directory:
            result = uvloop.run(_endure(directory, messages))
        _show_progress("")
        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())


@contextmanager
def _directory(parent: Path | None) -> "Iterator[Path]":
    """A directory on the disk to measure, gone afterwards."""
    import tempfile

    parent = Path.cwd() if parent is None else parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-", dir=parent) as directory:
        yield Path(directory)


async def _measure(directory: Path, seconds: float, rounds: int) -> "list[Level]":
    from tidewire.ops.bench import bench_ingest

    async with _machine() as machine:
        return await bench_ingest(
            directory, machine, seconds=seconds, rounds=rounds, progress=_show_progress
        )


async def _endure(directory: Path, messages: int) -> "Endurance":
    from tidewire.ops.endurance import endure

    async with _machine() as machine:
        return await endure(directory, machine, messages=messages, progress=_show_progress)


@asynccontextmanager
async def _machine() -> "AsyncIterator[Machine]":
    from tidewire.ops.bench import Machine
    from tidewire.runtime.clock import SystemClock
    from tidewire.runtime.id_source import id_source
    from tidewire.runtime.supervise import TaskSupervisor

    tasks = TaskSupervisor()
    try:
        yield Machine(SystemClock(), tasks, id_source())
    finally:
        await tasks.close()


def _show_progress(stage: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r\x1b[K{stage}", nl=False, err=True)


def _print_json(levels: "Sequence[Level]") -> None:
    import msgspec

    rows = [
        {
            **msgspec.to_builtins(level),
            "share_of_ceiling": level.share_of_ceiling,
            "p50_ratio": level.p50_ratio,
        }
        for level in levels
    ]
    typer.echo(msgspec.json.format(msgspec.json.encode({"levels": rows}), indent=2).decode())


def _print_table(levels: "Sequence[Level]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    _show_progress("")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = ("senders", "messages/s", "ceiling", "share", "p50 ms", "ceiling", "p99 ms", "CPU µs")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for level in levels:
        product, ceiling = level.product, level.ceiling
        table.add_row(
            str(level.senders),
            f"{product.messages_per_s:,.0f}",
            f"{ceiling.messages_per_s:,.0f}",
            f"{level.share_of_ceiling:.0%}",
            f"{product.p50_ms:.2f}",
            f"{ceiling.p50_ms:.2f}",
            f"{product.p99_ms:.2f}",
            f"{product.cpu_us_per_message:.0f}",
        )
    Console(highlight=False).print(table)
