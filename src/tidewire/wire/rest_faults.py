"""What is wrong with a field of a request, for people and for machines. PURE.

msgspec reports only one sentence that says what it expected and ends with a path, so this module,
and no other, parses that sentence. A sentence of an unknown form is still passed on.
"""

import re
from typing import Final

from tidewire.wire.rest_models import FieldError

_PLACE: Final = re.compile(
    r"^(?P<sentence>.*?)(?: - at `(?P<key>key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL
)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")
_CODES: Final = (
    (re.compile(r"of length <="), "TOO_LONG"),
    (re.compile(r"of length >="), "TOO_SHORT"),
    (re.compile(r"^Expected `(?:int|float)` (?:<=|<) "), "TOO_LARGE"),
    (re.compile(r"^Expected `(?:int|float)` (?:>=|>) "), "TOO_SMALL"),
    (re.compile(r"^Expected .*, got "), "INVALID_TYPE"),
)
_BODY: Final = "body"


def field_error(complaint: str, field: str = "") -> FieldError:
    """The fault that msgspec complains of, in `field` or in a part of it."""
    match = _PLACE.match(complaint)
    sentence = complaint if match is None else match["sentence"]
    path = "" if match is None or match["path"] is None else match["path"].removeprefix(".")
    where = ".".join(part for part in (field, path) if part)
    missing = _MISSING.match(sentence)
    if missing is not None:
        name = ".".join(part for part in (where, missing["name"]) if part)
        return FieldError(field=name, code="REQUIRED", message="this field is required")
    code = next((code for form, code in _CODES if form.search(sentence)), "INVALID_VALUE")
    return FieldError(field=where or _BODY, code=code, message=sentence[:1].lower() + sentence[1:])
