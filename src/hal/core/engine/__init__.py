"""The scheduling engine: `apply(state, event)` changes the state, `cycle(state, now_ms)` plans; nothing else decides."""

from hal.core.engine.apply import apply
from hal.core.engine.cycle import cycle
from hal.core.engine.errors import EngineError
from hal.core.engine.state import State

__all__ = ["EngineError", "State", "apply", "cycle"]
