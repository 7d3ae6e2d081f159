"""The conformance kit: checks whether a client, any client, does what the contract requires.

    report = await run_conformance(SdkAdapter)
    print(report)

The kit plays the server, on a port of its own: it duplicates, reorders, drops and delays, cuts the
connection at every point of an exchange, and comes back with a shorter memory. Each duty of the
contract is one check with its id (CL-01 to EH-05). See docs/conformance.md.
"""

from tidewire_conformance.adapter import Account, Adapter, SendRefused, Shown, Ticked
from tidewire_conformance.checks import ALL
from tidewire_conformance.registry import Check, Level
from tidewire_conformance.runner import Report, Result, run_check, run_conformance
from tidewire_conformance.stage import Violated

__all__ = [
    "ALL",
    "Account",
    "Adapter",
    "Check",
    "Level",
    "Report",
    "Result",
    "SendRefused",
    "Shown",
    "Ticked",
    "Violated",
    "run_check",
    "run_conformance",
]
