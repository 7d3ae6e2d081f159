"""docs/protocol.md shows the errors, the close reasons and the frames as `wire` has them."""

from typing import Any, get_args

import msgspec
import pytest

from tests.tidy.repository import ROOT
from tidewire.domain.resync import ResyncReason
from tidewire.wire.client_frames import CLIENT_FRAME_TYPES, ClientFrame
from tidewire.wire.error_table import CLOSE_TABLE, ERROR_TABLE
from tidewire.wire.server_frames import SERVER_FRAME_TYPES, ServerFrame

PAGE = ROOT / "docs/protocol.md"


def error_table() -> str:
    """Every error code: HTTP status, close code, whether to try again, one sentence."""
    rows = [
        f"| `{code}` | {row.http_status} | {_number(row.close_code)} | {_yes(row.retryable)} "
        f"| {row.sentence} |"
        for code, row in ERROR_TABLE.items()
    ]
    return "\n".join(["| code | HTTP | close | retry | sentence |", "|---|---|---|---|---|", *rows])


def close_table() -> str:
    """Every close reason: close code, whether the client comes back by itself, one sentence."""
    rows = [
        f"| `{reason}` | {row.close_code.value} | {_yes(row.reconnects)} | {row.sentence} |"
        for reason, row in CLOSE_TABLE.items()
    ]
    return "\n".join(["| reason | code | come back | sentence |", "|---|---|---|---|", *rows])


def frame_row(frame: Any) -> str:
    """How the row of a frame begins: its type and the fields of its payload."""
    payload = next(field for field in msgspec.structs.fields(frame) if field.name == "payload")
    fields = [
        f"`{field.encode_name}`" + ("" if field.required else "?")
        for field in msgspec.structs.fields(payload.type)
    ]
    return f"| `{frame.__struct_config__.tag}` | {', '.join(fields) or 'none'} |"


def _number(code: int | None) -> str:
    return "" if code is None else str(int(code))


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


@pytest.mark.parametrize("table", [error_table, close_table])
def test_page_has_the_table(table: Any) -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), (
        f"docs/protocol.md does not have this table:\n{table()}"
    )


def test_page_has_every_reason_to_sync_again() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [reason for reason in ResyncReason if f"`{reason}`" not in text] == []


def test_page_has_every_frame_with_its_fields() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [frame_row(frame) for frame in (*get_args(ClientFrame), *get_args(ServerFrame))]
    assert len(rows) == len(CLIENT_FRAME_TYPES | SERVER_FRAME_TYPES)
    missing = [row for row in rows if row not in text]
    assert not missing, "docs/protocol.md has no row that begins with\n" + "\n".join(missing)
