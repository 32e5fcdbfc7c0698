"""`hal booking`: the advance reservations of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hal.cli.policy_nouns import noun
from hal.cli.screen import Screen
from hal.cli.wording import instant
from hal.core.model.policy import Booking, Repeat
from hal.core.model.policy_change import Kind
from hal.core.model.policy_check import near


def _row(entry: Booking) -> Mapping[str, str]:
    return {
        "start": instant(entry.start_ms),
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


def _remark(screen: Screen, fields: Mapping[str, Any]) -> None:
    """Nodes that nobody knows are lawful, as they may join later; more often they are misspelt."""
    names, count = fields.get("nodes") or (), fields.get("count") or 0
    if not names and not count:
        return
    known = {node.name for node in screen.client.nodes()}
    unknown = sorted(set(names) - known)
    if unknown:
        hint = near(unknown[0], known)
        screen.note(f"note: no node is called {', '.join(unknown)} now (set aside when one of that name joins){hint}")
    if count > len(known):
        screen.note(f"note: {count} nodes are to be set aside and there are {len(known)} now")


booking = noun(
    Kind.BOOKING,
    Booking,
    _row,
    text="Bookings: nodes and licences set aside for a time, once or again and again.",
    examples="""
    hal booking add course --start 2030-01-07T09:00 --duration 2h --repeat weekly --nodes n1,n2 --accounts teaching
    hal booking add upkeep --start +3d --duration 4h --nodes n1 --maintenance
    hal booking set course --duration 3h      # longer, also while it holds
    hal submit --booking course -- make all
    """,
    remark=_remark,
)
