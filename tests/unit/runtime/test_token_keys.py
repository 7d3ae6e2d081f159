"""The server's key: made once, private, and never guessed at."""

from pathlib import Path

import pytest

from tidewire.accounts.keys import with_new_key
from tidewire.runtime.token_keys import KeyFile, SecretUnusable, new_secret, token_key


def test_key_is_made_once_and_private(tmp_path: Path) -> None:
    key = token_key(tmp_path / "data")
    file = tmp_path / "data" / "secrets" / "token.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert len(key.reveal()) >= 48
    assert token_key(tmp_path / "data") == key
    assert [path.name for path in file.parent.iterdir()] == ["token.key"]
    assert token_key(tmp_path / "other") != key


@pytest.mark.parametrize("content", ["", "short", "ä" * 60])
def test_file_without_a_key_is_told(tmp_path: Path, content: str) -> None:
    token_key(tmp_path)
    (tmp_path / "secrets" / "token.key").write_text(content, encoding="utf-8")
    with pytest.raises(SecretUnusable, match="holds no key"):
        token_key(tmp_path)


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token_key(tmp_path)
    (tmp_path / "secrets" / "token.key").chmod(0o644)
    with pytest.raises(SecretUnusable, match="can be read by others"):
        token_key(tmp_path)


def test_place_where_no_file_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("a file")
    with pytest.raises(SecretUnusable, match="cannot use"):
        token_key(tmp_path)


def test_key_that_a_cluster_shares_is_made_where_it_is_named(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "token.key"
    key = token_key(tmp_path / "one", shared)
    assert token_key(tmp_path / "other", shared).reveal() == key.reveal()
    assert shared.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "one" / "secrets").exists()


def test_keys_are_written_and_read_again(tmp_path: Path) -> None:
    ours = KeyFile(tmp_path)
    [first] = ours.ring.keys
    others = KeyFile(tmp_path)
    keys = with_new_key(
        ours.ring.keys, new_secret(), signs_from_ms=1_000, life_ms=60_000, now_ms=500
    )
    ours.write(keys)
    assert list(ours.ring.keys) == keys
    assert ours.file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in ours.file.parent.iterdir()] == ["token.key"]
    assert not ours.reread()
    # Another process notices.
    assert [key.secret for key in others.ring.keys] == [first.secret]
    assert others.reread()
    assert list(others.ring.keys) == keys
    assert list(KeyFile(tmp_path).ring.keys) == keys


@pytest.mark.parametrize("line", ["short", "{key} signs_from=tomorrow", "{key} colour=blue"])
def test_file_with_a_line_that_is_no_key_changes_nothing(tmp_path: Path, line: str) -> None:
    keys = KeyFile(tmp_path)
    before = keys.ring.keys
    with keys.file.open("a", encoding="ascii") as file:
        file.write(line.format(key=new_secret().reveal()) + "\n")
    with pytest.raises(SecretUnusable, match="holds no key"):
        keys.reread()
    assert keys.ring.keys == before


def test_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path)
    keys.file.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(SecretUnusable, match="cannot write"):
        keys.write(keys.ring.keys)
    with pytest.raises(SecretUnusable, match="cannot use"):
        keys.reread()
