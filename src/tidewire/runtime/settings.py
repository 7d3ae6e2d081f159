"""Turns names and texts into typed values: what a setting is called, and what it may be.

A tree of dataclasses describes the settings: a field's path is the setting's name
(`gateway.send_chat_burst`), its type says what it takes, its default holds if it is not set.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidewire.domain.accounts import Secret

ENVIRONMENT_PREFIX: Final = "TIDEWIRE_"
URL_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}URL"
USER_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}USER"
PASSWORD_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}PASSWORD"
CA_FILE_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}CA_FILE"
CLIENT_VARIABLES: Final = (URL_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE, CA_FILE_VARIABLE)
"""Variables of `chat`, `send`, `tail` and the like. A server in the same shell ignores them."""
DEFAULT: Final = "default"

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class Given(NamedTuple):
    """A value as it was given, and where: `value` from flags and the environment is a str, from
    a file it has the type that TOML gives it."""

    value: object
    source: str


class Setting(NamedTuple):
    """A value in effect, and where it comes from."""

    name: str
    value: object
    source: str

    @property
    def shown(self) -> str:
        """For people. Secrets stay hidden."""
        value = self.value
        if value is None:
            return "none"
        if isinstance(value, Secret):
            return "(hidden)"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ", ".join(map(str, value)) or "(nothing)"
        return str(value)


class Slot(NamedTuple):
    """One option: its name, its type and its default."""

    name: str
    kind: Any
    default: object

    @property
    def variable(self) -> str:
        return variable_of(self.name)


class Unfit(ValueError):
    """The value does not fit the setting; the message says what the setting takes."""


def variable_of(name: str) -> str:
    """The name of a setting in the environment."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def slots_of(options: type, prefix: str) -> Iterator[Slot]:
    """Every slot in a tree of dataclasses, in the order in which the fields are written down."""
    kinds = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        name = f"{prefix}.{field.name}"
        kind = kinds[field.name]
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            yield from slots_of(kind, name)
        else:
            assert field.default is not dataclasses.MISSING, f"{name} needs a default"
            yield Slot(name, kind, field.default)


def cast(kind: Any, given: object) -> object:
    """Convert what was given to a value of this type. Raises Unfit."""
    optional = _optional(kind)
    if optional is not None:
        is_none = isinstance(given, str) and given.strip().lower() in ("", "none")
        return None if is_none else cast(optional, given)
    if kind is bool:
        return _bool(given)
    if kind is int:
        return _int(given)
    if kind in (str, Path, Secret):
        return kind(_text(given))
    if typing.get_origin(kind) is tuple:
        return _texts(given)
    assert issubclass(kind, StrEnum), f"settings of type {kind} are not known"
    text = _text(given).lower()
    if text not in list(kind):
        raise Unfit(f"takes {_either([member.value for member in kind])}")
    return kind(text)


def build(options: type, prefix: str, values: Mapping[str, object]) -> Any:
    """The dataclass with these values. Raises ValueError if it refuses them."""
    kinds = typing.get_type_hints(options)
    given: dict[str, object] = {}
    for field in dataclasses.fields(options):
        name = f"{prefix}.{field.name}"
        kind = kinds[field.name]
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            given[field.name] = build(kind, name, values)
        elif name in values:
            given[field.name] = values[name]
    return options(**given)


def unknown(name: str, written: str, known: Sequence[str]) -> str:
    """The error about a setting that does not exist: that it is fixed now, or which name is close.
    `written` is its name as it stands in a file, a flag or the environment."""
    value = retired_settings().get(name)
    if value is not None:
        return f"{written} is no longer a setting: it is fixed at {_in_words(name, value)}"
    close = difflib.get_close_matches(written, known, n=1, cutoff=0.75)
    near = f"did you mean {close[0]}?" if close else "'tidewire config' lists all settings"
    return f"there is no setting {written}; {near}"


@cache
def retired_settings() -> Mapping[str, str]:
    """Settings of 0.1.0 that are constants now, with their values."""
    # Not at the top, because 'tidewire --help' imports this module.
    from importlib.resources import files

    lines = files("tidewire.runtime").joinpath("retired_settings.txt").read_text("utf-8")
    return dict(line.split(" ", 1) for line in lines.splitlines())


def _in_words(name: str, value: str) -> str:
    """The value with its unit, which the setting's name tells."""
    if not value.isdecimal() or "_ms" not in name:
        return value
    seconds, milliseconds = divmod(int(value), 1000)
    return f"{value} ms" if milliseconds else f"{seconds} s"


def _optional(kind: Any) -> Any | None:
    """`int` of `int | None`; None for everything else."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return None
    (inner,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
    return inner


def _bool(given: object) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in _TRUE + _FALSE:
        return given.strip().lower() in _TRUE
    raise Unfit("takes true or false")


def _int(given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        return int(_text(given))
    except ValueError:
        raise Unfit("takes a whole number") from None


def _text(given: object) -> str:
    if isinstance(given, str):
        return given.strip()
    raise Unfit("takes a text")


def _texts(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    if isinstance(given, list) and all(isinstance(part, str) for part in given):
        return tuple(given)
    raise Unfit("takes a list of texts")


def _either(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
