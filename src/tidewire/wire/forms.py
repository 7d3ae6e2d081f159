"""One struct made of others: the domain's values as models and records, and back. PURE.

Not for the hot path: a push and a page of messages are written out by field (`frame_builders`).
"""

from typing import Any, Final, TypeVar

import msgspec

from tidewire.wire.timestamps import format_time_ms, parse_time_ms

Form = TypeVar("Form", bound=msgspec.Struct)

_ABSENT: Final = object()


def form_of(kind: type[Form], /, *sources: object, **given: object) -> Form:
    """A `kind` with the values that are `given`; every other field is taken from the first of the
    sources that has it. A field that no source has keeps its default.

    Instants are converted: `created_at`, a text, is made from `created_at_ms`, and the other way
    round. The texts must be checked before; an invalid one raises AssertionError.
    """
    values = dict(given)
    for name in kind.__struct_fields__:
        if name not in values:
            value = _value(name, sources)
            if value is not _ABSENT:
                values[name] = value
    return kind(**values)


def fields_of(source: object, names: str) -> dict[str, Any]:
    """The values of fields, in the form that `form_of` takes. `names` are separated by spaces."""
    return {name: _value(name, (source,)) for name in names.split()}


def time_ms_of(text: str) -> int:
    """The instant of a text that was checked before."""
    time_ms = parse_time_ms(text)
    assert time_ms is not None, text
    return time_ms


def _value(name: str, sources: tuple[object, ...]) -> object:
    for source in sources:
        value = getattr(source, name, _ABSENT)
        if value is not _ABSENT:
            return value
        time_ms = getattr(source, name + "_ms", _ABSENT)
        if time_ms is not _ABSENT:
            return None if time_ms is None else format_time_ms(time_ms)
        if name.endswith("_ms"):
            text = getattr(source, name.removesuffix("_ms"), _ABSENT)
            if text is not _ABSENT:
                return time_ms_of(text)  # type: ignore[arg-type]
    return _ABSENT
