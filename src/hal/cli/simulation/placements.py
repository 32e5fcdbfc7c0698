"""`hal simulate --topology`: the nodes of a file with their domains, and the placements that are compared on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hal.cli.simulation.policy_names import MAX_POLICIES, Entry
from hal.core.model.errors import SpecError, shown
from hal.core.model.topology.packing import packing_of

if TYPE_CHECKING:
    from rich.table import Table

    from hal.daemons.twin.gang_domains import GangFigures
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.site_admission import Site

COMPACT: Final = "compact"
"""On as few domains as hold a job, as a site with a topology has it."""
FIRST_FIT: Final = "first-fit"
"""By the order of nodes, or the policy's scores, as without a topology."""
PLACEMENTS: Final = (COMPACT, FIRST_FIT)


def read_placements(text: str | None) -> tuple[str, ...]:
    """The placements that an option names; () where it is not given: as each policy says.

    Raises:
        click.BadParameter: it names another one.
    """
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in PLACEMENTS:
            raise click.BadParameter(
                f"unknown placement {name!r}; valid are {', '.join(PLACEMENTS)}", param_hint="--placement"
            )
    return names


def machine_of(file: Path, cpus_per_node: int, within: str | None, pack: str | None) -> Machine:
    """The nodes that a file of a topology names.

    Raises:
        SpecError: it cannot be read, there is a mistake in it, it names no node, or has no such level; or `pack` is not
            LEVEL:TIME in whole seconds.
    """
    from hal.daemons.twin.machine import Machine
    from hal.runtime.topology_file import read_topology

    level, pack_ms = packing_of(pack) if pack is not None else (within or "", 0)
    if pack_ms % 1_000:
        raise SpecError(f"pack: '{shown(str(pack))}' has no whole seconds", hint="logs know nothing finer")
    return Machine.of_topology(read_topology(Path.cwd(), str(file)), cpus_per_node, level, pack_ms)


def entries_with(entries: Sequence[Entry], placements: tuple[str, ...]) -> list[Entry]:
    """Each of these policies, none of which is a file, under each placement.

    Raises:
        click.BadParameter: too many replays.
    """
    from msgspec.structs import replace

    from hal.daemons.twin.named_policies import NamedPolicy

    if not placements:
        return list(entries)
    _check_count(len(entries) * len(placements))
    found = []
    for entry in entries:
        for placement in placements:
            name = _name(entry.name, placement, placements)
            engine = replace(entry.policy.engine, compact=placement == COMPACT)
            found.append(Entry(name, NamedPolicy(name, engine)))
    return found


def sites_with(sites: list[tuple[str, Site]], placements: tuple[str, ...]) -> list[tuple[str, Site]]:
    """Each site under each placement.

    Raises:
        click.BadParameter: too many replays.
    """
    from msgspec.structs import replace

    if not placements:
        return sites
    _check_count(len(sites) * len(placements))
    found = []
    for file, site in sites:
        for placement in placements:
            engine = replace(site.engine, compact=placement == COMPACT)
            found.append((file, replace(site, label=_name(site.label, placement, placements), engine=engine)))
    return found


def _name(name: str, placement: str, placements: tuple[str, ...]) -> str:
    return name if len(placements) == 1 else f"{name}-{placement}"


def _check_count(count: int) -> None:
    if count > MAX_POLICIES:
        raise click.BadParameter(f"{count} replays; at most {MAX_POLICIES} at once", param_hint="--placement")


def add_rows(table: Table, gangs: Sequence[GangFigures | None]) -> None:
    """Add the mean number of domains of each level that jobs of several nodes were on."""
    first = gangs[0]
    for level in first.domains if first is not None else ():
        table.add_row(f"{level} domains of a gang", *(f"{one.domains[level]:,.2f}" for one in gangs if one is not None))


def as_plain(gangs: GangFigures | None) -> dict[str, Any]:
    """The same for --json; {} without a topology."""
    return {} if gangs is None else {"gangs": gangs.as_dict()}
