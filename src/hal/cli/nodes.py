"""`hal nodes`: what there is, and what is free."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

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
    """List nodes with what is used of their resources."""
    from hal.cli.wording import used

    found = [screen.client.node(name) for name in names] if names else screen.client.nodes()

    def render() -> None:
        screen.table(
            COLUMNS,
            [
                (
                    node.name,
                    node.state.value,
                    *(used(node.capacity, node.free, resource) for resource in ("cpu", "memory", "gpu")),
                    str(node.running),
                    ",".join(f"{key}={value}" for key, value in node.labels.items()),
                    node.reason,
                )
                for node in found
            ],
        )
        for node in found:
            for remark in node.notes if names else ():
                screen.line(f"{node.name}: {remark}")

    screen.show(found, render)
