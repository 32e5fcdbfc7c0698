"""`hal booking`: the advance reservations in the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.kit.formats import instant
from hal.cli.policy.entry_commands import noun
from hal.cli.policy.remarks import is_over, remark_on_one
from hal.core.model.policy import Booking, Repeat
from hal.core.model.policy_change import Kind


def _row(entry: Booking) -> Mapping[str, str]:
    return {
        "start": instant(entry.start_ms),
        "state": "over" if is_over(entry) else "",
        "duration": str(entry.duration),
        "repeat": "" if entry.repeat is Repeat.ONCE else entry.repeat.value,
        "until": instant(entry.until_ms),
        "nodes": ",".join(entry.nodes) or (f"any {entry.count}" if entry.count else ""),
        "licences": ",".join(f"{name}={amount}" for name, amount in entry.licences.items()),
        "for": "maintenance" if entry.maintenance else ",".join(entry.accounts + entry.users),
        "early": "early" if entry.early else "",
        "overlap": "overlap" if entry.overlap else "",
        "description": entry.description,
    }


booking = noun(
    Kind.BOOKING,
    Booking,
    _row,
    text="A booking reserves nodes and licences for a time, once or regularly.",
    examples="""
    hal booking add course --start 2030-01-07T09:00 --duration 2h --repeat weekly --nodes n1,n2 --accounts teaching
    hal booking add upkeep --start +3d --duration 4h --nodes n1 --maintenance
    hal booking set course --duration 3h      # extend it, even while it is active
    hal submit --booking course -- make all
    """,
    remark=remark_on_one,
)
