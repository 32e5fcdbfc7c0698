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


def __getattr__(name: str) -> Any:
    if name == "State":
        from hal.core.engine.state import State

        return State
    if name == "new_state":
        from hal.core.engine.rules.configuration import new_state

        return new_state
    if name == "apply":
        from hal.core.engine.applying import apply

        return apply
    if name == "cycle":
        from hal.core.engine.cycling import cycle

        return cycle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
