"""What the workspace itself tests on a real server: the client in Node. Its tests of core and store
run with those of the whole workspace (tests/web_app/test_build.py)."""

import pytest

from tests.e2e.chatting import Site
from tests.web.tooling import CLIENT, run_node

SCRIPT = CLIENT / "scripts/test.mjs"

pytestmark = [pytest.mark.slow]


def test_client_in_node_on_a_real_server(site: Site) -> None:
    assert "fail 0" in run_node(SCRIPT, "--real", TIDEWIRE_URL=site.url)
