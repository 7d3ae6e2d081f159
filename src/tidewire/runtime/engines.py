"""The registry of engines: lists them, and chooses the one for an ability."""

import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from tidewire import engines
from tidewire.ports.engine import Engine

ENGINES: Final[Mapping[str, Engine]] = {
    folder.name: import_module(f"{engines.__name__}.{folder.name}.engine").ENGINE
    for folder in pkgutil.iter_modules(engines.__path__)
}
"""By name: every folder of `tidewire.engines` is one."""


def engine_for(
    ability: str, *, is_shared: bool, options: Mapping[str, Any] | None = None
) -> Engine:
    """The engine that has this ability: the one that its settings choose, or the default one."""
    fitting = [
        engine
        for engine in ENGINES.values()
        if engine.is_shared is is_shared and getattr(engine, ability) is not None
    ]
    for engine in fitting:
        if options is not None and not engine.is_default and engine.is_chosen(options[engine.name]):
            return engine
    return next(engine for engine in fitting if engine.is_default)


def shared_engines() -> list[Engine]:
    """The engines of a cluster."""
    return [engine for engine in ENGINES.values() if engine.is_shared]


def names_cluster(options: Mapping[str, Any]) -> bool:
    """Whether the settings name the place of something that only a cluster needs."""
    return any(
        engine.needs(engine.options()) and not engine.needs(options[engine.name])
        for engine in shared_engines()
    )


def missing_vendors(wanted: Iterable[Engine]) -> list[str]:
    """The vendor modules of these engines that are not installed."""
    vendors = (engine.vendor for engine in wanted)
    return [name for name in vendors if name is not None and find_spec(name) is None]
