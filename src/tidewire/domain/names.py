"""Names that people give: what may stand in one line of a screen. PURE."""

import unicodedata
from typing import Final

from tidewire.domain.errors import InvalidOperation

_UNFIT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Controls, lone surrogates, line and paragraph separators. Joiners stay: emoji and Persian need
them."""
_DIRECTIONS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Unicode's Bidi_Control: they change the direction of the text around them, so a name could change
another person's line."""
_BLANKS: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and symbols that are drawn as nothing."""
_TAGS: Final = range(0xE0000, 0xE1000)
"""A range of characters that are drawn as nothing, most of them not assigned yet."""

RESERVED_NAMES: Final = frozenset(
    {
        "abuse",
        "admin",
        "administrator",
        "all",
        "channel",
        "deletedaccount",
        "everybody",
        "everyone",
        "help",
        "helpdesk",
        "here",
        "hostmaster",
        "moderator",
        "official",
        "operator",
        "postmaster",
        "root",
        "security",
        "server",
        "staff",
        "support",
        "sysadmin",
        "system",
        "tidewire",
        "webmaster",
    }
)
"""Names that look like the server's or its operators'. An operator may give them to a person in
that role, or to a program."""


def check_shown_name(name: str, what: str, characters_max: int) -> str:
    """Returns the name if it is valid; else raises InvalidOperation, whose sentence begins with
    `what`."""
    if not name or len(name) > characters_max:
        raise InvalidOperation(f"{what} has 1 to {characters_max} characters")
    if name != name.strip():
        raise InvalidOperation(f"{what} has no spaces at its ends")
    if any(unicodedata.category(character) in _UNFIT for character in name):
        raise InvalidOperation(f"{what} has no control characters and no line breaks")
    if not _DIRECTIONS.isdisjoint(name):
        raise InvalidOperation(f"{what} has no characters that change the direction of writing")
    if not any(map(_is_visible, name)):
        raise InvalidOperation(f"{what} has at least one character that can be seen")
    return name


def check_not_reserved(name: str, what: str) -> str:
    """Returns the name if people may give it to themselves; else raises InvalidOperation."""
    if name_key(name) in RESERVED_NAMES:
        raise InvalidOperation(
            f"{what} cannot be {name!r}: this name is reserved; the operator of the server can "
            "give it"
        )
    return name


def name_key(name: str) -> str:
    """The form in which names are compared: letters and digits only, without case and variants."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(character for character in plain if character.isalnum())


def _is_visible(character: str) -> bool:
    """True for letters, digits and signs, and for unassigned characters, because a newer Unicode
    may define them."""
    if character in _BLANKS or ord(character) in _TAGS:
        return False
    category = unicodedata.category(character)
    return category[0] in "LNPS" or category == "Cn"
