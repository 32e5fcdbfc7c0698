"""The columns that `hal jobs` can show, what each shows of a job, and by what it sorts. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

from hal.cli.jobs.job_cells import done, ran_ms
from hal.cli.kit.formats import NOTHING, id_number, instant, limit, span
from hal.client.rest.views import JobInfo
from hal.core.model import TaskState, readable_amount
from hal.core.model.topology.node_lists import fold_names

WAITS: Final = (TaskState.PENDING, TaskState.HELD)


class Column(NamedTuple):
    """One column."""

    help: str
    cell: Callable[[JobInfo, int], str]
    """What it shows of a job at that time."""
    key: Callable[[JobInfo, int], Any]
    """What it sorts by: of one type, or None, which comes last."""


def _text(help_text: str, of: Callable[[JobInfo], str]) -> Column:
    return Column(help_text, lambda info, _: of(info), lambda info, _: of(info))


def _count(help_text: str, of: Callable[[JobInfo], int]) -> Column:
    return Column(help_text, lambda info, _: str(of(info)), lambda info, _: of(info))


def _time(help_text: str, of: Callable[[JobInfo], int | None]) -> Column:
    return Column(help_text, lambda info, _: instant(of(info)) or NOTHING, lambda info, _: of(info))


def _span(help_text: str, of: Callable[[JobInfo, int], int | None]) -> Column:
    return Column(help_text, lambda info, now_ms: span(of(info, now_ms)), of)


def _amount(name: str) -> Column:
    def cell(info: JobInfo, now_ms: int) -> str:
        amount = info.request.get(name)
        return readable_amount(name, amount) if amount else NOTHING

    return Column(f"{name} per node", cell, lambda info, _: info.request.get(name))


def _nodes(info: JobInfo) -> str:
    where = info.placement
    return fold_names(where.nodes) + (",…" if where.more else "") if where and where.nodes else NOTHING


def _left_ms(info: JobInfo, now_ms: int) -> int | None:
    where = info.placement
    return None if where is None or where.ends_by_ms is None else max(0, where.ends_by_ms - now_ms)


def _waited_ms(info: JobInfo, now_ms: int) -> int:
    return max(0, (now_ms if info.start_ms is None else info.start_ms) - info.submit_ms)


def reason(info: JobInfo, now_ms: int) -> str:
    """Why it waits, in a few words, how much of a service is ready, or how it ended."""
    waiting = info.waiting
    if waiting is not None and info.state in WAITS:
        at_ms = waiting.starts_at_ms
        until = "" if at_ms is None or at_ms <= now_ms else f" {clock_time(at_ms, now_ms)}"
        held = f": {info.reason}" if info.state is TaskState.HELD and info.reason else ""
        return f"{waiting.short}{until}{held}"
    if info.ready is not None and not info.ended:
        return f"{info.ready} of {info.tasks} ready" + (f"; {info.reason}" if info.reason else "")
    if info.state is TaskState.FAILED and info.exit_code:
        return info.reason or f"exit code {info.exit_code}"
    return info.reason


def clock_time(ms: int, now_ms: int) -> str:
    """`18:00` on the same day, else the date, too; local time."""
    when, now = (datetime.fromtimestamp(at_ms / 1000).astimezone() for at_ms in (ms, now_ms))
    return when.strftime("%H:%M" if when.date() == now.date() else "%Y-%m-%d %H:%M")


COLUMNS: Final[dict[str, Column]] = {
    "id": _count("the job's id", lambda info: id_number(info.id)),
    "name": _text("its name, or its command", lambda info: info.name),
    "user": _text("whose it is", lambda info: info.user),
    "account": _text("on whose behalf", lambda info: info.account),
    "queue": _text("its queue", lambda info: info.queue),
    "state": _text("its state", lambda info: info.state.value),
    "priority": _count("its own priority", lambda info: info.priority),
    "tasks": Column("tasks that have ended, of all", lambda info, _: done(info), lambda info, _: info.tasks),
    "nodes": Column("where it runs", lambda info, _: _nodes(info), lambda info, _: _nodes(info)),
    "width": _count("nodes that each task holds at once", lambda info: info.nodes),
    "cpu": _amount("cpu"),
    "memory": _amount("memory"),
    "gpu": _amount("gpu"),
    "walltime": Column("its limit", lambda info, _: limit(info.walltime), lambda info, _: info.walltime),
    "time": _span("how long it has run", ran_ms),
    "left": _span("until what runs reaches its walltime", _left_ms),
    "waited": _span("from submission to its start, or until now", _waited_ms),
    "submitted": _time("when it was submitted", lambda info: info.submit_ms),
    "started": _time("when it started first", lambda info: info.start_ms),
    "ended": _time("when it ended", lambda info: info.end_ms),
    "exit": Column(
        "its exit code",
        lambda info, _: NOTHING if info.exit_code is None else str(info.exit_code),
        lambda info, _: info.exit_code,
    ),
    "restarts": _count("attempts beyond the first of each task", lambda info: info.restarts),
    "ready": Column(
        "tasks of a service that are ready",
        lambda info, _: NOTHING if info.ready is None else str(info.ready),
        lambda info, _: info.ready,
    ),
    "labels": _text("its labels", lambda info: ",".join(f"{k}={v}" for k, v in sorted(info.labels.items()))),
    "reason": Column("why it waits, or how it ended", reason, reason),
}
"""By the name that --columns and --sort take; the title is the same in capitals."""
DEFAULT: Final = ("id", "name", "user", "queue", "state", "tasks", "nodes", "time", "left", "reason")


def chosen(text: str | None) -> tuple[str, ...]:
    """The columns of a comma list; what begins with `+` comes behind the usual ones.

    Raises:
        click.UsageError: one does not exist, or comes twice.
    """
    if text is None:
        return DEFAULT
    more = text.startswith("+")
    names = [_known(part) for part in text.removeprefix("+").split(",") if part.strip()]
    if not names:
        raise click.UsageError(f"--columns: no column is named (columns: {', '.join(COLUMNS)})")
    if more:
        names = [*(name for name in DEFAULT if name not in names), *names]
    if len(set(names)) < len(names):
        raise click.UsageError("--columns: a column is named twice")
    return tuple(names)


def sort_keys(text: str) -> list[tuple[str, bool]]:
    """The keys of a comma list; True: descending.

    Raises:
        click.UsageError: one is no column.
    """
    return [(_known(part.strip().removeprefix("-")), part.strip().startswith("-")) for part in text.split(",")]


def sorted_by(found: Sequence[JobInfo], keys: Sequence[tuple[str, bool]], now_ms: int) -> list[JobInfo]:
    """The jobs by these keys, the first first; what has no value comes last, whatever the direction."""
    rows = list(found)
    for name, descending in reversed(keys):
        key = COLUMNS[name].key
        valued = [row for row in rows if key(row, now_ms) not in (None, "", NOTHING)]
        rest = [row for row in rows if key(row, now_ms) in (None, "", NOTHING)]

        def value(row: JobInfo, of: Callable[[JobInfo, int], Any] = key) -> Any:
            return of(row, now_ms)

        rows = sorted(valued, key=value, reverse=descending) + rest
    return rows


def rows_of(found: Sequence[JobInfo], columns: Sequence[str], now_ms: int) -> list[tuple[str, ...]]:
    """The cells of each job."""
    return [tuple(COLUMNS[name].cell(info, now_ms) for name in columns) for info in found]


def _known(text: str) -> str:
    name = text.strip().lower()
    if name in COLUMNS:
        return name
    near = difflib.get_close_matches(name, COLUMNS, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise click.UsageError(f"'{text.strip()}' is not a column{hint} (columns: {', '.join(COLUMNS)})")
