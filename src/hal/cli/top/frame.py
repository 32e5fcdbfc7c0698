"""One frame of `hal top` as plain text: the sums in the header, and a list. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from hal.cli.kit.formats import NOTHING
from hal.cli.kit.tables import GAP, fitted
from hal.cli.top.listings import Listing, bar, cells_of, part_used
from hal.cli.top.reading import Reading
from hal.client.rest.views import HealthInfo, NodeInfo
from hal.core.model.printable import printable

JOB_STATES: Final = ("running", "preparing", "allocated", "finalising", "suspended", "pending", "held")
MAX_WARNINGS: Final = 1


def header_lines(reading: Reading, where: str) -> list[str]:
    """What the whole cluster does, in three lines: nodes, use, jobs."""
    health, nodes = reading.health, reading.nodes
    return [
        f"HAL {health.version} {where}   nodes: {_counts(health.nodes)}",
        _use(nodes),
        f"jobs: {_job_counts(health)}{_warning(health)}",
    ]


def table_lines(
    listing: Listing, rows: Sequence[tuple[str, Any]], now_ms: int, width: int
) -> tuple[str, list[str], list[tuple[int, int]]]:
    """The line of titles, one line for each row, and where each shown column is in them: (position, width).

    What does not fit is shortened with an ellipsis, or its column is left out.
    """
    titles = [column.title for column in listing.columns]
    cells = [[printable(cell) for cell in cells_of(listing, row, now_ms)] for _, row in rows]
    return lines_of(titles, cells, width)


def lines_of(titles: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> tuple[str, list[str], list[Any]]:
    """As `table_lines`, of cells."""
    shown = fitted(titles, cells, width)
    last = max(shown, default=0)
    taken = sum(wide + GAP for at, wide in shown.items() if at != last)
    if shown and titles[last] in _LONG:
        shown[last] = max(shown[last], width - taken)
    places, at = [], 0
    for wide in shown.values():
        places.append((at, wide))
        at += wide + GAP

    def line(texts: Sequence[str]) -> str:
        return (" " * GAP).join(fit(texts[column], wide) for column, wide in shown.items())

    return line(titles), [line(row) for row in cells], places


def fit(text: str, wide: int) -> str:
    """The text in exactly so many columns of a terminal."""
    return set_cell_size(text, wide) if cell_len(text) <= wide else f"{set_cell_size(text, wide - 1)}…"


_LONG: Final = ("REASON", "DESCRIPTION")
"""As a last column, they take what is left of the line."""


def _counts(by_state: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in by_state.items() if count) or "none"


def _job_counts(health: HealthInfo) -> str:
    return _counts({state: health.jobs.get(state, 0) for state in JOB_STATES})


def _warning(health: HealthInfo) -> str:
    if not health.warnings:
        return ""
    more = f" (and {len(health.warnings) - MAX_WARNINGS} more: hal status)" if len(health.warnings) > 1 else ""
    return f"   ! {printable(health.warnings[0])}{more}"


def _sum(nodes: Sequence[NodeInfo], name: str) -> str:
    """A bar, and how many of how many, as whole numbers."""
    capacity, free = _totals(nodes, name)
    return f"{_bar(nodes, name)} {round((capacity - free) / 1_000)}/{round(capacity / 1_000)}" if capacity else NOTHING


def _bar(nodes: Sequence[NodeInfo], name: str) -> str:
    capacity, free = _totals(nodes, name)
    return bar(part_used({name: capacity}, {name: free}, name))


def _use(nodes: Sequence[NodeInfo]) -> str:
    """How much of the nodes that answer is held; where there are GPUs, those are what is counted."""
    if _totals(nodes, "gpu")[0]:
        return f"cpu {_bar(nodes, 'cpu')}  memory {_bar(nodes, 'memory')}  gpu {_sum(nodes, 'gpu')}"
    return f"cpu {_sum(nodes, 'cpu')}  memory {_bar(nodes, 'memory')}"


def _totals(nodes: Sequence[NodeInfo], name: str) -> tuple[int, int]:
    """How much there is of a resource, and how much of it is free, on nodes that can be reached."""
    there = [node for node in nodes if node.connected]
    return sum(node.capacity.get(name, 0) for node in there), sum(node.free.get(name, 0) for node in there)
