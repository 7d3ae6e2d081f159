"""Acts by name: what is not known or not understood is refused, a bug is not taken for that."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidewire.runtime.operations import Operations, UnknownOperation


class BrokenAdmin:
    async def list_users(self, after: str | None) -> list[object]:
        raise KeyError("a bug")


def operations(tmp_path: Path) -> Operations:
    parts = dict.fromkeys(("chats", "ingest", "engine", "store", "clock"))
    return Operations(
        admin=cast("Any", BrokenAdmin()),
        trail=cast("Any", SimpleNamespace(record=lambda *_, **__: None)),
        data_dir=tmp_path,
        **cast("Any", parts),
    )


async def test_act_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownOperation, match=r"does not know how to do 'users\.fly'"):
        await operations(tmp_path).run("users.fly", {})


@pytest.mark.parametrize("arguments", [{}, {"after": None, "before": None}, {"progress": 1}])
async def test_arguments_of_another_version_are_refused(
    tmp_path: Path, arguments: dict[str, object]
) -> None:
    with pytest.raises(UnknownOperation, match="is it of another version"):
        await operations(tmp_path).run("users.list", arguments)


async def test_bug_inside_an_act_is_not_taken_for_a_misunderstanding(tmp_path: Path) -> None:
    """F11: any KeyError was "does not know how"."""
    with pytest.raises(KeyError, match="a bug"):
        await operations(tmp_path).run("users.list", {"after": None})
