"""`hal topology`: the tree of domains with the use of each; `hal topology check`: read a file of a topology."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, output_options, pass_screen, place_options
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.topology_calls import DomainInfo

COLUMNS = ("DOMAIN", "LEVEL", "UP", "IDLE", "CPU", "MEMORY", "GPU", "JOBS", "NODES")
LEVEL_COLUMNS = ("LEVEL", "DOMAINS", "NODES")


class TopologyGroup(NounGroup):
    """Shows the tree when no command is named."""


topology = TopologyGroup(
    "topology",
    invoke_without_command=True,
    help="UP counts the nodes that take new work, of all; IDLE those of them that hold nothing; JOBS the jobs that run "
    "there. CPU, MEMORY and GPU show used/total. The topology is declared in hal.toml: see docs/topology.md.",
    epilog="Example: hal topology; hal topology --level rack; hal topology check topology.conf",
    params=[*place_options(), *output_options()],
)


@click.option("--level", metavar="LEVEL", default="", help="Only domains of this level, with their whole names.")
@pass_screen
@click.pass_context
def show_use(context: click.Context, screen: Screen, level: str) -> None:
    """Show the domains and their use, unless a command is named."""
    if context.invoked_subcommand is not None:
        return
    from msgspec.structs import replace

    from hal.core.model.topology.tree import Topology

    found = screen.client.topology()
    domains = found.domains
    if level:
        Topology(levels=found.levels).level_index(level)
        domains = tuple(one for one in domains if one.level == level)

    def render() -> None:
        if not found.levels:
            screen.note("no topology is declared: see docs/topology.md, and [topology] in hal.toml")
            return
        names = [one.name for one in domains] if level else _tree_names(domains)
        screen.table(COLUMNS, [_row(name, one) for name, one in zip(names, domains, strict=True)])
        if found.outside:
            screen.note(f"in no domain: {_counted(found.outside)}, {found.outside_nodes}")
        if found.missing:
            screen.note(f"in the topology, and not here: {_counted(found.missing)}, {found.missing_nodes}")

    screen.show(replace(found, domains=domains), render)


def _adopt(group: TopologyGroup) -> None:
    """The options and the action of the group itself are those of `show_use`."""
    group.callback = show_use
    group.params = [*getattr(show_use, "__click_params__", [])[::-1], *group.params]


_adopt(topology)


@command(
    "check",
    output=True,
    offline=True,
    examples="""
    hal topology check site.toml                  # HAL's own format
    hal topology check /etc/slurm/topology.conf   # Slurm's; also topology.yaml
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@pass_screen
def check(screen: Screen, file: Path) -> None:
    """Read a file of a topology, and show its levels.

    Nothing is changed, and no running HAL is needed. The first mistake is the error, with its line.
    """
    from collections import Counter

    from hal.core.model.topology.tree import OUTSIDE
    from hal.runtime.topology_file import read_topology

    found = read_topology(Path.cwd(), str(file))
    domains = Counter(one.level for one in found.domains)
    nodes: Counter[int] = Counter()
    for at, count in Counter(found.places.values()).items():
        while at != OUTSIDE:
            nodes[found.domains[at].level] += count
            at = found.domains[at].parent
    levels = [
        {"level": name, "domains": domains[number], "nodes": nodes[number]} for number, name in enumerate(found.levels)
    ]

    def render() -> None:
        screen.table(LEVEL_COLUMNS, [[str(cell) for cell in one.values()] for one in levels])
        screen.note(f"{file}: no mistakes; {_counted(len(found.places))}")

    screen.show({"file": str(file), "nodes": len(found.places), "levels": levels}, render)


def _tree_names(domains: Sequence[DomainInfo]) -> list[str]:
    """What is shown of each domain's name in the tree: behind its branch, without the path above it."""
    from hal.cli.kit.trees import Branch, drawn
    from hal.core.model.topology.tree import MAX_LEVELS

    left = list(domains)[::-1]

    def taken(depth: int) -> tuple[Branch, ...]:
        found = []
        while left and left[-1].depth >= depth:
            one = left.pop()
            name = one.name.removeprefix(f"{one.parent}/") if one.parent else one.name
            found.append(Branch(name, branches=taken(one.depth + 1) if one.depth < MAX_LEVELS else ()))
        return tuple(found)

    return [line for widest in taken(0) for line in (widest.text, *drawn(widest.branches))]


def _row(name: str, one: DomainInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import used

    return (
        name,
        one.level,
        f"{one.up}/{one.nodes}",
        str(one.idle),
        *(used(one.capacity, one.free, resource) for resource in ("cpu", "memory", "gpu")),
        str(one.jobs),
        one.members,
    )


def _counted(count: int) -> str:
    from hal.core.model import plural

    return plural(count, "node")


topology.add_command(check)
