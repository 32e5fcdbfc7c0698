"""`hal gate`: the gates that jobs may name."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy.entry_commands import noun
from hal.core.model.policy import GateRule
from hal.core.model.policy_change import Kind


def _row(entry: GateRule) -> Mapping[str, str]:
    return {
        "max": str(entry.max_deadline),
        "accounts": ",".join(entry.accounts),
        "users": ",".join(entry.users),
        "description": entry.description,
    }


gate = noun(
    Kind.GATE,
    GateRule,
    _row,
    text="A gate is a service of a node (HAL_HOME/gates/NAME.sock) that lets an attempt begin, or end. Jobs may name "
    "declared gates only.",
    examples="""
    hal gate add stage --max-deadline 1h
    hal gate set stage --users ann
    hal run --gate stage,argument=genome -- ./align
    """,
)
