"""Other people's text: harmless, cut and wrapped by cells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.terminal.text import cut, one_line, padded, visible, wrap


def cells(text: str) -> int:
    """A measure that knows wide letters, as a terminal does."""
    return sum(2 if letter in "漢字" else 1 for letter in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines", "two\nlines"),
        ("dos\r\nlines", "dos\nlines"),
        ("tab\tulator", "tab    ulator"),
        ("\x1b[31mred", "^[[31mred"),
        ("\r", "^M"),
        ("\x00\x07", "^@^G"),
        ("\x7f", "^?"),
        ("\x9b31m", "<009B>31m"),
        ("abc\u202edef", "abc<202E>def"),
        ("\u2028", "\n"),
        ("\ud800", "\ufffd"),
        ("[bold]no markup[/]", "[bold]no markup[/]"),
        ("👩\u200d👧", "👩\u200d👧"),
    ],
)
def test_visible_spells_out_what_a_terminal_would_obey(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_visible_leaves_no_control_but_line_breaks(text: str) -> None:
    import unicodedata

    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    assert visible(shown) == shown


def test_one_line_has_one_line() -> None:
    assert one_line(" a\n b\t\u2028c ") == "a b c"


def test_cut_says_that_there_was_more() -> None:
    assert cut("hello", 5, len) == "hello"
    assert cut("hello!", 5, len) == "hell…"
    assert cut("漢字漢", 5, cells) == "漢字…"
    assert cut("漢字漢", 4, cells) == "漢…"
    assert cut("漢", 1, cells) == "…"


def test_padded_is_exactly_so_wide() -> None:
    assert padded("ab", 4, len) == "ab  "
    assert padded("漢字漢", 4, cells) == "漢… "


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("short", ["short"]),
        ("one two three", ["one two", "three"]),
        ("one  two", ["one  two"]),
        ("exactly8 next", ["exactly8", "next"]),
        ("a\n\nb", ["a", "", "b"]),
        ("verylongword", ["verylong", "word"]),
        ("a verylongword b", ["a", "verylong", "word b"]),
        ("  indented", ["  indent", "ed"]),
        ("漢字漢字漢", ["漢字漢字", "漢"]),
        ("trailing ", ["trailing"]),
        ("        ", [""]),
    ],
)
def test_wrap_keeps_words_whole_if_they_fit(text: str, lines: list[str]) -> None:
    assert list(wrap(text, 8, cells)) == lines


def test_wrap_shows_a_letter_that_is_wider_than_the_line() -> None:
    assert list(wrap("ab", 2, lambda text: 3 * len(text))) == ["a", "b"]


@given(st.text(alphabet="ab 漢\n", max_size=60), st.integers(2, 12))
def test_wrap_loses_nothing_but_spaces_and_fits(text: str, width: int) -> None:
    lines = wrap(text, width, cells)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
