"""The lists that `hal top` shows: columns, order, and which rows a filter keeps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hal.cli.jobs.job_columns import COLUMNS as JOB_COLUMNS
from hal.cli.kit.formats import NOTHING, instant, limit, span, used
from hal.client.rest.views import JobInfo, NodeInfo, QueueInfo
from hal.client.sessions.listing import SessionInfo
from hal.core.model.policy_delegation import state_of

BAR: Final = 8
"""Characters of a bar of utilisation."""
STATES: Final = ("running", "suspended", "finalising", "preparing", "allocated", "pending", "held")
"""In the order in which they are listed; ended ones come behind them."""
JOB_FILTERS: Final = ("state", "user", "queue", "name", "account", "label", "node")
"""What the controller selects jobs by: written `user=alice` in a filter."""


class Column(NamedTuple):
    """One column of a list."""

    title: str
    cell: Callable[[Any, int], str]
    """What it shows of a row at that time, in milliseconds."""
    key: Callable[[Any, int], Any]
    """What it sorts by; None comes last."""


class Listing(NamedTuple):
    """One list."""

    name: str
    columns: tuple[Column, ...]
    key: Callable[[Any], str]
    """What tells a row from the others."""
    order: str
    """The title of the column by which it is sorted at first; with `-` in front, descending; empty: as it comes."""


class Filter(NamedTuple):
    """What somebody typed to see fewer rows."""

    asked: Mapping[str, str]
    """Of jobs: what the controller selects by."""
    words: tuple[str, ...]
    """Each of them must be in some cell of a row, in lower case."""


def read_filter(text: str) -> Filter:
    """`user=alice state=running fit`: what the controller selects jobs by, and words to look for in the rows."""
    asked: dict[str, str] = {}
    words: list[str] = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals and value and name.lower() in JOB_FILTERS:
            asked[name.lower()] = value
        else:
            words.append(word.lower())
    return Filter(asked, tuple(words))


def chosen_rows(
    listing: Listing, rows: Sequence[Any], words: Sequence[str], order: str, now_ms: int
) -> list[tuple[str, Any]]:
    """The rows in which all words are, in that order, each behind its key."""
    kept = [row for row in rows if _has(listing, row, words, now_ms)] if words else list(rows)
    title, descending = order.removeprefix("-"), order.startswith("-")
    for column in listing.columns:
        if column.title == title:
            key = column.key
            valued = [row for row in kept if key(row, now_ms) not in (None, "", NOTHING)]
            rest = [row for row in kept if key(row, now_ms) in (None, "", NOTHING)]
            valued.sort(key=lambda row: key(row, now_ms), reverse=descending)
            kept = valued + rest
    return [(listing.key(row), row) for row in kept]


def cells_of(listing: Listing, row: Any, now_ms: int) -> list[str]:
    """What each column shows of a row."""
    return [column.cell(row, now_ms) for column in listing.columns]


def next_order(listing: Listing, order: str) -> str:
    """The order by the next column, ascending; behind the last one that in which the list comes."""
    titles = ["", *(column.title for column in listing.columns)]
    at = titles.index(order.removeprefix("-")) if order.removeprefix("-") in titles else 0
    return titles[(at + 1) % len(titles)]


def part_used(capacity: Mapping[str, int], free: Mapping[str, int], name: str) -> float | None:
    """Which part of a resource is taken; None: there is none of it."""
    total = capacity.get(name, 0)
    return (total - free.get(name, total)) / total if total > 0 else None


def bar(part: float | None) -> str:
    """`####....  50%`; nothing where there is nothing."""
    if part is None:
        return NOTHING
    full = min(BAR, max(0, round(part * BAR)))
    return f"{'#' * full}{'.' * (BAR - full)} {part:4.0%}"


def _has(listing: Listing, row: Any, words: Sequence[str], now_ms: int) -> bool:
    text = " ".join(cells_of(listing, row, now_ms)).lower()
    return all(word in text for word in words)


def _of_job(title: str, name: str) -> Column:
    return Column(title, JOB_COLUMNS[name].cell, JOB_COLUMNS[name].key)


def _text(title: str, of: Callable[[Any], str]) -> Column:
    return Column(title, lambda row, _: of(row), lambda row, _: of(row))


def _count(title: str, of: Callable[[Any], int]) -> Column:
    return Column(title, lambda row, _: str(of(row)), lambda row, _: of(row))


def _taken(title: str, name: str) -> Column:
    def key(row: NodeInfo, now_ms: int) -> float | None:
        return part_used(row.capacity, row.free, name)

    return Column(title, lambda row, _: used(row.capacity, row.free, name), key)


def _waited_ms(row: QueueInfo, now_ms: int) -> int | None:
    return None if row.oldest_ms is None else max(0, now_ms - row.oldest_ms)


def _state_key(row: JobInfo, now_ms: int) -> tuple[int, str]:
    state = row.state.value
    return (STATES.index(state), "") if state in STATES else (len(STATES), state)


JOBS: Final = Listing(
    "jobs",
    (
        _of_job("ID", "id"),
        _of_job("NAME", "name"),
        _of_job("USER", "user"),
        _of_job("QUEUE", "queue"),
        Column("STATE", JOB_COLUMNS["state"].cell, _state_key),
        _of_job("TASKS", "tasks"),
        _of_job("NODES", "nodes"),
        _of_job("TIME", "time"),
        _of_job("LEFT", "left"),
        _of_job("REASON", "reason"),
    ),
    lambda job: str(job.id),
    "STATE",
)
NODES: Final = Listing(
    "nodes",
    (
        _text("NAME", lambda node: node.name),
        _text("STATE", lambda node: node.state.value),
        Column(
            "USE",
            lambda node, _: bar(part_used(node.capacity, node.free, "cpu")),
            lambda node, _: part_used(node.capacity, node.free, "cpu"),
        ),
        _taken("CPU", "cpu"),
        _taken("MEMORY", "memory"),
        _taken("GPU", "gpu"),
        _count("STEPS", lambda node: node.running),
        _text("REASON", lambda node: "; ".join(filter(None, (node.reason, *node.notes)))),
    ),
    lambda node: str(node.name),
    "NAME",
)
QUEUES: Final = Listing(
    "queues",
    (
        _text("NAME", lambda queue: queue.name),
        _text("STATE", state_of),
        _count("PENDING", lambda queue: queue.pending),
        _count("HELD", lambda queue: queue.held),
        _count("RUNNING", lambda queue: queue.running),
        Column("OLDEST", lambda queue, now_ms: span(_waited_ms(queue, now_ms)), _waited_ms),
        _count("JOBS", lambda queue: queue.jobs),
        Column("MAX", lambda queue, _: limit(queue.max_walltime), lambda queue, _: queue.max_walltime),
        _text("DESCRIPTION", lambda queue: queue.description),
    ),
    lambda queue: str(queue.name),
    "NAME",
)


def _slots(session: SessionInfo) -> str:
    return f"{session.running} of {session.most}"


SESSIONS: Final = Listing(
    "sessions",
    (
        _text("NAME", lambda session: session.name),
        _text("USER", lambda session: session.user),
        _text("QUEUE", lambda session: session.queue),
        _text("STATE", lambda session: session.state),
        Column("SLOTS", lambda session, _: _slots(session), lambda session, _: session.running),
        _text("BROKER", lambda session: session.broker),
        _text("SLOTS' JOB", lambda session: session.slots),
        Column("OPENED", lambda session, _: instant(session.submit_ms), lambda session, _: session.submit_ms),
    ),
    lambda session: f"{session.user} {session.name}",
    "NAME",
)
LISTINGS: Final = (JOBS, NODES, QUEUES, SESSIONS)
"""In the order of their keys, 1 to 4."""
