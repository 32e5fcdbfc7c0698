"""What decides instead of a policy that answers wrongly while the engine runs: HAL's own, until the policy is changed.

Pure. The change is an event like any other (`ConfigChanged`), so a replay of what was applied comes to the same.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import PolicyFault
from hal.core.engine.policies import LEAST_LOST, SMALLEST

INSTEAD: Final = {
    "order": "jobs are ordered by HAL itself",
    "score": "nodes are chosen first-fit",
    "domain-score": "jobs of several nodes go to the smallest domain",
    "preempt": "attempts that lose the least are preempted first",
    "filter": "its last results stay in force, and it admits nothing new",
}
"""By what the policy was asked for, in words."""


def without(config: EngineConfig, fault: PolicyFault) -> EngineConfig:
    """The configuration that does not ask the policy that failed.

    A filter is there for a reason: it keeps what it said last of nodes and kinds of jobs, and admits no others.
    """
    match fault.setting:
        case "order":
            return replace(config, order="fcfs" if config.policy is None else "priority")
        case "score":
            return replace(config, placement="first-fit")
        case "domain-score":
            return replace(config, domains=SMALLEST)
        case "preempt":
            return replace(config, preempt=LEAST_LOST)
        case _:
            return replace(config, stopped=(*config.stopped, fault.policy))


def is_out(config: EngineConfig, setting: str, policy: str) -> bool:
    """Whether a policy that failed is not asked under this configuration."""
    if setting == "filter":
        return policy in config.stopped
    named = {
        "order": config.order, "score": config.placement, "domain-score": config.domains, "preempt": config.preempt,
    }  # fmt: skip
    return policy != named[setting]
