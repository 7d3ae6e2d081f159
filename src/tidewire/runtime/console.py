"""How commands print: results on stdout, all else on stderr, no traceback for an expected error.

Exit codes: 0 done, 1 a check failed, 2 it could not be done (usage, a store that cannot be used),
130 stopped by Ctrl-C.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

import typer

# typer carries its own copy of click and exports only some of its errors.
from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError
from typer.core import TyperGroup

from tidewire.domain.errors import TidewireError
from tidewire.ports.inspection import Damaged

if TYPE_CHECKING:
    from pathlib import Path

    from typer._click import Context

EXIT_CHECK_FAILED: Final = 1
EXIT_NOT_DONE: Final = 2
EXIT_INTERRUPTED: Final = 130
CHAT_VENDOR: Final = "textual"
"""A package that the extra `chat` installs and `server` does not."""


class Commands(TyperGroup):
    """All commands. Prints usage errors in the same form as all other errors of ours."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            result = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except NoArgsIsHelpError as help_wanted:
            help_wanted.show()
            sys.exit(help_wanted.exit_code)
        except ClickException as fault:
            say(f"error: {_usage_sentence(fault)}")
            sys.exit(EXIT_NOT_DONE)
        except typer.Abort:
            say("stopped")
            sys.exit(EXIT_INTERRUPTED)
        if standalone_mode:
            sys.exit(result if isinstance(result, int) else os.EX_OK)
        return result

    def invoke(self, ctx: "Context") -> Any:
        with errors_told():
            return super().invoke(ctx)


def _usage_sentence(fault: ClickException) -> str:
    sentence = fault.format_message().removesuffix(".")
    sentence = sentence[:1].lower() + sentence[1:]
    if isinstance(fault, UsageError) and fault.ctx is not None:
        sentence += f" (see '{fault.ctx.command_path} --help')"
    return sentence


@contextmanager
def errors_told() -> Iterator[None]:
    """Turn expected errors into a sentence and an exit code."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "tidewire":
            raise
        extra = "chat" if missing.name == CHAT_VENDOR else "server"
        fail(f"{missing.name} is not installed; pip install 'tidewire[{extra}]'")
    except TidewireError as error:
        fail(str(error))
    except Damaged as damage:
        fail(str(damage.as_unusable()))
    except BrokenPipeError:
        # The reader of our output has gone, which is no error of ours. Python would report it once
        # more when it closes stdout, so stdout is sent to /dev/null from here on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_NOT_DONE) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        fail(f"{place}{error.strerror or error}")
    except KeyboardInterrupt:
        say("stopped")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def fail(sentence: str) -> NoReturn:
    """Print what happened and what to do, and exit."""
    say(f"error: {sentence}")
    raise typer.Exit(EXIT_NOT_DONE)


def fail_all(sentences: Sequence[str]) -> NoReturn:
    """Print all faults, a line each, and exit."""
    for sentence in sentences:
        say(f"error: {sentence}")
    raise typer.Exit(EXIT_NOT_DONE)


def say(text: str) -> None:
    """Print a sentence on stderr."""
    _print(f"tidewire: {text}", sys.stderr, "  ")


def tell(text: str, indent: str = "") -> None:
    """Print a sentence of the result on stdout; lines after its first begin with `indent`."""
    _print(text, sys.stdout, indent)


def tell_copies(copies: Iterable["Path | str"]) -> None:
    """Name the copies that a deletion does not reach."""
    copies = list(copies)
    if copies:
        tell("These copies still hold what was deleted since they were made:")
    for copy in copies:
        tell(f"- {copy}")
    tell("Backups that were put elsewhere hold it as well.")


def _print(text: str, stream: TextIO, indent: str) -> None:
    """Wrapped for a person at a terminal; for programs one sentence is one line."""
    if stream.isatty():
        text = textwrap.fill(
            text,
            width=max(40, shutil.get_terminal_size().columns),
            subsequent_indent=indent,
            # Ids and file names are copied from here: they stay whole.
            break_long_words=False,
            break_on_hyphens=False,
        )
    typer.echo(text, file=stream)


def print_json(value: object) -> None:
    """Print a result for programs."""
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar on stderr if that is a terminal; it is gone when the work is done."""
    if not sys.stderr.isatty():
        yield _no_bar
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    shown = ""
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(stage: str, done: int, total: int | None) -> None:
            nonlocal shown
            if stage != shown:
                # A new bar, because the old one would keep its total.
                for task in progress.task_ids:
                    progress.remove_task(task)
                progress.add_task(stage, total=total)
                shown = stage
            progress.update(progress.task_ids[0], completed=done)

        yield show


def _no_bar(stage: str, done: int, total: int | None) -> None:
    """Shows nothing."""
