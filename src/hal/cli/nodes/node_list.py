"""`hal nodes`, `hal node list`, `hal node show`: what nodes there are, and what of them is free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import NodeInfo

AFTER = "GPU"
"""Behind this column comes one for each other resource that a node has."""
COLUMNS = ("NAME", "STATE", "CPU", "MEMORY", "GPU", "RUNNING", "LABELS", "REASON")


@command(
    "nodes",
    output=True,
    examples="""
    hal nodes              # used/total of each resource
    hal nodes -o json
    """,
)
@click.argument("names", metavar="[NODE]...", nargs=-1)
@pass_screen
def nodes(screen: Screen, names: Sequence[str]) -> None:
    """The table shows used/total of each resource. If NODEs are named, they are shown in full."""
    _print_nodes(screen, names)


@command("list", output=True, examples="hal node list")
@pass_screen
def list_nodes(screen: Screen) -> None:
    """List nodes and their resources; the same as `hal nodes`."""
    _print_nodes(screen, ())


@command(
    "show",
    output=True,
    examples="""
    hal node show n1
    hal node show n1 --devices   # sockets, NUMA nodes, caches, GPUs and their links
    hal node show n1 -o yaml
    """,
)
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.option("--devices", is_flag=True, help="Draw what is inside: sockets, NUMA nodes, caches, GPUs and their links.")
@pass_screen
def show_nodes(screen: Screen, names: Sequence[str], devices: bool) -> None:
    """Show nodes in full: hardware, labels, and why a node is closed."""
    if devices:
        _draw_devices(screen, names)
    else:
        _print_nodes(screen, names)


def _draw_devices(screen: Screen, names: Sequence[str]) -> None:
    """Draw the inside of each node, as its agent reported it."""
    from hal.cli.nodes.device_tree import device_lines

    found = [screen.client.node(name) for name in names]

    def render() -> None:
        for node in found:
            for line in device_lines(node.name, node.facts):
                screen.line(line)

    screen.show(found, render)


def _print_nodes(screen: Screen, names: Sequence[str]) -> None:
    """Print all nodes, or those named with their details."""
    from hal.cli.nodes.node_details import details

    found = [screen.client.node(name) for name in names] if names else screen.client.nodes()

    def render() -> None:
        _print_table(screen, found)
        for node in found if names else ():
            screen.line()
            screen.fields({"NODE": node.name, **details(node)})

    screen.show(found, render)


def _print_table(screen: Screen, found: Sequence[NodeInfo]) -> None:
    from hal.cli.kit.formats import resources_of, used
    from hal.core.model.facts import AUTOMATIC
    from hal.core.model.taint import taint_text

    named = resources_of(node.capacity for node in found)
    at = COLUMNS.index(AFTER) + 1
    tainted = any(node.taints for node in found)
    screen.table(
        (*COLUMNS[:at], *(name.upper() for name in named), *COLUMNS[at:-1], *["TAINTS"] * tainted, *COLUMNS[-1:]),
        [
            (
                node.name,
                node.state.value,
                *(used(node.capacity, node.free, resource) for resource in ("cpu", "memory", "gpu", *named)),
                str(node.running),
                ",".join(f"{key}={value}" for key, value in node.labels.items() if not key.startswith(AUTOMATIC)),
                *[",".join(taint_text(*taint) for taint in sorted(node.taints.items()))] * tainted,
                node.reason,
            )
            for node in found
        ],
    )
