"""`hal limit`: the limits and quotas of the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy_nouns import noun
from hal.cli.screen import Screen
from hal.core.model.policy import Limit, Reclaim
from hal.core.model.policy_change import Kind, Operation
from hal.core.model.policy_check import near

STANDARD = frozenset({"cpu", "memory", "gpu"})
"""Resources that nobody misspells by declaring them ahead of the nodes that have them."""


def _row(entry: Limit) -> Mapping[str, str]:
    return {
        "queue": entry.queue,
        "account": entry.account,
        "user": entry.user,
        "qos": entry.qos,
        "running": _text(entry.running),
        "pending": _text(entry.pending),
        "resources": _text(entry.resources),
        "hours": "" if entry.hours is None else f"{entry.hours} in {entry.period}",
        "max job": _text(entry.max_job),
        "max nodes": _text(entry.max_nodes),
        "max": _text(entry.max_walltime),
        "cohort": entry.cohort,
        "borrow": _text(entry.borrow),
        "reclaim": "" if entry.reclaim is Reclaim.WAIT else entry.reclaim.value,
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _remark(screen: Screen, operation: Operation) -> None:
    """A resource that no node has is lawful, as one may join that has it; more often it is misspelt."""
    named = {name for field in ("resources", "hours", "max_job") for name in operation.entry.get(field) or {}}
    if named <= STANDARD:
        return
    known = {name for node in screen.client.nodes() for name in node.capacity} | STANDARD
    unknown = sorted(named - known)
    if unknown:
        screen.note(f"note: no node has {', '.join(unknown)} now{near(unknown[0], known)}")


limit = noun(
    Kind.LIMIT,
    Limit,
    _row,
    text="Limits and quotas: of users, accounts, queues and QOS, named or each.",
    examples="""
    hal limit add each-user --user '*' --running 100 --pending 10000
    hal limit add ml-gpus --account ml --resources gpu=64 --cohort gpus
    hal limit set each-user --running none
    """,
    remark=_remark,
)
