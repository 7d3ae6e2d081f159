"""Files of the web app: which copy is sent, how long it is kept, and what a page may do."""

import pytest

from tidewire.edge.web_files import BYTES_MAX, FIELD_BYTES_MAX, WebAnswer, WebFiles

PAGE, SCRIPT, STYLE = b"<!doctype html>", b"a script, long enough", b"a style"
SCRIPT_PATH = "/assets/app-1a2b3c4d.js"
FILES = WebFiles(
    {
        "index.html": PAGE,
        "widget.js": b"loader",
        "assets/app-1a2b3c4d.js": SCRIPT,
        "assets/app-1a2b3c4d.js.br": b"br",
        "assets/app-1a2b3c4d.js.gz": b"gzip",
        "assets/app-9f8e7d6c.css": STYLE,
        "assets/app-9f8e7d6c.css.gz": b"small",
    }
)


def got(path: str, method: str = "GET", **fields: str) -> WebAnswer:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    answer = FILES.answer(method, path, pairs)
    assert answer is not None
    return answer


def test_index_is_at_the_root_and_everything_else_at_its_name() -> None:
    assert FILES.paths == ["/", "/widget.js", SCRIPT_PATH, "/assets/app-9f8e7d6c.css"]
    assert got("/").body == PAGE
    assert dict(got("/").headers)[b"content-type"] == b"text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/index.html"),
        ("GET", SCRIPT_PATH + ".br"),
        ("GET", "/assets/"),
        ("GET", "/assets/../index.html"),
        ("GET", "/api/v1/chats"),
        ("POST", "/"),
        ("OPTIONS", SCRIPT_PATH),
    ],
)
def test_everything_else_is_left_to_others(method: str, path: str) -> None:
    assert FILES.answer(method, path, []) is None


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [
        (None, SCRIPT),
        ("", SCRIPT),
        ("gzip, deflate, br, zstd", b"br"),
        ("GZIP", b"gzip"),
        ("*", b"br"),
        ("br;q=0, *", b"gzip"),
        ("br;q=0.5, gzip", b"gzip"),
        ("br; q = 0.5, gzip;q=0.4", b"br"),
        ("br;q=nonsense, gzip;q=nan", SCRIPT),
        ("br;level=1", b"br"),
        ("zstd, deflate", SCRIPT),
        ("identity, br;q=0.5", SCRIPT),
        ("identity;q=0", SCRIPT),
        ("deflate," * FIELD_BYTES_MAX + "br", SCRIPT),
    ],
)
def test_smallest_copy_that_the_browser_takes_is_sent(accepted: str | None, sent: bytes) -> None:
    answer = got(SCRIPT_PATH) if accepted is None else got(SCRIPT_PATH, accept_encoding=accepted)
    headers = dict(answer.headers)
    assert answer.body == sent
    assert headers.get(b"content-encoding", SCRIPT) == sent
    assert headers[b"content-length"] == b"%d" % len(sent)
    assert headers[b"vary"] == b"accept-encoding"


def test_copy_that_was_not_packed_is_not_sent() -> None:
    assert got("/assets/app-9f8e7d6c.css", accept_encoding="br, gzip").body == b"small"
    assert got("/assets/app-9f8e7d6c.css", accept_encoding="br").body == STYLE
    answer = got("/", accept_encoding="br, gzip")
    assert answer.body == PAGE
    assert b"vary" not in dict(answer.headers)


def test_hashed_names_are_kept_for_ever_and_others_are_asked_for() -> None:
    assert b"immutable" in dict(got(SCRIPT_PATH).headers)[b"cache-control"]
    for path in ("/", "/widget.js"):
        assert dict(got(path).headers)[b"cache-control"] == b"no-cache"


def test_what_is_known_is_not_sent_again() -> None:
    etag = dict(got("/").headers)[b"etag"].decode()
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = got("/", if_none_match=known)
        assert (answer.status, answer.body) == (304, b"")
        assert dict(answer.headers)[b"etag"] == etag.encode()
        assert b"content-length" not in dict(answer.headers)
    assert got("/", if_none_match='"other"').status == 200


def test_copies_have_etags_of_their_own() -> None:
    etags = {
        dict(got(SCRIPT_PATH, accept_encoding=each).headers)[b"etag"] for each in ("br", "gzip", "")
    }
    assert len(etags) == 3


def test_head_says_the_same_without_the_file() -> None:
    assert got("/", "HEAD") == WebAnswer(200, got("/").headers, b"")


def test_page_may_load_nothing_from_elsewhere() -> None:
    policy = dict(got("/").headers)[b"content-security-policy"].decode().split("; ")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert not [rule for rule in policy if "unsafe" in rule or "http" in rule or "*" in rule]


def test_only_what_the_widget_needs_is_open_to_other_pages() -> None:
    for path in ("/widget.js", SCRIPT_PATH):
        headers = dict(got(path).headers)
        assert headers[b"access-control-allow-origin"] == b"*"
        assert headers[b"cross-origin-resource-policy"] == b"cross-origin"
    headers = dict(got("/").headers)
    assert b"access-control-allow-origin" not in headers
    assert headers[b"cross-origin-resource-policy"] == b"same-origin"


def test_files_are_bounded_and_of_known_kinds() -> None:
    with pytest.raises(AssertionError, match="bytes"):
        WebFiles({"index.html": b" " * (BYTES_MAX + 1)})
    with pytest.raises(KeyError):
        WebFiles({"notes.exe": b""})
