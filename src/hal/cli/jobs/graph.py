"""`hal graph`: draw the jobs before and after a job, as text or for a drawing tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo


@command(
    "graph",
    output=True,
    examples="""
    hal graph 42                             # two trees of text
    hal graph 42 --dot | dot -Tsvg > 42.svg  # drawn by Graphviz
    hal graph 42 --mermaid > 42.mmd          # drawn by GitHub, editors and browsers
    """,
)
@click.argument("job", metavar="JOB")
@click.option("--dot", "language", flag_value="dot", help="Print the graph in DOT, the language of Graphviz.")
@click.option("--mermaid", "language", flag_value="mermaid", help="Print the graph in Mermaid.")
@pass_screen
def graph(screen: Screen, job: str, language: str | None) -> None:
    """The text shows two trees: what JOB waits for, and what waits for JOB. DOT and Mermaid show one graph."""
    from hal.core.model import parse_task_ref

    number, task = parse_task_ref(job)
    if task is not None:
        raise click.UsageError(f"'{job}' is a task, and dependencies are between jobs: hal graph {number}")
    info = screen.client.job(number).info
    if language is None:
        draw_trees(screen, info)
        return
    if screen.plain:
        raise click.UsageError(f"--{language} cannot be combined with -o or --json")
    from hal.cli.jobs.dependency_graph import dot_of, gather, mermaid_of

    found = gather(screen.client, info)
    screen.out.write((dot_of if language == "dot" else mermaid_of)(found, info.id))


def draw_trees(screen: Screen, info: JobInfo) -> None:
    """Print what a job waits for, and what waits for it, as two trees."""
    from hal.cli.jobs.dependency_tree import Drawing, title, with_dependants
    from hal.cli.kit.trees import drawn

    info = with_dependants(screen.client, info.id)
    drawing = Drawing(screen.client)
    before, after = drawing.before(info), drawing.after(info)

    def render() -> None:
        screen.line(title(info))
        for heading, branches in (("waits for", before), ("is waited for by", after)):
            if branches:
                screen.line(heading)
            for line in drawn(branches):
                screen.line(line)

    screen.show({"job": info.id, "before": before, "after": after}, render)
