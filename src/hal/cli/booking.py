"""`hal booking`: the advance reservations of the policy."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hal.cli.policy_nouns import noun
from hal.cli.screen import Screen
from hal.cli.wording import instant
from hal.core.model.occurrences import current
from hal.core.model.policy import Booking, Repeat
from hal.core.model.policy_change import Do, Kind, Operation
from hal.core.model.policy_check import near
from hal.core.model.policy_text import entry_from_plain


def _row(entry: Booking) -> Mapping[str, str]:
    return {
        "start": instant(entry.start_ms),
        "state": "over" if _is_over(entry) else "",
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


def _is_over(entry: Booking) -> bool:
    """It holds no more, and never will again."""
    return current(entry, round(time.time() * 1000)) is None


def _remark(screen: Screen, operation: Operation) -> None:
    """What is lawful and hardly meant: nodes that nobody knows (they may join later), a time that is over."""
    fields = operation.entry
    given = {field: value for field, value in fields.items() if value is not None}
    if operation.op is Do.ADD and _is_over(entry_from_plain(given, Booking, f"bookings.{operation.name}")):
        screen.note("note: its time is over, so it sets nothing aside; --start says when it begins, like +2h")
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
