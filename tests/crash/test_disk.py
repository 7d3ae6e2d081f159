"""The modelled disk is as nasty as its description says, and no nastier."""

from random import Random

import pytest

from tests.support.crash_disk import SECTOR_BYTES, Disk, Inode, Truncate, Write

SEEDS = 300


def outcomes(inode: Inode) -> set[bytes]:
    """The contents that cuts leave of a file."""
    return {inode.after_cut(Random(seed)) for seed in range(SEEDS)}


def written(*changes: Write | Truncate) -> Inode:
    inode = Inode()
    for change in changes:
        inode.change(change)
    return inode


def test_synced_bytes_survive_every_cut() -> None:
    inode = written(Write(0, b"a" * 4096), Truncate(3000))
    inode.sync(inode.changes)
    assert outcomes(inode) == {b"a" * 3000}
    inode.change(Write(3000, b"b" * 4096))
    assert {left[:3000] for left in outcomes(inode)} == {b"a" * 3000}


def test_unsynced_write_may_be_there_gone_or_torn() -> None:
    old, new = b"a" * 4096, b"b" * 4096
    inode = written(Write(0, old))
    inode.sync(inode.changes)
    inode.change(Write(0, new))
    left = outcomes(inode)
    assert {old, new} < left
    # At sectors, and in the middle of one; sometimes a sector is garbage.
    cuts = {image.count(b"b") for image in left if set(image) <= set(b"ab")}
    assert any(cut % SECTOR_BYTES for cut in cuts)
    assert any(0 < cut < 4096 and cut % SECTOR_BYTES == 0 for cut in cuts)
    assert any(not set(image) <= set(b"ab") for image in left)


def test_torn_write_harms_nothing_outside_of_its_range() -> None:
    inode = written(Write(0, b"a" * 4096))
    inode.sync(inode.changes)
    inode.change(Write(700, b"b" * 1000))
    for left in outcomes(inode):
        assert left[:700] + left[1700:] == b"a" * 3096


def test_unsynced_writes_survive_in_any_combination() -> None:
    inode = written(*[Write(number, bytes([number + 1])) for number in range(3)])
    inode.sync(0)
    present = {tuple(byte != 0 for byte in left.ljust(3, b"\0")) for left in outcomes(inode)}
    assert len(present) == 8


def test_sync_covers_what_was_there_when_it_began() -> None:
    inode = written(Write(0, b"a"))
    begun_at = inode.changes
    inode.change(Write(1, b"b"))
    # The second sync began at the same time and ended later: it has nothing left to do.
    for _ in range(2):
        inode.sync(begun_at)
        left = outcomes(inode)
        assert {b"a", b"ab"} <= left
        assert all(image.startswith(b"a") for image in left)


def test_failed_sync_leaves_pages_that_are_never_written() -> None:
    inode = written(Write(0, b"a"))
    inode.forget_pending()
    inode.sync(inode.changes)
    assert outcomes(inode) == {b""}


@pytest.mark.parametrize("is_synced", [True, False])
def test_name_is_durable_only_when_its_directory_was_synced(*, is_synced: bool) -> None:
    disk = Disk({"old": b"old"})
    disk.delete("old")
    inode = disk.create("new")
    inode.change(Write(0, b"new"))
    inode.sync(inode.changes)
    if is_synced:
        disk.sync_names()
    left = {tuple(sorted(disk.after_cut(Random(seed)))) for seed in range(SEEDS)}
    assert left == ({("new",)} if is_synced else {("new",), ("old",), ("new", "old"), ()})


def test_deleted_and_remade_file_is_the_old_one_the_new_one_or_none() -> None:
    disk = Disk({"log": b"old"})
    disk.delete("log")
    disk.create("log").change(Write(0, b"new"))
    left = {disk.after_cut(Random(seed)).get("log") for seed in range(SEEDS)}
    assert {None, b"old", b"", b"new"} <= left
