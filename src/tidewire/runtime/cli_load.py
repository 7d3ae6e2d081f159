"""Load on a whole server: `tidewire bench pairs|group|idle|storm|catch-up|soak|compare`."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidewire.runtime.cli_options import load_settings
from tidewire.runtime.console import EXIT_CHECK_FAILED, errors_told, progress_bar, say

if TYPE_CHECKING:
    from tidewire.ops.load.cluster import ClusterGround
    from tidewire.ops.load.figures import Figures
    from tidewire.ops.load.run import OwnGround
    from tidewire.ops.load.workload import Progress, Timing, Workload

PREFIX: Final = "TIDEWIRE_"
SKETCH_VARIABLE: Final = "TIDEWIRE_SKETCH_DIR"
SKETCH_DIR: Final = Path("../shared/bench")

LIMITS: Final = {
    "gateway.send_chat_rate_per_second": "1000000",
    "gateway.send_chat_burst": "1000000",
    "gateway.send_user_rate_per_second": "1000000",
    "gateway.send_user_burst": "1000000",
    "gateway.requests_waiting_max": "1000",
    "gateway.ip_connects_per_minute": "10000000",
    "gateway.user_connects_per_minute": "10000",
    "gateway.page_bytes_per_second": "1000000000",
    "gateway.page_burst_bytes": "1000000000",
    "server.address_connections_max": "1000000",
    "server.address_http_connections_max": "10000",
    "server.http_connections_max": "100000",
    "server.inbound_bytes_per_second": "1000000000",
    "server.inbound_burst_bytes": "1000000000",
    "log.level": "warning",
    "sqlite.synchronous": "FULL",
}
"""What a server of ours is started with: its limiters stay in the path, but do not hold. How it
stores is named as well, because the figures say so."""

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A running server, http://HOST:PORT. Default: start one in a fresh directory.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where to put the database: the disk to measure. Default: here."
    ),
]
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
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
Window = Annotated[
    int, typer.Argument(metavar="W", min=1, max=1000, help="Messages outstanding per sender.")
]


def add_load_commands(bench_app: typer.Typer) -> None:
    """Put them beside the other benchmarks."""
    for command in (pairs, group, idle, storm, soak, compare):
        bench_app.command()(command)
    bench_app.command("catch-up")(catch_up)


def pairs(
    count: Annotated[int, typer.Argument(metavar="P", min=1, help="Pairs.")],
    window: Window,
    url: Url = None,
    data_dir: DataDir = None,
    cluster: Cluster = False,
    seconds: Seconds = 10.0,
    warm_up: WarmUp = 2.0,
    json: Json = False,
) -> None:
    """P senders, P receivers, each pair in a chat of its own.

    A message counts when it was acknowledged and arrived. The exit code is 1 if one that was
    acknowledged did not arrive exactly once and in order.
    """
    with errors_told():
        from tidewire.ops.load.talk import TalkLoad

        if cluster:
            timing = _timing(seconds, warm_up)
            load = TalkLoad.pairs(count, window)
            _run_on_cluster(load, count, window, timing, data_dir, json)
            return
        _run(TalkLoad.pairs(count, window), url, data_dir, _timing(seconds, warm_up), json)


def group(
    members: Annotated[int, typer.Argument(metavar="M", min=3, max=1000, help="Members.")],
    window: Window,
    url: Url = None,
    data_dir: DataDir = None,
    seconds: Seconds = 10.0,
    warm_up: WarmUp = 2.0,
    json: Json = False,
) -> None:
    """One chat of M members, all connected, one of them sending."""
    with errors_told():
        from tidewire.ops.load.talk import TalkLoad

        _run(TalkLoad.group(members, window), url, data_dir, _timing(seconds, warm_up), json)


def idle(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="Connections.")],
    url: Url = None,
    data_dir: DataDir = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long all are quiet.")] = 10.0,
    json: Json = False,
) -> None:
    """N connections, logged in, in three chats each, quiet."""
    with errors_told():
        from tidewire.ops.load.idle import IdleLoad

        _run(IdleLoad(count), url, data_dir, _timing(seconds), json)


def storm(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="Clients.")],
    url: Url = None,
    data_dir: DataDir = None,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="How long the last one is waited for.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """N clients lose their connections at once and come back.

    A server of our own is killed and started again; on one given by URL the clients let go of
    their sockets.
    """
    with errors_told():
        from tidewire.ops.load.storm import StormLoad
        from tidewire.ops.load.workload import Timing

        _run(StormLoad(count), url, data_dir, Timing(give_up_s=seconds), json)


def catch_up(
    count: Annotated[int, typer.Argument(metavar="M", min=1, help="Messages.")],
    url: Url = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """One client, M messages behind in one chat."""
    with errors_told():
        from tidewire.ops.load.catch_up import CatchUpLoad

        _run(CatchUpLoad(count), url, data_dir, _timing(10.0), json)


def soak(
    data_dir: DataDir = None,
    seconds: Annotated[float, typer.Option(min=10.0, help="How long it goes on.")] = 60.0,
    json: Json = False,
) -> None:
    """Mixed load for a long time: all delivered, nothing grown?

    People talk, come and go and ask over REST, some of them badly. The exit code is 1 if a message
    that was acknowledged did not arrive exactly once and in order, if memory, files, tasks or
    threads grew, or if the stopped server's data does not verify.
    """
    with errors_told():
        import uvloop

        from tidewire.ops.load.soak import LIMITS as SOAK_LIMITS
        from tidewire.ops.load.soak import run_soak
        from tidewire.runtime import load_output

        with progress_bar() as progress, _fresh_directory(data_dir) as directory:
            ground = _ground(directory, {**LIMITS, **SOAK_LIMITS})
            figures = uvloop.run(run_soak(ground, seconds, progress))
        load_output.show_soak(figures, is_json=json)
        if figures.fault_count or figures.complaints:
            raise typer.Exit(EXIT_CHECK_FAILED)


def compare(
    sketch_dir: Annotated[
        Path,
        typer.Option(
            envvar=SKETCH_VARIABLE, metavar="DIR", help="Where sketch_server.py is, if it is."
        ),
    ] = SKETCH_DIR,
    data_dir: DataDir = None,
    seconds: Seconds = 10.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is repeated.")] = 3,
    json: Json = False,
) -> None:
    """Tidewire and the sketch in turns: medians and ratios."""
    with errors_told():
        from tidewire.ops.load import compare as comparing
        from tidewire.runtime import load_output

        with _fresh_directory(data_dir) as directory:
            wanted = comparing.Compared(
                sketch_dir=sketch_dir,
                work_dir=directory,
                environment=_environment(),
                rounds=rounds,
                measured_s=seconds,
            )
            if not wanted.has_sketch:
                say(f"there is no sketch in {sketch_dir}: Tidewire is measured alone")
            done = comparing.compare(wanted, _show_stage)
        _show_stage("")
        load_output.show_comparison(done, is_json=json)


def _show_stage(stage: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r\x1b[K{stage}", nl=False, err=True)


def _timing(seconds: float, warm_up: float = 2.0) -> "Timing":
    from tidewire.ops.load.workload import Timing

    return Timing(warm_up_s=warm_up, measured_s=seconds)


def _run(
    workload: "Workload", url: str | None, data_dir: Path | None, timing: "Timing", is_json: bool
) -> None:
    from tidewire.runtime import load_output

    with progress_bar() as progress:
        if url is None:
            with _fresh_directory(data_dir) as directory:
                figures = _run_on_own_server(workload, directory, timing, progress)
        else:
            figures = _run_on_url(workload, url, timing, progress)
    load_output.show(figures, is_json=is_json)
    if figures.fault_count:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _run_on_own_server(
    workload: "Workload", directory: Path, timing: "Timing", progress: "Progress"
) -> "Figures":
    import uvloop

    from tidewire.ops.load.run import run_on_own_server

    ground = _ground(directory, LIMITS)
    return uvloop.run(run_on_own_server(workload, ground, timing, progress))


def _run_on_cluster(
    workload: "Workload",
    chats: int,
    window: int,
    timing: "Timing",
    data_dir: Path | None,
    is_json: bool,
) -> None:
    import uvloop

    from tidewire.runtime import load_output
    from tidewire.runtime.cli_cluster import check_vendors

    check_vendors()
    from tidewire.ops.load.cluster import run_on_cluster

    with progress_bar() as progress, _fresh_directory(data_dir) as directory:
        ground = _cluster_ground(directory)
        figures = uvloop.run(run_on_cluster(workload, chats, window, ground, timing, progress))
    load_output.show(figures, is_json=is_json)
    if figures.fault_count:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _cluster_ground(directory: Path) -> "ClusterGround":
    """Tables, topics and routes of this run's own, on the servers that the settings name."""
    import secrets
    from dataclasses import replace

    from tidewire.engines.kafka.topics import create_topics, delete_topics
    from tidewire.ops.load.cluster import ClusterGround
    from tidewire.ops.load.target import Launch
    from tidewire.runtime.clock import SystemClock
    from tidewire.runtime.id_source import id_source
    from tidewire.runtime.secret_files import token_key

    config = load_settings(None).config
    run = f"bench{secrets.token_hex(3)}_"
    dynamodb = replace(config.dynamodb, table_prefix=run)
    kafka = replace(config.kafka, topic_prefix=run, replication_factor=1, insync_replicas_min=1)
    key_file = directory / "token.key"
    settings = LIMITS | {
        "dynamodb.table_prefix": run,
        "kafka.topic_prefix": run,
        "redis.key_prefix": run,
        "cluster.token_key_file": str(key_file),
    }
    environment = dict(os.environ) | {_variable(name): text for name, text in settings.items()}

    def launch(role: str) -> Launch:
        return Launch(directory / role, environment | {_variable("cluster.role"): role})

    return ClusterGround(
        gateway=launch("gateway"),
        fanout=launch("fanout"),
        dynamodb=dynamodb,
        make_topics=lambda: _ignore(create_topics(kafka)),
        delete_topics=lambda: delete_topics(kafka),
        secret=token_key(directory, key_file),
        limits=LIMITS,
        clock=SystemClock(),
        ids=id_source(),
    )


def _ignore(_: object) -> None:
    """What was made is known."""


def _ground(directory: Path, limits: Mapping[str, str]) -> "OwnGround":
    from tidewire.ops.load.run import OwnGround
    from tidewire.ops.load.target import Launch
    from tidewire.runtime.clock import SystemClock
    from tidewire.runtime.id_source import id_source
    from tidewire.runtime.secret_files import token_key

    raised = {_variable(name): value for name, value in limits.items()}
    return OwnGround(
        launch=Launch(directory / "data", _environment() | raised),
        token_key=token_key,
        limits=limits,
        clock=SystemClock(),
        ids=id_source(),
    )


def _run_on_url(
    workload: "Workload", url: str, timing: "Timing", progress: "Progress"
) -> "Figures":
    import uvloop

    from tidewire.ops.load.run import run_on_url

    return uvloop.run(run_on_url(workload, url, timing, progress))


@contextmanager
def _fresh_directory(parent: Path | None) -> Iterator[Path]:
    """A directory for this run, deleted afterwards."""
    place = Path.cwd() if parent is None else parent
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-", dir=place) as directory:
        yield Path(directory)


def _environment() -> dict[str, str]:
    """Ours, without settings of a server: those of a measured one are all known."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def _variable(setting: str) -> str:
    return PREFIX + setting.replace(".", "_").upper()
