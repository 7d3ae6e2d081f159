"""Runs the checks against a client and reports what it does and does not do."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tidewire_conformance.adapter import Adapter
from tidewire_conformance.checks import ALL
from tidewire_conformance.registry import Check, Level
from tidewire_conformance.server import PlayedServer
from tidewire_conformance.stage import Stage, Violated

PARALLEL: Final = 6
CHECK_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check; `fault` says why it failed."""

    check: Check
    fault: str | None
    seconds: float

    @property
    def passed(self) -> bool:
        return self.fault is None


@dataclass(frozen=True, slots=True)
class Report:
    """All results, in the order of the contract."""

    results: Sequence[Result]

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if not result.passed]

    @property
    def conforms(self) -> bool:
        """No MUST is broken."""
        return not any(result.check.level is Level.MUST for result in self.failed)

    def __str__(self) -> str:
        lines = []
        for result in self.results:
            check = result.check
            verdict = f"{check.level:<6}  {'ok' if result.passed else 'FAILED':<6}"
            lines.append(f"{check.id}  {verdict}  {result.seconds:5.1f} s  {check.title}")
            if result.fault is not None:
                lines.append(f"       {result.fault}")
        by_level = {
            level: [result for result in self.results if result.check.level is level]
            for level in Level
        }
        counts = ", ".join(
            f"{sum(result.passed for result in results)} of {len(results)} {level}"
            for level, results in by_level.items()
            if results
        )
        lines.append(f"{counts}: {'conforms' if self.conforms else 'does not conform'}")
        return "\n".join(lines)


async def run_check(
    check: Check,
    adapter_factory: Callable[[], Adapter],
    *,
    patience_s: float | None = None,
    has_features: bool = True,
) -> Result:
    """One check, with a server and a client of its own."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    server = PlayedServer()
    if not has_features:
        server.features = ()
    await server.open()
    adapter = adapter_factory()
    fault: str | None = None
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            await check.body(Stage(server, adapter, patience_s=patience_s))
    except Violated as violation:
        fault = str(violation)
    except Exception as error:  # noqa: BLE001 - whatever a client's adapter raises is a verdict
        fault = f"{type(error).__name__}: {error}"
    finally:
        await adapter.dispose()
        await server.close()
    return Result(check, fault, loop.time() - began)


async def run_conformance(
    adapter_factory: Callable[[], Adapter],
    *,
    only: Collection[str] | None = None,
    patience_s: float | None = None,
    parallel: int = PARALLEL,
    has_features: bool = True,
) -> Report:
    """Run all checks, or those with the ids in `only`, some at a time. Each gets a new client from
    the factory, and a server of its own. Without `has_features` that is an old server, which knows
    none of the features that the client may offer."""
    chosen = [check for check in ALL.values() if only is None or check.id in only]
    room = asyncio.Semaphore(parallel)

    async def run(check: Check) -> Result:
        async with room:
            return await run_check(
                check, adapter_factory, patience_s=patience_s, has_features=has_features
            )

    return Report(await asyncio.gather(*(run(check) for check in chosen)))
