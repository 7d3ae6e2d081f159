"""Commands that come with other distributions: `tidewire bench`, `tidewire conformance`.

Such a distribution names a Typer app as an entry point of the group `tidewire.commands`. Nothing of
it is imported before its command is used. If it is not installed, the command says how to get it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import typer

from tidewire.runtime.console import Commands, fail

if TYPE_CHECKING:
    from typer._click import Command, Context

GROUP: Final = "tidewire.commands"
TOOLS: Final = {
    "bench": "Measure this machine.",
    "conformance": "Check a client, in any language.",
}


class CommandsAndTools(Commands):
    """All commands, those of installed tools included."""

    def resolve_command(
        self, ctx: "Context", args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        name, command, rest = super().resolve_command(ctx, args)
        if name in TOOLS:
            command = _installed(name) or command
        return name, command, rest


def add_tools(app: typer.Typer) -> None:
    """List the tools among the commands, installed or not."""
    for name, summary in TOOLS.items():
        app.command(
            name,
            help=summary,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_how_to_get(name))


def _installed(name: str) -> "Command | None":
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        return typer.main.get_command(entry.load())
    return None


def _how_to_get(name: str) -> Callable[[], None]:
    def command() -> None:
        fail(f"'tidewire {name}' is not installed; pip install tidewire-{name}")

    return command
