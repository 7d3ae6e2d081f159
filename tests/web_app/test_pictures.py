"""The pictures of README and docs can be taken anew, of what a server shows now. Slow: browsers."""

import re
import struct
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT
from tests.web_app.people import Street
from tests.web_app.pictures import IMAGES, take, talk
from tests.web_app.test_finding import apart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, which begins with them."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG"), picture
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_pictures_of_the_documents_can_be_taken(street: Street, tmp_path: Path) -> None:
    apart(talk(street.site.url))
    taken = take(street, tmp_path)
    assert {one.name: size_of(one) for one in taken} == {
        one.name: size_of(one) for one in IMAGES.glob("*.png")
    }
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {
        name
        for document in documents
        for name in re.findall(r"images/([\w-]+\.png)", document.read_text(encoding="utf-8"))
    }
    assert shown == {one.name for one in taken}
