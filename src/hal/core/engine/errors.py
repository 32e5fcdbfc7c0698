"""What the engine refuses: an event that names something it does not know, or that contradicts its state."""

from __future__ import annotations

from hal.core.model.errors import HALError


class EngineError(HALError, ValueError):
    """An event (or plan) that cannot be applied, or a policy that cannot be used; the state is as it was before it."""

    code = "engine"
