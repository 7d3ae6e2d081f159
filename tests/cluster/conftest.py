"""Shows the logs of a cluster's processes when a test of it fails."""

from collections.abc import Generator

import pytest

from tests.cluster.running import Cluster
from tests.support import stack

collect_ignore_glob = ["test_*.py"] if stack.IS_OFF else []
if not stack.HAS_FAULTS:
    # These tests need a machine for themselves, for minutes; the last lines of a run say so.
    collect_ignore_glob.append("test_faults.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Cluster):
                report.sections.extend(value.logs())
    return report
