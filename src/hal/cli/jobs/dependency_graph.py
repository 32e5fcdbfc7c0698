"""The jobs around a job as a graph in the languages of drawing tools: DOT (Graphviz) and Mermaid.

Pure but for `gather`, which reads each job once, and `svg_of`, which runs Graphviz. Equal graphs give equal text.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hal.cli.jobs.dependency_tree import dependencies_of, with_dependants
from hal.core.model.printable import printable

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo
    from hal.client.sync_client import Client

MAX_DRAWN: Final = 300
"""Most jobs in a graph; the nearest ones."""
GRAPHVIZ_TIMEOUT_S: Final = 60.0

_FILL: Final = {
    "pending": "#fef3c7", "held": "#f3e8ff", "allocated": "#dcfce7", "preparing": "#dcfce7", "running": "#bbf7d0",
    "suspended": "#e0f2fe", "finalising": "#dcfce7", "succeeded": "#dbeafe", "failed": "#fecaca",
    "timed-out": "#fecaca", "cancelled": "#e5e7eb",
}  # fmt: skip
_OTHER_FILL: Final = "#ffffff"
_MERMAID_ENTITIES: Final = {
    "#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", '"': "#quot;", "`": "#96;",
}  # fmt: skip


class Box(Struct, frozen=True):
    """A job."""

    job: str
    name: str
    state: str


class Arrow(Struct, frozen=True, order=True):
    """Job `after` depends on job `before`."""

    before: str
    after: str
    kind: str
    alternative: bool = False
    """`before` is one of several jobs, any of which is enough."""


class Graph(Struct, frozen=True):
    """Jobs by id, and the dependencies among them."""

    boxes: dict[str, Box]
    arrows: tuple[Arrow, ...]
    truncated: bool = False
    """Jobs farther away were left out."""


def gather(client: Client, info: JobInfo) -> Graph:
    """Read the job, the jobs before it and the jobs after it, nearest first, at most `MAX_DRAWN` in all."""
    focus = with_dependants(client, info.id)
    seen: dict[str, JobInfo] = {info.id: focus}
    ahead = deque([focus])
    arrows: set[Arrow] = set()
    truncated = False
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
                truncated = True
                continue
            seen[job] = with_dependants(client, job)
            ahead.append(seen[job])
    boxes = {job: Box(job, known.name, known.state.value) for job, known in seen.items()}
    drawn = tuple(arrow for arrow in sorted(arrows) if arrow.before in boxes and arrow.after in boxes)
    return Graph(boxes, drawn, truncated)


def dot_of(graph: Graph, focus: str) -> str:
    """The graph in DOT. focus: id of the job that was asked about, which gets a thick border."""
    lines = [
        "digraph jobs {",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    for job, box in graph.boxes.items():
        label = f"{_dot_text(f'{job} {box.name}'.rstrip())}\\n{_dot_text(box.state)}"
        border = ", penwidth=2" if job == focus else ""
        lines.append(
            f'  "{_dot_text(job)}" [label="{label}", fillcolor="{_FILL.get(box.state, _OTHER_FILL)}"{border}];'
        )
    for arrow in graph.arrows:
        attributes = [f'label="{_dot_text(arrow.kind)}"'] if arrow.kind != "afterok" else []
        attributes += ["style=dashed"] if arrow.alternative else []
        behind = f" [{', '.join(attributes)}]" if attributes else ""
        lines.append(f'  "{_dot_text(arrow.before)}" -> "{_dot_text(arrow.after)}"{behind};')
    if graph.truncated:
        lines.append(f'  label="the nearest {MAX_DRAWN} jobs";')
    return "\n".join([*lines, "}", ""])


def mermaid_of(graph: Graph, focus: str) -> str:
    """The graph in Mermaid. focus: id of the job that was asked about, which gets a thick border."""
    lines = ["flowchart LR"]
    at = {job: f"job{number}" for number, job in enumerate(graph.boxes)}
    for job, box in graph.boxes.items():
        border = ",stroke-width:3px" if job == focus else ""
        lines.append(f'  {at[job]}["{_mermaid_text(f"{job} {box.name}".rstrip())}<br/>{_mermaid_text(box.state)}"]')
        lines.append(f"  style {at[job]} fill:{_FILL.get(box.state, _OTHER_FILL)}{border}")
    for arrow in graph.arrows:
        line = "-.->" if arrow.alternative else "-->"
        label = f'|"{_mermaid_text(arrow.kind)}"|' if arrow.kind != "afterok" else ""
        lines.append(f"  {at[arrow.before]} {line}{label} {at[arrow.after]}")
    if graph.truncated:
        lines.append(f"  %% the nearest {MAX_DRAWN} jobs")
    return "\n".join([*lines, ""])


def svg_of(graph: Graph, focus: str) -> str:
    """The graph as Graphviz draws it.

    Raises:
        SpecError: Graphviz is not installed, or cannot draw it.
    """
    import shutil
    import subprocess

    from hal.core.model.errors import SpecError

    instead = f"Mermaid needs no installation: hal graph {focus} --mermaid"
    program = shutil.which("dot")
    if program is None:
        raise SpecError("--svg needs Graphviz, and its program 'dot' is not installed", hint=f"install it; {instead}")
    try:
        drawn = subprocess.run(
            [program, "-Tsvg"], input=dot_of(graph, focus), capture_output=True, text=True, timeout=GRAPHVIZ_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise SpecError(f"Graphviz did not draw the graph within {GRAPHVIZ_TIMEOUT_S:.0f} s", hint=instead) from None
    if drawn.returncode:
        raise SpecError(f"Graphviz cannot draw the graph: {drawn.stderr.strip()}", hint=instead)
    return drawn.stdout


def _dot_text(text: str) -> str:
    """As it is written between double quotes in DOT."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _mermaid_text(text: str) -> str:
    """As it is written between double quotes in Mermaid, which reads entities behind `#`."""
    return "".join(_MERMAID_ENTITIES.get(letter, letter) for letter in printable(text))
