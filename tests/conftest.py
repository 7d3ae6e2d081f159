"""Settings of every test run: hypothesis profiles, no silent skips in CI, the servers of the stack
stopped at the end if this run has started them."""

import gc
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import stack, web
from tests.support.loops import CheckingLoop

IN_CI = os.environ.get("CI") == "true"

# However many cores there are, a server of a test is one process, unless the run says otherwise.
os.environ.setdefault("TIDEWIRE_SERVER_PROCESSES", "1")

settings.register_profile("default", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    # Two busy cores make data generation slow now and then; that says nothing about the code.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if IN_CI else "default")


class SkipWatch:
    """Fails a run in which a test was skipped: what did not run proves nothing."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure reports itself as skipped too, but it has run.
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._skipped[report.nodeid] = report.longreprtext

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section("skipped in CI: make it run or delete it", red=True)
            for nodeid, reason in self._skipped.items():
                terminalreporter.line(f"{nodeid}: {reason}")


class StackWatch:
    """Stops what the tests have started, and says what was left out."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tidewire-stack-")
        self._note = Path(self._directory.name) / "started"
        # The processes of xdist inherit it.
        os.environ[stack.STARTED_VARIABLE] = str(self._note)

    def pytest_unconfigure(self) -> None:
        if self._note.exists():
            stack.stop(*sorted({*self._note.read_text().split()}))
        self._directory.cleanup()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for sentence in (*stack.left_out(), *web.left_out()):
            terminalreporter.line(f"not tested: {sentence}", yellow=True)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], CheckingLoop]]:
    """Every loop that a test is given."""
    return {"checking": CheckingLoop}


def pytest_collection_finish() -> None:
    """What is loaded by now stays until the end. The garbage collector would walk thousands of
    tests and modules again and again, which is a fifth of the time that short tests take."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    is_xdist_worker = hasattr(config, "workerinput")
    if not is_xdist_worker:
        config.pluginmanager.register(StackWatch(), "stack-watch")
        if IN_CI:
            config.pluginmanager.register(SkipWatch(), "skip-watch")
