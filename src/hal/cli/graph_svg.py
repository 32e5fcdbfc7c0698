"""Jobs that wait for jobs as a picture: each job a box, coloured by its state, to the right of those it waits for.

Pure but for `gather`, which asks for each job once. Layers are longest paths; within a layer jobs stand near those that
they wait for. Equal graphs give equal bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from msgspec import Struct

from hal.core.model.printable import printable

if TYPE_CHECKING:
    from hal.client.sync import Client
    from hal.client.views import JobInfo

MAX_DRAWN: Final = 300
"""Jobs in a picture; the nearest."""
SWEEPS: Final = 4
"""Times that layers are ordered by their neighbours."""
WIDE, HIGH, GAP_X, GAP_Y, MARGIN = 168, 44, 72, 16, 24
NAME_SHOWN: Final = 15

_FILL: Final = {
    "pending": "#fef3c7", "held": "#f3e8ff", "allocated": "#dcfce7", "preparing": "#dcfce7", "running": "#bbf7d0",
    "suspended": "#e0f2fe", "finalising": "#dcfce7", "succeeded": "#dbeafe", "failed": "#fecaca",
    "timed-out": "#fecaca", "cancelled": "#e5e7eb",
}  # fmt: skip
_INK, _LINE = "#22272e", "#6b7280"


class Box(Struct, frozen=True):
    """A job as it is drawn."""

    job: str
    name: str
    state: str


class Arrow(Struct, frozen=True, order=True):
    """`after` waits for `before`. either: it is one of several, any of which will do."""

    before: str
    after: str
    kind: str
    either: bool = False


class Graph(Struct, frozen=True):
    """What is drawn. more: jobs that were left out."""

    boxes: dict[str, Box]
    arrows: tuple[Arrow, ...]
    more: bool = False


def gather(client: Client, info: JobInfo) -> Graph:
    """The job, all that it waits for and all that waits for it, near ones first, at most MAX_DRAWN of them."""
    from hal.cli.graph import dependencies_of

    seen: dict[str, JobInfo] = {info.id: info}
    ahead = deque([info])
    arrows: set[Arrow] = set()
    more = False
    while ahead:
        one = ahead.popleft()
        for entry in dependencies_of(one):
            for part in entry.any_of or (entry,):
                if part.job:
                    arrows.add(Arrow(part.job, one.id, str(part.kind), bool(entry.any_of)))
        near = [arrow.before for arrow in sorted(arrows) if arrow.after == one.id]
        for job in [*near, *one.dependants]:
            if job in seen:
                continue
            if len(seen) == MAX_DRAWN:
                more = True
                continue
            seen[job] = client.job(job).info
            ahead.append(seen[job])
    boxes = {job: Box(job, known.name, known.state.value) for job, known in seen.items()}
    drawn = tuple(arrow for arrow in sorted(arrows) if arrow.before in boxes and arrow.after in boxes)
    return Graph(boxes, drawn, more)


def layers_of(jobs: Iterable[str], arrows: Sequence[Arrow]) -> list[list[str]]:
    """The jobs by the longest path that leads to each, each layer ordered so that arrows cross little. No cycles."""
    before: dict[str, list[str]] = {job: [] for job in jobs}
    after: dict[str, list[str]] = {job: [] for job in before}
    for arrow in arrows:
        before[arrow.after].append(arrow.before)
        after[arrow.before].append(arrow.after)
    waits = {job: len(others) for job, others in before.items()}
    layer = dict.fromkeys(before, 0)
    ready = deque(job for job, count in waits.items() if not count)
    while ready:
        job = ready.popleft()
        for other in after[job]:
            layer[other] = max(layer[other], layer[job] + 1)
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    layers: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for job, place in layer.items():
        layers[place].append(job)
    for sweep in range(SWEEPS):
        sides = layers if sweep % 2 == 0 else layers[::-1]
        near = before if sweep % 2 == 0 else after
        height = {job: at for jobs_of in layers for at, job in enumerate(jobs_of)}
        for jobs_of in sides:
            jobs_of.sort(key=lambda job: _middle([height[other] for other in near[job]], height[job]))
            height |= {job: at for at, job in enumerate(jobs_of)}
    return layers


def svg_of(graph: Graph, middle: str) -> str:
    """The picture; `middle` is the job that was asked about."""
    routes = _routes(graph)
    steps = [Arrow(one, other, "") for route in routes.values() for one, other in pairwise(route)]
    layers = layers_of(dict.fromkeys([*graph.boxes, *(stop for route in routes.values() for stop in route)]), steps)
    tallest = max(len(layer) for layer in layers)
    place: dict[str, tuple[int, int]] = {}
    for column, layer in enumerate(layers):
        top = MARGIN + (tallest - len(layer)) * (HIGH + GAP_Y) // 2
        for row, job in enumerate(layer):
            place[job] = MARGIN + column * (WIDE + GAP_X), top + row * (HIGH + GAP_Y)
    width = 2 * MARGIN + len(layers) * (WIDE + GAP_X) - GAP_X
    height = 2 * MARGIN + tallest * (HIGH + GAP_Y) - GAP_Y + (20 if graph.more else 0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="DejaVu Sans, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{_LINE}"/></marker></defs>',
        *(line for arrow, route in routes.items() for line in _arrow(arrow, [place[stop] for stop in route])),
        *(line for job, box in graph.boxes.items() for line in _box(box, *place[job], job == middle)),
    ]
    if graph.more:
        lines.append(f'<text x="{MARGIN}" y="{height - 8}" fill="{_LINE}">the nearest {MAX_DRAWN} jobs</text>')
    return "\n".join([*lines, "</svg>", ""])


def _routes(graph: Graph) -> dict[Arrow, list[str]]:
    """The stops of each arrow: its two jobs, and a place of its own in every layer that it passes."""
    layer = {job: at for at, jobs in enumerate(layers_of(graph.boxes, graph.arrows)) for job in jobs}
    return {
        arrow: [
            arrow.before,
            *(f"{number}>{at}" for at in range(layer[arrow.before] + 1, layer[arrow.after])),
            arrow.after,
        ]
        for number, arrow in enumerate(graph.arrows)
    }


def _arrow(arrow: Arrow, stops: Sequence[tuple[int, int]]) -> list[str]:
    middle = HIGH // 2
    path = f"M{stops[0][0] + WIDE} {stops[0][1] + middle}"
    for (x, y), (to_x, to_y) in pairwise(stops):
        bend = (x + WIDE + to_x) // 2
        path += f" C{bend} {y + middle} {bend} {to_y + middle} {to_x} {to_y + middle}"
        if (to_x, to_y) != stops[-1]:
            path += f" H{to_x + WIDE}"
    dashed = ' stroke-dasharray="5 3"' if arrow.either else ""
    line = f'<path d="{path}" fill="none" stroke="{_LINE}"{dashed} marker-end="url(#end)"/>'
    if arrow.kind == "afterok":
        return [line]
    x, y = stops[-1][0] - 8, stops[-1][1] + middle - 5
    return [line, f'<text x="{x}" y="{y}" text-anchor="end" fill="{_LINE}" font-size="9">{_text(arrow.kind)}</text>']


def _box(box: Box, x: int, y: int, middle: bool) -> list[str]:
    name = box.name if len(box.name) <= NAME_SHOWN else f"{box.name[:NAME_SHOWN]}…"
    fill = _FILL.get(box.state, "#ffffff")
    return [
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="{fill}" stroke="{_INK}" '
        f'stroke-width="{2 if middle else 0.7}"/>',
        f'<text x="{x + 9}" y="{y + 18}" fill="{_INK}" font-weight="bold">{_text(f"{box.job} {name}")}</text>',
        f'<text x="{x + 9}" y="{y + 34}" fill="{_INK}">{_text(box.state)}</text>',
    ]


def _text(text: str) -> str:
    """As XML may hold it: of control characters it holds none."""
    return escape(printable(text))


def _middle(places: Sequence[int], own: int) -> float:
    return sum(places) / len(places) if places else float(own)
