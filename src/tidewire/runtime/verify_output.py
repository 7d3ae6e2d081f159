"""What `tidewire verify` prints: a table for people, or JSON for programs."""

from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tidewire.ops.invariants import BY_NAME
from tidewire.ops.verify import CheckResult, Report
from tidewire.runtime.console import tell


def as_json(report: Report, path: Path, seconds: float) -> str:
    """One object; its fields are as stable as the command's options."""
    whole = {
        "ok": report.violations == 0,
        "database": str(path),
        "epoch": report.epoch,
        "seconds": round(seconds, 3),
        "counts": report.counts,
        "violations": report.violations,
        "checks": report.checks,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def show(report: Report, seconds: float) -> None:
    """The table, the first offenders, and the verdict last, where it is seen."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(_table(report))
    for check in report.checks:
        if check.violations:
            _show_offenders(check)
    counts = report.counts
    looked_at = (
        f"{counts.messages:,} messages, {counts.chats:,} chats, {counts.positions:,} positions, "
        f"{len(report.checks)} checks, {seconds:.1f} s"
    )
    if report.violations == 0:
        tell(f"All is well: {looked_at}.")
        return
    failed = sum(check.violations > 0 for check in report.checks)
    tell(f"FAILED: {report.violations:,} violations of {failed} checks; {looked_at}.")
    tell(
        "What to do: keep a copy of the files as they are. A missing counter comes back with "
        "'tidewire recover-counter', and what a damaged write-ahead log still has with "
        "'tidewire recover-log'; for everything else restore the last backup that verifies."
    )


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("from", no_wrap=True)
    table.add_column("checked", justify="right", no_wrap=True)
    table.add_column("violations", justify="right", no_wrap=True)
    for check in report.checks:
        checked = "not possible" if check.checked is None else f"{check.checked:,}"
        style = "bold red" if check.violations else None
        table.add_row(check.name, check.source, checked, f"{check.violations:,}", style=style)
    return table


def _show_offenders(check: CheckResult) -> None:
    tell(f"{check.name}: {BY_NAME[check.name].statement}")
    for offender in check.offenders:
        place = f"{offender.chat_id}: " if offender.chat_id else ""
        tell(f"- {place}{offender.found}", indent="  ")
    if check.violations > len(check.offenders):
        tell(f"- and {check.violations - len(check.offenders):,} more")
    tell("")
