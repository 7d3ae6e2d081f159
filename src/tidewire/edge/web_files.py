"""The files of the web app as answers to requests: what is sent, how long it is kept, what a page
may do. PURE.

A file under `assets/` has the hash of its content in its name, so it never changes: browsers keep
it for ever. They ask for all others each time, and get 304 for what they have. A file may have
packed copies beside it (`.br`, `.gz`); the smallest one that the browser takes is sent.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit for all files together, because they are kept in memory."""
ASSETS: Final = "assets/"
INDEX: Final = "index.html"
WIDGET: Final = "widget.js"
FIELD_BYTES_MAX: Final = 1024
"""How many bytes are read of a header field that lists encodings or ETags."""

_PACKED: Final = {b"br": ".br", b"gzip": ".gz"}
"""The suffix of a packed copy's name, by the HTTP name of its encoding; smallest copy first."""
_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".webmanifest": b"application/manifest+json",
}
_FOR_EVER: Final = b"public, max-age=31536000, immutable"
_EACH_TIME: Final = b"no-cache"

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Text never becomes markup or script. The one policy that the app has lets it start its
        # service worker, and no other script.
        "require-trusted-types-for 'script'",
        "trusted-types tidewire-worker",
    )
)
"""Nothing inline, nothing from other origins, no frame around the page."""

Fields = Iterable[tuple[bytes, bytes]]
Field = tuple[bytes, bytes]


class WebAnswer(msgspec.Struct, frozen=True):
    """An answer. The body is empty for HEAD, and for a copy that the browser already has."""

    status: int
    headers: list[Field]
    body: bytes


class _Copy(msgspec.Struct, frozen=True):
    """A file in one encoding."""

    body: bytes
    etag: bytes
    headers: list[Field]


class WebFiles:
    """All files by the path of their URL."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """`contents` by name, packed copies included."""
        total = sum(map(len, contents.values()))
        assert total <= BYTES_MAX, f"the files of the web app have {total} bytes"
        packed = tuple(_PACKED.values())
        self._copies = {
            f"/{'' if name == INDEX else name}": _copies(name, contents)
            for name in contents
            if not name.endswith(packed)
        }

    @property
    def paths(self) -> list[str]:
        return list(self._copies)

    def answer(self, method: str, path: str, fields: Fields) -> WebAnswer | None:
        """The answer to a request; None if it is for no file. Header names are in lower case."""
        copies = self._copies.get(path)
        if copies is None or method not in ("GET", "HEAD"):
            return None
        known = accepted = b""
        for name, value in fields:
            if name == b"accept-encoding":
                accepted += b"," + value
            elif name == b"if-none-match":
                known += b"," + value
        copy = copies[_choose(copies, accepted[:FIELD_BYTES_MAX])]
        if _is_known(copy.etag, known[:FIELD_BYTES_MAX]):
            return WebAnswer(304, [field for field in copy.headers if field[0] in _KEPT], b"")
        return WebAnswer(200, copy.headers, b"" if method == "HEAD" else copy.body)


_KEPT: Final = (b"cache-control", b"etag", b"vary", b"content-security-policy")
"""The headers that a 304 answer repeats (RFC 9110, 15.4.5)."""


def _copies(name: str, contents: Mapping[str, bytes]) -> dict[bytes, _Copy]:
    """The file by encoding: as it is (`identity`), and its packed copies."""
    digest = hashlib.sha256(contents[name]).hexdigest()[:20]
    bodies = {b"identity": contents[name]}
    bodies |= {
        encoding: contents[name + end]
        for encoding, end in _PACKED.items()
        if name + end in contents
    }
    return {
        encoding: _copy(name, digest, encoding, body, is_packed=len(bodies) > 1)
        for encoding, body in bodies.items()
    }


def _copy(name: str, digest: str, encoding: bytes, body: bytes, *, is_packed: bool) -> _Copy:
    etag = f'"{digest}-{encoding.decode()}"'.encode()
    is_shared = name.startswith(ASSETS) or name == WIDGET
    headers = [
        (b"content-type", _TYPES[name[name.rindex(".") :]]),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", _FOR_EVER if name.startswith(ASSETS) else _EACH_TIME),
        (b"etag", etag),
        (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
        (b"cross-origin-opener-policy", b"same-origin"),
        # The widget runs in pages of other origins, and loads its parts there.
        (b"cross-origin-resource-policy", b"cross-origin" if is_shared else b"same-origin"),
    ]
    if is_shared:
        headers.append((b"access-control-allow-origin", b"*"))
    if is_packed:
        headers.append((b"vary", b"accept-encoding"))
    if encoding != b"identity":
        headers.append((b"content-encoding", encoding))
    return _Copy(body, etag, headers)


def _choose(copies: Mapping[bytes, _Copy], accepted: bytes) -> bytes:
    """The smallest of the encodings that the browser prefers most (RFC 9110, 12.5.3). A browser
    that accepts none of them gets the file as it is."""
    weights: dict[bytes, float] = {}
    for item in accepted.lower().split(b","):
        name, _, rest = item.partition(b";")
        weights[name.strip()] = _weight(rest)
    others = weights.get(b"*", 0.0)
    best, liked = b"identity", weights.get(b"identity", 0.001)
    for encoding in reversed(_PACKED):
        weight = weights.get(encoding, others)
        if encoding in copies and weight > 0 and weight >= liked:
            best, liked = encoding, weight
    return best


def _weight(parameter: bytes) -> float:
    name, _, value = parameter.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def _is_known(etag: bytes, known: bytes) -> bool:
    tags = [tag.strip().removeprefix(b"W/") for tag in known.split(b",")]
    return etag in tags or b"*" in tags
