"""Notes on entries of the policy that are valid but probably not meant: no node has what is named, or the time is over.

Nodes that have it may join later, so nothing is refused. Each note is about settings that were given or have changed.
Notes are made after the change: if what they need cannot be read they are left out, and the command has succeeded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from hal.cli.kit.screen import Screen
from hal.cli.policy.changes import rules_text
from hal.client.rest import policy_calls
from hal.client.rest.policy_views import PolicyDifference
from hal.client.rest.views import NodeInfo
from hal.core.model import Constraint, HALError, Operator
from hal.core.model.occurrences import current_occurrence
from hal.core.model.policy import Booking, Limit, Policy, Queue
from hal.core.model.policy_change import TABLE, Do, Kind, Operation, apply_operations
from hal.core.model.policy_check import near

STANDARD = frozenset({"cpu", "memory", "gpu"})
"""Resources that may be named before a node has them."""
_LOOKED_AT: Mapping[Kind, frozenset[str]] = {
    Kind.QUEUE: frozenset({"nodes"}),
    Kind.LIMIT: frozenset({"resources", "hours", "max_job"}),
}
"""Settings that notes are about; for a booking all, since its time may be over."""
MAX_REMARKS = 20
"""Most notes on one file."""


def remark_on_one(screen: Screen, operation: Operation) -> None:
    """Print notes on the settings that were given for one entry, which was or would be changed."""
    looked_at = _LOOKED_AT.get(operation.kind)
    if looked_at is not None and looked_at.isdisjoint(operation.entry):
        return
    # The change was made: that the controller has gone, or the policy has changed since, does not undo it.
    with contextlib.suppress(HALError):
        policy = screen.client.call(policy_calls.policy()).value
        # What was set can be set again; what was added is there now, unless it was a dry run.
        there = operation.name in getattr(policy, TABLE[operation.kind])
        if there is (operation.op is Do.SET):
            policy = apply_operations(policy, [operation])
        entry = getattr(policy, TABLE[operation.kind]).get(operation.name)
        for text in _Remarks(screen, then="; set a new start, such as --start +2h").on(entry, operation.entry.keys()):
            screen.note(f"note: {text}")


def remark_on_changes(screen: Screen, differences: Sequence[PolicyDifference], after: Callable[[], Policy]) -> None:
    """Print notes on all entries that were added or changed, at most `MAX_REMARKS`; `after` gives the active policy."""
    remarks = _Remarks(screen)
    notes: list[str] = []
    with contextlib.suppress(HALError):  # the change was made, whether or not it can be commented on
        policy = after()
        for at, fields in _changed_fields(differences).items():
            notes.extend(f"note: {at}: {text}" for text in remarks.on(_entry(policy, at), fields))
    for line in notes[:MAX_REMARKS]:
        screen.note(line)
    if len(notes) > MAX_REMARKS:
        screen.note(f"note: {len(notes) - MAX_REMARKS} more notes of this kind")


def is_over(entry: Booking) -> bool:
    """Whether its last occurrence has ended."""
    return current_occurrence(entry, round(time.time() * 1000)) is None


def _changed_fields(differences: Sequence[PolicyDifference]) -> Mapping[str, Collection[str]]:
    """By entry, such as `queues.short`; all fields of an entry that was added."""
    out: dict[str, set[str]] = {}
    for one in differences:
        fields = {one.field} if one.field else set(one.after or ())
        out.setdefault(one.entry, set()).update(fields)
    return out


def _entry(policy: Policy, at: str) -> Struct | None:
    table, _, name = at.partition(".")
    found = getattr(policy, table).get(name) if table in TABLE.values() else None
    return found if isinstance(found, Struct) else None


class _Remarks:
    """Reads the nodes once, and only if something is to be compared with them."""

    def __init__(self, screen: Screen, *, then: str = "") -> None:
        """then: what to do about a booking whose time is over, if the command has an option for it."""
        self._screen = screen
        self._then = then

    @cached_property
    def _nodes(self) -> Sequence[NodeInfo]:
        return list(self._screen.client.nodes())

    def on(self, entry: Struct | None, fields: Collection[str]) -> Iterator[str]:
        """Notes on these fields of one entry."""
        if isinstance(entry, Limit):
            yield from self._on_limit(entry, fields)
        elif isinstance(entry, Booking):
            yield from self._on_booking(entry, fields)
        elif isinstance(entry, Queue) and "nodes" in fields and entry.nodes and not self._fitting(entry.nodes):
            yield self._no_node_has(entry.nodes, "its jobs wait")

    def _on_limit(self, entry: Limit, fields: Collection[str]) -> Iterator[str]:
        amounts = (entry.resources, entry.hours, entry.max_job)
        given = (
            amount
            for field, amount in zip(("resources", "hours", "max_job"), amounts, strict=True)
            if field in fields and amount
        )
        named = {name for amount in given for name in amount}
        if named <= STANDARD:
            return
        known = {name for node in self._nodes for name in node.capacity} | STANDARD
        unknown = sorted(named - known)
        if unknown:
            yield f"no node has {', '.join(unknown)} at present{near(unknown[0], known)}"

    def _on_booking(self, entry: Booking, fields: Collection[str]) -> Iterator[str]:
        if is_over(entry):
            yield f"its time is over, so it reserves nothing{self._then}"
        if entry.nodes and "nodes" in fields:
            known = {node.name for node in self._nodes}
            unknown = sorted(set(entry.nodes) - known)
            if unknown:
                hint = near(unknown[0], known)
                yield f"there is no node {', '.join(unknown)} at present (it will be reserved when it joins){hint}"
        if entry.count and not {"count", "constraints"}.isdisjoint(fields):
            fit = self._fitting(entry.constraints)
            if entry.constraints and not fit:
                yield self._no_node_has(entry.constraints, "nothing is reserved")
            elif entry.count > fit:
                which = f" with {rules_text(entry.constraints)}" if entry.constraints else ""
                yield f"it reserves {entry.count} nodes, and there are only {fit}{which} at present"

    def _fitting(self, rules: Sequence[Constraint]) -> int:
        return sum(all(rule.holds(node.labels) for rule in rules) for node in self._nodes)

    def _no_node_has(self, rules: Sequence[Constraint], then: str) -> str:
        """What follows from that; with the nearest label or value, if no node has the one that is named."""
        labels: dict[str, set[str]] = {}
        for node in self._nodes:
            for label, value in node.labels.items():
                labels.setdefault(label, set()).add(value)
        for rule in rules:
            if not any(rule.holds(node.labels) for node in self._nodes):
                hint = ""
                if rule.label not in labels:
                    hint = near(rule.label, labels)
                elif rule.op is Operator.IN:  # a value that is excluded is meant: nodes have it
                    hint = near(rule.values[0], labels[rule.label])
                return f"no node has {rules_text([rule])} at present, so {then}{hint}"
        return f"no node has all of {rules_text(rules)} at present, so {then}"
