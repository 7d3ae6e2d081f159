"""Names that people give: what may stand in one line of anybody's screen. PURE."""

import unicodedata
from typing import Final

from tidewire.domain.errors import InvalidOperation

_UNFIT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Controls, lone surrogates, line and paragraph separators. Joiners stay: emoji and Persian need
them."""


def check_shown_name(name: str, what: str, characters_max: int) -> str:
    """The name if it may be one; raises InvalidOperation, whose sentence begins with `what`."""
    if not name or len(name) > characters_max:
        raise InvalidOperation(f"{what} has 1 to {characters_max} characters")
    if name != name.strip():
        raise InvalidOperation(f"{what} has no spaces at its ends")
    if any(unicodedata.category(character) in _UNFIT for character in name):
        raise InvalidOperation(f"{what} has no control characters and no line breaks")
    return name
