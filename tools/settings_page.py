"""Write docs/settings.md from the code: `make settings`.

The options are dataclasses; the text below a field says what it is for. A test compares the page
with the code, so that it cannot go stale.
"""

import ast
import dataclasses
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidewire.domain.accounts import Secret
from tidewire.runtime.config import CONFIG_VARIABLE, DATA_DIR_VARIABLE, SECTIONS, SLOTS
from tidewire.runtime.settings import Setting, Slot

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = f"""\
# Settings

Every setting of a server, generated from the code (`make settings`). None has to be set.

A setting is given by a flag (`tidewire serve --set NAME=VALUE`), which overrules the environment,
which overrules the file, which overrules the default. In the environment `server.port` is
`TIDEWIRE_SERVER_PORT`; in the file, `tidewire.toml` in the data directory, it is `port` under
`[server]`. `tidewire config` shows what holds and where it comes from. A name that does not exist
is refused, and the nearest one is named.

Two more stand in the environment only: `{DATA_DIR_VARIABLE}`, the data directory (`./data`),
and `{CONFIG_VARIABLE}`, the file.

What no operator had a reason to turn is a constant in the code. A setting of an earlier version
that became one is refused, and the refusal tells its value.

Names tell the unit: `_ms` milliseconds, `_bytes` bytes, `_max` the highest value that is allowed,
`_per_minute` a rate.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, options in SECTIONS.items():
        slots = [slot for slot in SLOTS.values() if slot.name.startswith(f"{section}.")]
        if not slots:
            continue
        parts.append(f"## {section}\n")
        told = _sentences(inspect.getdoc(options) or "")
        parts.append(f"{told.removesuffix(' An impossible value raises ValueError.')}\n")
        parts.append("| setting | default | what it is for |\n|---|---|---|")
        texts = dict(_texts(options, section))
        parts += [_row(slot, texts.get(slot.name, "")) for slot in slots]
        parts.append("")
    return "\n".join(parts)


def untold() -> list[str]:
    """Settings without a text that says what they are for."""
    told = {
        name
        for section, options in SECTIONS.items()
        for name, text in _texts(options, section)
        if text
    }
    return [name for name in SLOTS if name not in told]


def _row(slot: Slot, text: str) -> str:
    shown = Setting(slot.name, slot.default, "default").shown
    choices = _choices(slot.kind)
    told = " ".join(filter(None, (text, choices)))
    return f"| `{slot.name}` | `{shown}` | {told.replace('|', '&#124;')} |"


def _choices(kind: Any) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"One of {', '.join(f'`{member.value}`' for member in kind)}."
    return "A secret: never shown." if kind is Secret else ""


def _texts(options: type, prefix: str) -> Iterator[tuple[str, str]]:
    """The text below each field, by the name of its setting; those of nested options included."""
    kinds = typing.get_type_hints(options)
    nested = {
        field.name: kinds[field.name]
        for field in dataclasses.fields(options)
        if dataclasses.is_dataclass(kinds[field.name])
    }
    for name, kind in nested.items():
        yield from _texts(kind, f"{prefix}.{name}")
    tree = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, following in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            yield f"{prefix}.{statement.target.id}", _sentences(str(following.value.value))


def _sentences(text: str) -> str:
    """The text in one line: pages wrap by themselves, and a table has no line breaks."""
    return " ".join(inspect.cleandoc(text).split())


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {len(SLOTS)} settings\n")


if __name__ == "__main__":
    main()
