"""Makes other people's text harmless for a terminal; cuts and wraps it by cells. PURE.

Only the terminal knows how many cells a text takes, so `measure` comes in as an argument.
"""

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

Measure = Callable[[str], int]

ELLIPSIS: Final = "…"
TAB: Final = "    "
_REORDERING: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the direction of the text that follows, even beyond their own message."""
_WRAPS_KEPT: Final = 4_096


def visible(text: str) -> str:
    """The text without characters that control a terminal: these are spelt out (`^[`).

    Line breaks stay, in one form; tabs become spaces.
    """
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cc":
        return _visible_control(character)
    if category in ("Zl", "Zp"):
        return "\n"
    if category == "Cs":
        return "\ufffd"
    return _code(character) if character in _REORDERING else character


def _visible_control(character: str) -> str:
    if character == "\n":
        return character
    if character == "\t":
        return TAB
    number = ord(character)
    # As `cat -v` writes them: every font has these.
    return f"^{chr(number ^ 0x40)}" if number < 0x80 else _code(character)


def _code(character: str) -> str:
    return f"<{ord(character):04X}>"


def one_line(text: str) -> str:
    """The text on a line of its own, as for names and previews."""
    return " ".join(visible(text).split())


def cut(text: str, width: int, measure: Measure) -> str:
    """As much as fits; the ellipsis says that there was more."""
    assert width >= 1
    if measure(text) <= width:
        return text
    kept = _fitting(text, width - 1, measure)
    return text[:kept] + ELLIPSIS


def padded(text: str, width: int, measure: Measure) -> str:
    """Cut or filled up to exactly this width."""
    text = cut(text, width, measure)
    return text + " " * (width - measure(text))


@lru_cache(_WRAPS_KEPT)
def wrap(text: str, width: int, measure: Measure) -> tuple[str, ...]:
    """The lines of a text, none wider than `width`; at least one. Words stay whole if they fit."""
    assert width >= 2, "a wide character takes two cells"
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines += _wrapped(paragraph, width, measure)
    return tuple(lines)


def _wrapped(paragraph: str, width: int, measure: Measure) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in _words(paragraph):
        if measure(line + word.rstrip(" ")) <= width:
            line += word
            continue
        if line:
            lines.append(line.rstrip(" "))
        rest = word
        # A single character that is wider than the line is shown all the same.
        while measure(rest.rstrip(" ")) > width and len(rest) > 1:
            kept = max(1, _fitting(rest, width, measure))
            lines.append(rest[:kept])
            rest = rest[kept:]
        line = rest
    lines.append(line.rstrip(" "))
    return lines


def _words(paragraph: str) -> list[str]:
    """Words with the spaces behind them; spaces at the beginning belong to the first."""
    words: list[str] = []
    start = 0
    for index in range(1, len(paragraph)):
        if (
            paragraph[index - 1] == " "
            and paragraph[index] != " "
            and paragraph[start:index].strip()
        ):
            words.append(paragraph[start:index])
            start = index
    return [*words, paragraph[start:]]


def _fitting(text: str, width: int, measure: Measure) -> int:
    """How many characters fit of a text that is too wide. A combining character is measured
    together with the one before it."""
    return next(count for count in range(len(text)) if measure(text[: count + 1]) > width)
