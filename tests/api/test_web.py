"""The web app beside REST: counted as anonymous requests are, and in nobody's way."""

from tests.api.stage import API, Stage, code_of
from tidewire.edge.rest.options import RestOptions
from tidewire.edge.web import built_files
from tidewire.edge.web_files import WebFiles

FILES = WebFiles(
    {"index.html": b"<!doctype html>", "assets/a-1.js": b"1", "assets/a-1.js.br": b"b"}
)


async def test_files_are_served_with_their_own_headers_and_those_of_every_answer(
    stage: Stage,
) -> None:
    client = stage.serve(web_files=FILES)
    page = await client.get("/?from=mail")
    assert (page.status_code, page.content) == (200, b"<!doctype html>")
    assert page.headers["cache-control"] == "no-cache"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-request-id"]
    script = await client.get("/assets/a-1.js", headers={"Accept-Encoding": "identity"})
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await client.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == page.headers["content-length"]


async def test_what_is_no_file_is_answered_as_before(stage: Stage) -> None:
    client = stage.serve(web_files=FILES)
    for method, path in (("GET", "/index.html"), ("GET", "/assets/a-2.js"), ("POST", "/")):
        answer = await client.request(method, path)
        assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")
    assert (await client.get(f"{API}/health")).status_code == 200


async def test_files_count_for_the_address(stage: Stage) -> None:
    client = stage.serve(RestOptions(anonymous_per_minute=3), web_files=FILES)
    answers = [await client.get("/") for _ in range(3)]
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["2", "1", "0"]
    refused = await client.get("/", headers={"Authorization": "Bearer nonsense"})
    assert (refused.status_code, code_of(refused)) == (429, "RATE_LIMITED")


async def test_without_files_there_is_nothing_at_the_root(stage: Stage) -> None:
    assert (await stage.client.get("/")).status_code == 404


def test_package_brings_a_page() -> None:
    assert "/" in built_files().paths
