"""`hal queue`: the queues in the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy.entry_commands import noun
from hal.cli.policy.remarks import remark_on_one
from hal.core.model.policy import PreemptMode, Queue
from hal.core.model.policy_change import Kind


def _row(entry: Queue) -> Mapping[str, str]:
    return {
        "state": "open" if entry.open else "closed",
        "priority": str(entry.priority or ""),
        "order": entry.order.value,
        "default": str(entry.default_walltime or ""),
        "max": str(entry.max_walltime or ""),
        "qos": ",".join(entry.qos) or entry.default_qos,
        "accounts": ",".join(entry.accounts),
        "users": ",".join(entry.users),
        "hours": "; ".join(entry.hours),
        "preempts": ",".join(entry.preempts),
        "preempted by": "" if entry.preempt_mode is PreemptMode.OFF else entry.preempt_mode.value,
        "description": entry.description,
    }


queue = noun(
    Kind.QUEUE,
    Queue,
    _row,
    text="A queue sets who may use it, how long its jobs may run, and which of them start first.",
    examples="""
    hal queue add short --max-walltime 15m --priority 10
    hal queue set short --accounts physics,biology --dry-run
    hal queue set short --no-open        # accept no new jobs; those in it still run
    """,
    remark=remark_on_one,
)
