"""What the engine refuses: an event that names something it does not know, or that contradicts its state."""

from __future__ import annotations

from hal.core.model.errors import HALError


class EngineError(HALError, ValueError):
    """An event (or plan) that cannot be applied, or a policy that cannot be used; the state is as it was before it."""

    code = "engine"


class EngineFault(EngineError):
    """A loop came to its bound: the tables contradict themselves. Nothing more is decided with this state."""

    code = "engine-fault"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"engine: {what} did not end and was stopped at its bound; this state is not used any more: rebuild the "
            "engine from what is stored (a controller does so by itself), and report it with the output of hal diagnose"
        )


class PolicyFault(EngineError):
    """A plugin raised, or answered with what is no answer. setting: `order`, `score`, `preempt` or `filter`."""

    def __init__(self, setting: str, policy: str, what: str) -> None:
        super().__init__(f"{setting} {policy!r}: {what}")
        self.setting = setting
        self.policy = policy
