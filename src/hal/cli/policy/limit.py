"""`hal limit`: the limits and quotas in the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy.entry_commands import noun
from hal.cli.policy.remarks import remark_on_one
from hal.core.model.policy import Limit, Reclaim
from hal.core.model.policy_change import Kind


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


limit = noun(
    Kind.LIMIT,
    Limit,
    _row,
    text="A limit bounds what a user, account, queue or QOS may use; * sets it for each of them.",
    examples="""
    hal limit add each-user --user '*' --running 100 --pending 10000
    hal limit add ml-gpus --account ml --resources gpu=64 --cohort gpus
    hal limit set each-user --running none
    """,
    remark=remark_on_one,
)
