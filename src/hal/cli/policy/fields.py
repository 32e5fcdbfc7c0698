"""Command-line options made from the fields of the policy's entries, and what is typed as plain data.

Pure. Every field has an option of its name; `none` empties a list or restores a default.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from msgspec import Struct

from hal.client.instants import instant_ms
from hal.core.model import Constraint, Duration, Resources
from hal.core.model.policy import Account, Booking, Limit, Qos, Weights
from hal.core.model.units import parse_duration

NONE = "none"
TIME_FIELDS = {"start_ms": "start", "until_ms": "until"}
"""Instants in milliseconds, typed as times."""
WITH_COMMAS = frozenset({"hours"})
"""Lists whose items may hold commas."""

HELP: Mapping[str, str] = {
    "description": "Description.",
    "priority": "Priority; its jobs start before those of a lower one.",
    "order": "Order of its jobs.",
    "strict": "No job of the queue overtakes its first job, whatever that waits for.",
    "weights": "Priority weights in this queue (default: the site's).",
    "default_walltime": "Walltime of jobs that name none.",
    "default_request": "Resources that jobs get where they name none of them, such as cpu=2,memory=2GiB.",
    "max_walltime": "Longest walltime.",
    "max_tasks": "Longest array.",
    "max_extensions": "Most extensions of one job.",
    "default_qos": "QOS of jobs that name none.",
    "qos": "Allow only this QOS.",
    "accounts": "Allow only this account and those below it.",
    "users": "Allow only this user.",
    "nodes": "Node pool: labels that its nodes must have.",
    "gpu_reserve": "What its jobs without GPUs leave for each GPU of a node, such as cpu=2 (default: the site's).",
    "placement": "Which of the nodes that can hold its jobs they get (default: the site's rule).",
    "preferences": "What a unit of advice adds to the score of a node, such as price=-1.",
    "hours": "When its jobs may start: 'mon-fri 18:00-08:00'.",
    "zone": "Time zone of its hours: Europe/Berlin (default: UTC).",
    "open": "Accept new jobs, or refuse them.",
    "starts": "Start its jobs, or let them wait.",
    "operators": "Let this user open, drain and close it, and control its jobs.",
    "coordinators": "Let this user limit its users, control its jobs, and set its secrets.",
    "delegated": "A coordinator of the account has set it.",
    "sandbox": "What its jobs are kept from on their nodes: yes, or words of docs/sandbox.md.",
    "movable": "Let tasks of jobs that do not say start again elsewhere to make room for a gang, or not.",
    "on_node_lost": "Default for what happens to tasks whose node is unreachable.",
    "on_dependency_failed": "Default for what happens to jobs whose dependencies can no longer be met.",
    "preempts": "Queue whose running tasks its jobs may preempt.",
    "preempt_mode": "How its own running tasks are preempted.",
    "grace": "Time between the signal and the end when a task is preempted.",
    "usage_factor": "Factor on what its jobs are charged.",
    "parent": "Parent account.",
    "weight": "Share among its siblings.",
    "closed": "Only the users that it names may use it, or everybody.",
    "queue": "Count jobs in this queue; *: each queue separately.",
    "account": "Count jobs of this account and those below it; *: each account separately.",
    "user": "Count jobs of this user; *: each user separately.",
    "running": "Most tasks that run at once.",
    "pending": "Most pending tasks.",
    "resources": "Most resources in use at once.",
    "period": f"Period of the resource-hours (default: {Limit().period}).",
    "max_job": "Most that one task may request, over all its nodes.",
    "max_nodes": "Most nodes of one task.",
    "cohort": "Cohort: its limits lend each other what they do not use.",
    "borrow": "Most that may be borrowed.",
    "reclaim": "How it reclaims what it has lent when it has work.",
    "start_ms": "Start; local time unless a zone is given.",
    "duration": "Duration.",
    "repeat": "How often it is repeated.",
    "until_ms": "End of the repetition: no occurrence starts later.",
    "count": "Number of nodes, which HAL chooses, instead of named ones.",
    "constraints": "Labels that these nodes must have.",
    "licences": "Licences to reserve.",
    "maintenance": "Nobody may use it, or its accounts and users may.",
    "early": "Its users' jobs may, or may not, use its nodes before it begins.",
    "max_deadline": "Longest deadline that a job may give it.",
    "overlap": "It may, or may not, share nodes with other bookings.",
}

HELP_OF: Mapping[type[Struct], Mapping[str, str]] = {
    Qos: {"preempts": "QOS whose running tasks its jobs may preempt."},
    Account: {"users": "User with a share of its own."},
    Limit: {"qos": "Count jobs of this QOS; *: each QOS separately.", "hours": "Most resource-hours in each period."},
    Booking: {"nodes": "Node to reserve, by name."},
}
"""For fields whose name means something else there."""


class _Form:
    """How one field is typed, and what plain data the typed text means."""

    def __init__(
        self, metavar: str, plain: Callable[[str, str], Any], *, many: bool = False, empty: Any = None
    ) -> None:
        self.metavar = metavar
        self.plain = plain
        self.many = many
        self.empty = empty


def options(kind: type[Struct]) -> list[click.Option]:
    """An option for each field but the name."""
    return [_option(kind, name, hint) for name, hint in _fields(kind)]


def entry_of(kind: type[Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were typed, as plain data; None restores a default.

    Raises:
        click.UsageError: a text is not what the field takes.
    """
    out: dict[str, Any] = {}
    for name, hint in _fields(kind):
        typed = given.get(name)
        if typed is None or typed == ():
            continue
        option = f"--{option_name(name)}"
        if isinstance(typed, bool):
            out[name] = typed
            continue
        form = _form(name, hint)
        if form.many:
            out[name] = _several(form, option, typed if name in WITH_COMMAS else _split(typed))
        else:
            out[name] = None if typed == NONE else form.plain(option, typed)
    return out


def option_name(field: str) -> str:
    """`max_walltime` is `--max-walltime`, `start_ms` is `--start`."""
    return TIME_FIELDS.get(field, field).replace("_", "-")


def _fields(kind: type[Struct]) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=False)
    for field in msgspec.structs.fields(kind):
        if field.name != "name":
            yield field.name, hints[field.name]


def _option(kind: type[Struct], name: str, hint: Any) -> click.Option:
    word = option_name(name)
    summary = HELP_OF.get(kind, {}).get(name) or HELP[name]
    if hint is bool:
        return click.Option([f"--{word}/--no-{word}", name], default=None, help=summary)
    form = _form(name, hint)
    more = "; repeatable" if form.many else ""
    return click.Option(
        [f"--{word}", name],
        metavar=form.metavar or None,
        multiple=form.many,
        type=_choice(hint) or click.STRING,
        help=summary.removesuffix(".") + more + ".",
    )


def _choice(hint: Any) -> click.Choice[str] | None:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return click.Choice([*(one.value for one in hint), NONE])
    return None


def _form(name: str, hint: Any) -> _Form:
    inner = [one for one in get_args(hint) if one is not types.NoneType] if _is_union(hint) else [hint]
    kind = inner[0]
    if name in TIME_FIELDS:
        return _Form("TIME", _instant_ms)
    if kind is int:
        return _Form("N", _integer)
    if kind is float:
        return _Form("X", _number)
    if kind is Duration:
        return _Form("TIME", _duration)
    if kind is Resources:
        return _Form("NAME=N,…", _resources)
    if kind == tuple[str, ...]:
        return _Form("WINDOW" if name == "hours" else "NAME,…", _text, many=True, empty=[])
    if kind == tuple[Constraint, ...]:
        return _Form("RULE,…", _text, many=True, empty=[])
    if kind == dict[str, int]:
        return _Form("NAME=N,…", _integer, many=True, empty={})
    if kind == dict[str, float] or kind is Weights:
        return _Form("NAME=X,…", _number, many=True, empty={} if kind is not Weights else None)
    return _Form("" if _choice(kind) else "TEXT", _text)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _several(form: _Form, option: str, items: Sequence[str]) -> Any:
    if list(items) == [NONE]:
        return form.empty
    if "=" not in form.metavar:
        return [form.plain(option, item) for item in items]
    table: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or (not equals and form.plain is not _number):
            raise click.UsageError(f"{option}: '{item}' is not NAME={'N' if form.plain is _integer else 'X'}")
        table[name] = form.plain(option, value) if equals else 1.0
    return table


def _split(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in (piece.strip() for piece in text.split(",")) if part]


def _text(option: str, text: str) -> str:
    return text


def _integer(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(f"{option}: '{text}' is not a whole number") from None


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):  # JSON has no infinity: it would arrive as null
        raise click.UsageError(f"{option}: '{text}' is not a number")
    return number


def _duration(option: str, text: str) -> str:
    return str(parse_duration(text, field=option))


def _resources(option: str, text: str) -> dict[str, str]:
    return Resources.parse(text, field=option).plain()


def _instant_ms(option: str, text: str) -> int:
    return instant_ms(text, option)
