"""`hal nodes`: what there is, and what is free."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

AFTER = "GPU"
"""Behind this column comes one for each other resource that a node has."""
COLUMNS = ("NAME", "STATE", "CPU", "MEMORY", "GPU", "RUNNING", "LABELS", "REASON")


@command(
    "nodes",
    short_help="List nodes.",
    output=True,
    examples="""
    hal nodes              # used/total of each
    hal nodes n1 -o yaml   # one, with everything known about it
    """,
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@pass_screen
def nodes(screen: Screen, names: Sequence[str]) -> None:
    """List nodes with what is used of their resources: cpu, memory, gpu and whatever else they offer."""
    from hal.cli.node_details import details
    from hal.cli.wording import resources_of, used
    from hal.core.model.facts import AUTOMATIC

    found = [screen.client.node(name) for name in names] if names else screen.client.nodes()

    named = resources_of(node.capacity for node in found)
    at = COLUMNS.index(AFTER) + 1

    def render() -> None:
        screen.table(
            (*COLUMNS[:at], *(name.upper() for name in named), *COLUMNS[at:]),
            [
                (
                    node.name,
                    node.state.value,
                    *(used(node.capacity, node.free, resource) for resource in ("cpu", "memory", "gpu", *named)),
                    str(node.running),
                    ",".join(f"{key}={value}" for key, value in node.labels.items() if not key.startswith(AUTOMATIC)),
                    node.reason,
                )
                for node in found
            ],
        )
        for node in found if names else ():
            screen.line()
            screen.fields({"NODE": node.name, **details(node)})

    screen.show(found, render)
