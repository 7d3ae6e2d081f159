"""`tidewire conformance`: `python -m tidewire_conformance` as a command of Tidewire's program."""

from typing import Final

import typer

from tidewire_conformance.__main__ import main

app: Final = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    # The options are those of the program, which explains and checks them itself.
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def conformance(context: typer.Context) -> None:
    """Check a client, in any language."""
    raise typer.Exit(main(context.args, program="tidewire conformance"))
