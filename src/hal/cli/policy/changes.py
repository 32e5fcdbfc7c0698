"""Changes of the policy: the options `--dry-run` and `--note`, what changes, and what that means for jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from hal.cli.kit.formats import instant
from hal.cli.kit.screen import Screen
from hal.client.rest.policy_views import PolicyChange, PolicyDifference, PolicyEffects
from hal.core.model import Constraint, Operator, convert

MAX_LINES = 20
"""Most jobs or limits listed in a table of effects; JSON has all that the controller reports."""


def change_options() -> list[click.Option]:
    """Options of every command that changes the policy."""
    return [
        click.Option(["--dry-run"], is_flag=True, help="Change nothing; show what would change, and its effects."),
        click.Option(["--note"], metavar="TEXT", help="Reason, kept in the history."),
    ]


def show_change(screen: Screen, change: PolicyChange) -> None:
    """Print what was changed, or would be."""

    def render() -> None:
        show_differences(screen, change.changes)
        if not change.changes:
            screen.note(f"nothing changes: version {change.version} of the policy is the same")
        elif change.dry_run:
            screen.note(f"dry run: nothing was changed, version {change.version} of the policy is still active")
        else:
            screen.note(f"version {change.version} of the policy is active")
        if change.effects is not None:
            _show_effects(screen, change.effects)

    screen.show(change, render)


def show_differences(screen: Screen, differences: Sequence[PolicyDifference]) -> None:
    """Print one line for each setting: `queues.short max_walltime: 15m > 30m`."""
    for one in differences:
        if one.field:
            nothing = "none" if one.entry in ("licences", "users") else "default"
            before, after = (
                nothing if value is None else written(one.field, value) for value in (one.before, one.after)
            )
            screen.line(f"{one.entry} {one.field}: {before} > {after}")
        elif one.before is None:
            screen.line(f"+ {one.entry} {_fields(one.after)}".rstrip())
        else:
            screen.line(f"- {one.entry} {_fields(one.before)}".rstrip())


def _show_effects(screen: Screen, effects: PolicyEffects) -> None:
    from hal.core.model import plural

    if effects.refused_jobs:
        screen.line(f"pending jobs that would be refused if submitted now (they stay): {effects.refused_jobs}")
        for job in effects.refused[:MAX_LINES]:
            screen.line(f"  {job.job}: {job.reason}")
    if effects.over_limits:
        screen.line("limits that are exceeded already (nothing more is started or accepted until usage falls):")
        for over in effects.over[:MAX_LINES]:
            screen.line(f"  {over.limit} ({over.whose}): {over.now} {over.what} of {over.allowed}")
    if not (effects.refused_jobs or effects.over_limits):
        screen.note(f"{plural(effects.examined, 'job')} checked; none is affected")


def _fields(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return written("", entry)
    return ", ".join(f"{field} {written(field, value)}" for field, value in entry.items())


def written(field: str, value: Any) -> str:
    """A plain value as people write it; an instant as local time."""
    if value is None:
        return "default"
    if field.endswith("_ms") and isinstance(value, int):
        return instant(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        if "label" in value:
            return _rule(convert(value, Constraint))
        return ",".join(f"{name}={written('', one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(written("", one) for one in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def rules_text(rules: Sequence[Constraint]) -> str:
    """Conditions on labels, as they are typed."""
    return ",".join(map(_rule, rules))


def _rule(rule: Constraint) -> str:
    values = "|".join(rule.values)
    sign = {Operator.IN: "=", Operator.NOT_IN: "!="}.get(rule.op)
    if sign is None:
        return rule.label if rule.op is Operator.EXISTS else f"!{rule.label}"
    return f"{rule.label}{sign}{values}"
