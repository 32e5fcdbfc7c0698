"""The scheduling engine: `apply(state, event)` changes the state, `cycle(state, now_ms)` plans; nothing else decides.

Importing this package (or its events, plans and classes) loads no numba; what has tables does, when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal.core.engine.errors import EngineError

if TYPE_CHECKING:
    from hal.core.engine.applying import apply as apply
    from hal.core.engine.cycling import cycle as cycle
    from hal.core.engine.rules.configuration import new_state as new_state
    from hal.core.engine.state import State

__all__ = ["EngineError", "State", "apply", "cycle", "new_state"]


_HOMES = {
    "State": "hal.core.engine.state",
    "apply": "hal.core.engine.applying",
    "cycle": "hal.core.engine.cycling",
    "new_state": "hal.core.engine.rules.configuration",
}

if not TYPE_CHECKING:  # the type checker would believe in every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
