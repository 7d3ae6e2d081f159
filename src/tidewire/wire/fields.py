"""The field types that frames and records share, and the tags of a union of them. PURE.

Numbers are bounded where they are decoded, so that no code after the codec gets a sequence that
a JSON reader elsewhere could not keep exact (P-14).
"""

from typing import Annotated, get_args

import msgspec

from tidewire.domain.limits import PAGE_MESSAGES_MAX, SEQUENCE_MAX

SequenceNumber = Annotated[int, msgspec.Meta(ge=1, le=SEQUENCE_MAX)]
"""A sequence that a message can have."""

Cursor = Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]
"""A sequence, or 0 for "before the first"."""

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MESSAGES_MAX)]

Count = Annotated[int, msgspec.Meta(ge=0)]


def tags_of(union: object) -> frozenset[str]:
    """The tags by which the structs of a union are told apart."""
    return frozenset(str(struct.__struct_config__.tag) for struct in get_args(union))
