"""The deliberate faults of `make mutants`: each is a small patch that a test has to notice.

`faults.toml` holds the list. A fault names the file, the text that stands there exactly once, the
text that replaces it, and the tests that have to turn red. Holds no test.
"""

import tomllib
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent.parent
LIST: Final = Path(__file__).with_name("faults.toml")


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    """What the fault does, in one sentence."""
    file: str
    """Below src/tidewire."""
    before: str
    after: str
    tests: list[str]
    """What is given to pytest: files, or single tests."""
    needs_stack: bool = False
    """The tests need DynamoDB, Kafka or Redis."""

    @property
    def path(self) -> Path:
        return ROOT / "src" / "tidewire" / self.file

    def applied_to(self, text: str) -> str:
        """The file's text with the fault in it. Raises ValueError if the list is out of date."""
        count = text.count(self.before)
        if count != 1:
            raise ValueError(
                f"{self.name}: the text to replace stands {count} times in {self.file}, not once"
            )
        return text.replace(self.before, self.after)


def load_faults() -> list[Fault]:
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return msgspec.convert(listed["fault"], list[Fault])
