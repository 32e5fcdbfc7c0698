"""`hal qos`: the qualities of service in the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy.entry_commands import noun
from hal.core.model.policy import PreemptMode, Qos
from hal.core.model.policy_change import Kind


def _row(entry: Qos) -> Mapping[str, str]:
    return {
        "priority": str(entry.priority),
        "preempts": ",".join(entry.preempts),
        "preempted by": "" if entry.preempt_mode is PreemptMode.OFF else entry.preempt_mode.value,
        "grace": "" if entry.preempt_mode is PreemptMode.OFF else str(entry.grace),
        "charge": f"{entry.usage_factor:g}",
        "max": str(entry.max_walltime or ""),
        "accounts": ",".join(entry.accounts),
        "users": ",".join(entry.users),
        "description": entry.description,
    }


qos = noun(
    Kind.QOS,
    Qos,
    _row,
    text="A QOS has a priority, may preempt jobs of other QOS, and sets what its jobs are charged.",
    examples="""
    hal qos add low --preempt-mode requeue --usage-factor 0.5
    hal qos add urgent --priority 10 --preempts low --max-walltime 1h
    hal qos set low --grace 5m
    """,
)
