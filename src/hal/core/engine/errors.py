"""What the engine refuses: an event that names something it does not know, or that contradicts its state."""

from __future__ import annotations


class EngineError(ValueError):
    """An event (or plan) that cannot be applied; the state is as it was before it."""
