"""Options of a command line from the fields of a policy's entries, and what people type as plain data.

Pure. Every field has an option of its name; `none` empties a list or gives a field its default back.
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

from hal.client.specs import instant_ms
from hal.core.model import Constraint, Duration, Resources
from hal.core.model.policy import Account, Booking, Limit, Qos, Weights
from hal.core.model.units import parse_duration

NONE = "none"
TIME_FIELDS = {"start_ms": "start", "until_ms": "until"}
"""Instants, which people type as times."""
WITH_COMMAS = frozenset({"hours"})
"""Lists whose items may hold commas."""

HELP: Mapping[str, str] = {
    "description": "For people.",
    "priority": "Rank: its jobs go before those of a lower one.",
    "order": "How its jobs stand to each other.",
    "strict": "Nothing of it overtakes its first job, whatever keeps that one waiting.",
    "weights": "Weights of priority in this queue instead of the site's.",
    "default_walltime": "Of jobs that name none.",
    "max_walltime": "Longest walltime.",
    "max_tasks": "Longest array.",
    "default_qos": "QOS of jobs that name none.",
    "qos": "The only QOS that may be used.",
    "accounts": "The only accounts, with all below them.",
    "users": "The only users.",
    "nodes": "Its node pool: what the labels of its nodes must say.",
    "hours": "When its jobs may start, UTC: 'mon-fri 18:00-08:00'.",
    "open": "Whether new jobs are accepted.",
    "on_node_lost": "What becomes of tasks whose node is not heard, where the job does not say.",
    "on_dependency_failed": "What becomes of jobs whose dependency can no longer be met.",
    "preempts": "Queues whose running tasks may be taken back for its jobs.",
    "preempt_mode": "How its own running tasks are taken back.",
    "grace": "Between the signal and the end when a task is taken back.",
    "usage_factor": "Multiplies what its jobs are charged.",
    "parent": "The account above it.",
    "weight": "Its share among its siblings.",
    "closed": "Only the users named may use it.",
    "queue": "Whose jobs it counts: a queue, * for each.",
    "account": "Whose jobs it counts: an account with all below it, * for each.",
    "user": "Whose jobs it counts: a user, * for each.",
    "running": "Tasks that run at once.",
    "pending": "Tasks that wait.",
    "resources": "In use at once.",
    "period": f"Of the resource-hours; {Limit().period} unless given.",
    "max_job": "Most that one task may ask for, over all its nodes.",
    "max_nodes": "Most nodes of one task.",
    "cohort": "Limits of one cohort lend each other what they do not use.",
    "borrow": "The most that is borrowed.",
    "reclaim": "How what it has lent comes back when it has work.",
    "start_ms": "When it begins; local time where no zone is given.",
    "duration": "How long it holds.",
    "repeat": "How often it comes again.",
    "until_ms": "No occurrence starts after it.",
    "count": "So many nodes, chosen by HAL, instead of named ones.",
    "constraints": "What the labels of these nodes must say.",
    "licences": "Licences set aside.",
    "maintenance": "Nobody may use it.",
    "early": "Its users' jobs may use its nodes before it begins, where they are free.",
    "overlap": "It may share nodes with other bookings.",
}

HELP_OF: Mapping[type[Struct], Mapping[str, str]] = {
    Qos: {"preempts": "QOS whose running tasks may be taken back for its jobs."},
    Account: {"users": "Users with a share of their own."},
    Limit: {"qos": "Whose jobs it counts: a QOS, * for each.", "hours": "Resource-hours in each period."},
    Booking: {"nodes": "These nodes, by name."},
}
"""Where a field of the same name means something else."""


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
    """The fields that were typed, as plain data; a field that is to have its default again is None.

    Raises:
        click.UsageError: a text that is none of what the field takes.
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
    told = HELP_OF.get(kind, {}).get(name) or HELP[name]
    if hint is bool:
        return click.Option([f"--{word}/--no-{word}", name], default=None, help=told)
    form = _form(name, hint)
    more = "; repeatable" if form.many else ""
    return click.Option(
        [f"--{word}", name],
        metavar=form.metavar or None,
        multiple=form.many,
        type=_choice(hint) or click.STRING,
        help=told.removesuffix(".") + more + ".",
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
    if not math.isfinite(number):  # JSON has no word for the others: they would arrive as no value at all
        raise click.UsageError(f"{option}: '{text}' is not a number")
    return number


def _duration(option: str, text: str) -> str:
    return str(parse_duration(text, field=option))


def _resources(option: str, text: str) -> dict[str, str]:
    return Resources.parse(text, field=option).plain()


def _instant_ms(option: str, text: str) -> int:
    return instant_ms(text, option)
