"""Remarks on entries of the policy: what is lawful and hardly meant, as no node has what is named, or the time is over.

Nodes may join that have it, so nothing is refused. Each remark is about fields that were given or have changed. They
are made once the change is done: where what they need cannot be read, they are left out, and the command has succeeded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from hal.cli.policy_changes import rules_text
from hal.cli.screen import Screen
from hal.client import policy_calls
from hal.client.policy_views import PolicyDifference
from hal.client.views import NodeInfo
from hal.core.model import Constraint, HALError, Operator
from hal.core.model.occurrences import current
from hal.core.model.policy import Booking, Limit, Policy, Queue
from hal.core.model.policy_change import TABLE, Do, Kind, Operation, changed
from hal.core.model.policy_check import near

STANDARD = frozenset({"cpu", "memory", "gpu"})
"""Resources that nobody misspells by declaring them ahead of the nodes that have them."""
_LOOKED_AT: Mapping[Kind, frozenset[str]] = {
    Kind.QUEUE: frozenset({"nodes"}),
    Kind.LIMIT: frozenset({"resources", "hours", "max_job"}),
}
"""Fields that remarks are about; of a booking any, as time goes by."""
MAX_REMARKS = 20
"""Remarks on one file."""


def remark_on_one(screen: Screen, operation: Operation) -> None:
    """Say what people may not have meant by the fields that they gave one entry, which is or would be changed so."""
    looked_at = _LOOKED_AT.get(operation.kind)
    if looked_at is not None and looked_at.isdisjoint(operation.entry):
        return
    # The change holds: a controller that went away, or whoever has changed the policy since, makes it no failure.
    with contextlib.suppress(HALError):
        policy = screen.client.call(policy_calls.policy()).value
        # What was set can be set once more; what was added is there now, unless that was a dry run.
        there = operation.name in getattr(policy, TABLE[operation.kind])
        if there is (operation.op is Do.SET):
            policy = changed(policy, [operation])
        entry = getattr(policy, TABLE[operation.kind]).get(operation.name)
        for text in _Remarks(screen, then="; --start says when it begins, like +2h").on(entry, operation.entry.keys()):
            screen.note(f"note: {text}")


def remark_on_changes(screen: Screen, differences: Sequence[PolicyDifference], after: Callable[[], Policy]) -> None:
    """The same for each entry that came or was changed, at most `MAX_REMARKS`; `after` makes the policy that holds."""
    remarks = _Remarks(screen)
    told: list[str] = []
    with contextlib.suppress(HALError):  # the change holds: it has not failed where nothing can be said about it
        policy = after()
        for at, fields in _changed_fields(differences).items():
            told.extend(f"note: {at}: {text}" for text in remarks.on(_entry(policy, at), fields))
    for line in told[:MAX_REMARKS]:
        screen.note(line)
    if len(told) > MAX_REMARKS:
        screen.note(f"note: {len(told) - MAX_REMARKS} more remarks of this kind")


def is_over(entry: Booking) -> bool:
    """It holds no more, and never will again."""
    return current(entry, round(time.time() * 1000)) is None


def _changed_fields(differences: Sequence[PolicyDifference]) -> Mapping[str, Collection[str]]:
    """By entry, like `queues.short`; all fields of one that came."""
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
    """Asks for the nodes once, and only where something is to be compared with them."""

    def __init__(self, screen: Screen, *, then: str = "") -> None:
        """then: what to do about a booking whose time is over, if the command that was typed has an option for it."""
        self._screen = screen
        self._then = then

    @cached_property
    def _nodes(self) -> Sequence[NodeInfo]:
        return list(self._screen.client.nodes())

    def on(self, entry: Struct | None, fields: Collection[str]) -> Iterator[str]:
        """Sentences about these fields of one entry."""
        if isinstance(entry, Limit):
            yield from self._on_limit(entry, fields)
        elif isinstance(entry, Booking):
            yield from self._on_booking(entry, fields)
        elif isinstance(entry, Queue) and "nodes" in fields and entry.nodes and not self._fitting(entry.nodes):
            yield self._none_says(entry.nodes, "its jobs wait")

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
            yield f"no node has {', '.join(unknown)} now{near(unknown[0], known)}"

    def _on_booking(self, entry: Booking, fields: Collection[str]) -> Iterator[str]:
        if is_over(entry):
            yield f"its time is over, so it sets nothing aside{self._then}"
        if entry.nodes and "nodes" in fields:
            known = {node.name for node in self._nodes}
            unknown = sorted(set(entry.nodes) - known)
            if unknown:
                hint = near(unknown[0], known)
                yield f"no node is called {', '.join(unknown)} now (set aside when one of that name joins){hint}"
        if entry.count and not {"count", "constraints"}.isdisjoint(fields):
            fit = self._fitting(entry.constraints)
            if entry.constraints and not fit:
                yield self._none_says(entry.constraints, "nothing is set aside")
            elif entry.count > fit:
                which = f" that say {rules_text(entry.constraints)}" if entry.constraints else ""
                yield f"{entry.count} nodes are to be set aside and there are {fit} now{which}"

    def _fitting(self, rules: Sequence[Constraint]) -> int:
        return sum(all(rule.holds(node.labels) for rule in rules) for node in self._nodes)

    def _none_says(self, rules: Sequence[Constraint], then: str) -> str:
        """And what follows; with the nearest label, or value of it, where one that is named is nobody's."""
        labels: dict[str, set[str]] = {}
        for node in self._nodes:
            for label, value in node.labels.items():
                labels.setdefault(label, set()).add(value)
        for rule in rules:
            if not any(rule.holds(node.labels) for node in self._nodes):
                hint = ""
                if rule.label not in labels:
                    hint = near(rule.label, labels)
                elif rule.op is Operator.IN:  # a value that is refused is meant: nodes say it
                    hint = near(rule.values[0], labels[rule.label])
                return f"no node says {rules_text([rule])} now, so {then}{hint}"
        return f"no node says all of {rules_text(rules)} now, so {then}"
