"""The commands `tidewire bench …`: each wires a benchmark and prints what it measured."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop

from tidewire.runtime.console import errors_told, progress_bar
from tidewire_bench import output
from tidewire_bench.catch_up import CatchUpLoad
from tidewire_bench.compare import Compared, compare_all
from tidewire_bench.endurance import endure
from tidewire_bench.entries import BATCH, bench_entries
from tidewire_bench.idle import IdleLoad
from tidewire_bench.ingest import bench_ingest
from tidewire_bench.mixes import BY_NAME, MIXES, described
from tidewire_bench.run import run_on_own_server, run_on_url
from tidewire_bench.soak import run_soak
from tidewire_bench.storm import StormLoad
from tidewire_bench.talk import TalkLoad
from tidewire_bench.target import fresh_directory
from tidewire_bench.workload import Timing, Workload

bench_app: Final = typer.Typer(
    help="Measure this machine.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A running server, http://HOST:PORT. Default: start one in a fresh directory.",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Where to put the database: the disk to measure. Default: this directory.",
        show_default=False,
    ),
]
HERE: Final = Path()
Cluster = Annotated[
    bool,
    typer.Option(
        "--cluster",
        help="Start a gateway and a fan-out worker on the DynamoDB, Kafka and Redis of the "
        "settings, and measure the database alone before and after, with the same two requests.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long it is measured.")]
WarmUp = Annotated[float, typer.Option(min=0.0, help="How long it runs before that.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often each is repeated.")]
NoBatch = Annotated[
    bool, typer.Option("--no-batch", help="Do not offer arrays: every frame is sent bare.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
UNITS_HELP: Final = f"""What a message costs in DynamoDB's request units.

Everything included: append, delivered, read, ticks, outbox.

{described()}
"""
Window = Annotated[
    int, typer.Argument(metavar="W", min=1, max=1000, help="Messages outstanding per sender.")
]


@bench_app.callback()
def bench() -> None:
    """Measure how fast Tidewire is on this machine."""


@bench_app.command()
@errors_told()
def pairs(
    count: Annotated[int, typer.Argument(metavar="P", min=1, help="Pairs.")],
    window: Window,
    url: Url = None,
    data_dir: DataDir = HERE,
    cluster: Cluster = False,
    no_batch: NoBatch = False,
    seconds: Seconds = 10.0,
    warm_up: WarmUp = 2.0,
    json: Json = False,
) -> None:
    """P senders, P receivers, each pair in a chat of its own.

    A message counts when it was acknowledged and arrived. The exit code is 1 if one that was
    acknowledged did not arrive exactly once and in order. 'pairs 1 1' shows latency, 'pairs 100 4'
    throughput, 'pairs 500 1' what a message costs the server when many people write now and then.
    """
    load = TalkLoad.pairs(count, window, is_offering_batch=not no_batch)
    timing = Timing(warm_up_s=warm_up, measured_s=seconds)
    if not cluster:
        _run(load, url, data_dir, timing, json)
        return
    from tidewire.runtime.cli_cluster import check_vendors

    check_vendors()
    from tidewire_bench.cluster import run_on_cluster

    with progress_bar() as progress, fresh_directory(data_dir) as directory:
        figures = uvloop.run(run_on_cluster(load, count, window, directory, timing, progress))
    output.show(figures, is_json=json)


@bench_app.command()
@errors_told()
def changes(
    count: Annotated[int, typer.Argument(metavar="P", min=1, help="Pairs.")],
    window: Window,
    url: Url = None,
    data_dir: DataDir = HERE,
    no_batch: NoBatch = False,
    seconds: Seconds = 10.0,
    warm_up: WarmUp = 2.0,
    json: Json = False,
) -> None:
    """As 'pairs', with edits and reactions among the messages.

    Of every ten entries of a sender six are messages, two edit an earlier one and two react to one.
    Each counts as a message does: when it was acknowledged and arrived, once and in order.
    """
    load = TalkLoad.changes(count, window, is_offering_batch=not no_batch)
    _run(load, url, data_dir, Timing(warm_up_s=warm_up, measured_s=seconds), json)


@bench_app.command()
@errors_told()
def group(
    members: Annotated[int, typer.Argument(metavar="M", min=3, max=1000, help="Members.")],
    window: Window,
    url: Url = None,
    data_dir: DataDir = HERE,
    no_batch: NoBatch = False,
    seconds: Seconds = 10.0,
    warm_up: WarmUp = 2.0,
    json: Json = False,
) -> None:
    """One chat of M members, all connected, one of them sending."""
    timing = Timing(warm_up_s=warm_up, measured_s=seconds)
    load = TalkLoad.group(members, window, is_offering_batch=not no_batch)
    _run(load, url, data_dir, timing, json)


@bench_app.command()
@errors_told()
def idle(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="Connections.")],
    url: Url = None,
    data_dir: DataDir = HERE,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long all are quiet.")] = 10.0,
    json: Json = False,
) -> None:
    """N connections, logged in, in three chats each, quiet."""
    _run(IdleLoad(count), url, data_dir, Timing(measured_s=seconds), json)


@bench_app.command()
@errors_told()
def storm(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="Clients.")],
    url: Url = None,
    data_dir: DataDir = HERE,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="How long the last one is waited for.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """N clients lose their connections at once and come back.

    A server of our own is killed and started again; on one given by URL the clients drop their
    sockets.
    """
    _run(StormLoad(count), url, data_dir, Timing(give_up_s=seconds), json)


@bench_app.command("catch-up")
@errors_told()
def catch_up(
    count: Annotated[int, typer.Argument(metavar="M", min=1, help="Messages.")],
    url: Url = None,
    data_dir: DataDir = HERE,
    json: Json = False,
) -> None:
    """One client, M messages behind in one chat."""
    _run(CatchUpLoad(count), url, data_dir, Timing(), json)


@bench_app.command()
@errors_told()
def soak(
    data_dir: DataDir = HERE,
    seconds: Annotated[float, typer.Option(min=10.0, help="How long it goes on.")] = 60.0,
    json: Json = False,
) -> None:
    """Mixed load for a long time: all delivered, nothing grown?

    People talk, edit, delete and react, come and go and ask over REST, some of them badly. The exit
    code is 1 if something that was acknowledged did not arrive exactly once and in order, if a read
    showed what was deleted, if two people are shown different things, if memory, files, tasks or
    threads grew, or if the stopped server's data does not verify.
    """
    with progress_bar() as progress, fresh_directory(data_dir) as directory:
        figures = uvloop.run(run_soak(directory, seconds, progress))
    output.show_soak(figures, is_json=json)


@bench_app.command()
@errors_told()
def compare(
    data_dir: DataDir = HERE, seconds: Seconds = 10.0, rounds: Rounds = 3, json: Json = False
) -> None:
    """Tidewire and the sketch in turns: medians and ratios.

    At five points: 'pairs 1 1' (latency), 'pairs 25 8' and 'pairs 100 4' (throughput),
    'pairs 500 1' (many people with one message outstanding each), 'group 100 4'.
    """
    with fresh_directory(data_dir) as directory:
        wanted = Compared(work_dir=directory, rounds=rounds, measured_s=seconds)
        done = compare_all(wanted, _show_stage)
    _show_stage("")
    output.show_comparison(done, is_json=json)


@bench_app.command()
@errors_told()
def ingest(
    data_dir: DataDir = HERE, seconds: Seconds = 2.0, rounds: Rounds = 3, json: Json = False
) -> None:
    """Durable messages a second, beside a bare loop's.

    Each message is on the disk before it counts. Product and ceiling take turns
    with 1, 8, 64 and 256 senders. The databases are deleted afterwards.
    """
    with fresh_directory(data_dir) as directory:
        levels = uvloop.run(
            bench_ingest(directory, seconds=seconds, rounds=rounds, progress=_show_stage)
        )
    _show_stage("")
    output.show_levels(levels, is_json=json)


@bench_app.command()
@errors_told()
def entries(
    data_dir: DataDir = HERE,
    rounds: Annotated[int, typer.Option(min=2, help="How often each is repeated.")] = 40,
    batch: Annotated[int, typer.Option(min=1, max=500, help="Entries in an append.")] = BATCH,
    json: Json = False,
) -> None:
    """What edits, deletions and reactions cost, beside messages.

    Processor time of the store alone, in turns; and of a page of 100 messages with 10 reactions
    on each, beside a page without: of the store alone, and of a server that is asked for it. The
    exit code is 1 if a median is above its bar.
    """
    with fresh_directory(data_dir) as directory:
        costs = uvloop.run(
            bench_entries(directory, rounds=rounds, batch=batch, progress=_show_stage)
        )
    _show_stage("")
    output.show_entry_costs(costs, is_json=json)


@bench_app.command()
@errors_told()
def endurance(
    messages: Annotated[
        int, typer.Option(min=1_000, help="How many messages to store, 600 bytes each.")
    ] = 1_000_000,
    data_dir: DataDir = HERE,
) -> None:
    """Store many messages, verify them, and show the memory.

    The memory of the process must not grow with the number of messages.
    """
    with fresh_directory(data_dir) as directory:
        result = uvloop.run(endure(directory, messages=messages, progress=_show_stage))
    _show_stage("")
    output.show_json(result)


@bench_app.command(help=UNITS_HELP)
@errors_told()
def units(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Always to be given: one process has no units.")
    ] = False,
    mix: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    data_dir: DataDir = HERE,
    json: Json = False,
) -> None:
    wanted = list(MIXES) if mix is None else [BY_NAME[name] for name in mix if name in BY_NAME]
    if not cluster or len(wanted) < len(mix or ()):
        raise typer.BadParameter(
            "units are of a cluster's database: add --cluster"
            if not cluster
            else f"the mixes are {', '.join(BY_NAME)}"
        )
    from tidewire.runtime.cli_cluster import check_vendors

    check_vendors()
    from tidewire_bench.unit_run import measure_units

    with progress_bar() as progress, fresh_directory(data_dir) as directory:
        costs = uvloop.run(measure_units(wanted, directory, progress))
    output.show_costs(costs, is_json=json)


def _run(
    workload: Workload, url: str | None, data_dir: Path, timing: Timing, is_json: bool
) -> None:
    with progress_bar() as progress:
        if url is None:
            with fresh_directory(data_dir) as directory:
                run = run_on_own_server(workload, directory, timing, progress)
                figures = uvloop.run(run)
        else:
            figures = uvloop.run(run_on_url(workload, url, timing, progress))
    output.show(figures, is_json=is_json)


def _show_stage(stage: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r\x1b[K{stage}", nl=False, err=True)
