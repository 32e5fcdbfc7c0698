"""What a controller reports of policies that gave wrong answers: a line in the log for each cause, a count."""

from __future__ import annotations

from msgspec import Struct

from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import PolicyFault
from hal.core.engine.plugins.faults import INSTEAD, is_out
from hal.runtime.interface import Logger


class Failed(Struct):
    """How often a policy failed, and what it did last."""

    fault: PolicyFault
    times: int = 0


class PolicyFaults:
    """Remembers as many as there are policies."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._failed: dict[tuple[str, str], Failed] = {}

    def __call__(self, fault: PolicyFault) -> None:
        """Record that a policy has failed."""
        before = self._failed.get((fault.setting, fault.policy))
        times = before.times if before is not None else 0
        self._failed[fault.setting, fault.policy] = Failed(fault, times + 1)
        if before is None or before.fault.message != fault.message:
            self._log.error(
                "a policy failed and is not asked any more", reason=fault.message, instead=INSTEAD[fault.setting]
            )

    def warnings(self, config: EngineConfig) -> list[str]:
        """One sentence for each that is out of use under the configuration that holds."""
        return [
            f"{failed.fault.message}: {INSTEAD[setting]} until the policy is changed or HAL is started again (failed "
            f"{'once' if failed.times == 1 else f'{failed.times} times'})"
            for (setting, policy), failed in sorted(self._failed.items())
            if is_out(config, setting, policy)
        ]
