"""docs/settings.md is what the code says: every setting, its default, and a sentence on it."""

from tools.settings_page import PAGE, page, untold


def test_page_of_settings_is_as_the_code_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "it is out of date; run 'make settings'"


def test_every_setting_says_what_it_is_for() -> None:
    assert untold() == []
