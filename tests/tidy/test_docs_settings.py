"""docs/settings.md is what the code says: every setting, its default, and a sentence on it."""

import re

from tests.tidy.repository import ROOT
from tidewire.runtime.settings import retired_settings
from tools.settings_page import PAGE, page, untold


def test_page_of_settings_is_as_the_code_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "it is out of date; run 'make settings'"


def test_every_setting_says_what_it_is_for() -> None:
    assert untold() == []


def test_pages_name_no_setting_that_became_a_constant() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for file in pages:
        named = set(re.findall(r"`([a-z]+(?:\.[a-z_]+)+)`", file.read_text(encoding="utf-8")))
        assert not named & set(retired_settings()), file.name
