"""`hal simulate --topology`: the nodes of a file with their domains, and the placements that are compared on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.simulation.policy_names import MAX_POLICIES, Entry
from hal.core.model.errors import SpecError, shown
from hal.core.model.topology.packing import packing_of

if TYPE_CHECKING:
    from rich.table import Table

    from hal.daemons.twin.extensions import ExtensionFigures
    from hal.daemons.twin.gang_domains import GangFigures
    from hal.daemons.twin.gpu_use import GpuFigures
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.site_admission import Site


def read_placements(text: str | None) -> tuple[str, ...]:
    """The placements that an option names; () where it is not given: as each policy says.

    Raises:
        click.BadParameter: it names another one.
    """
    if text is None:
        return ()
    from hal.cli.simulation.policy_names import load_installed
    from hal.daemons.twin.named_policies import COMPACT, PLACEMENTS, is_placement

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if not is_placement(name):
            load_installed()
        if not is_placement(name):
            raise click.BadParameter(
                f"unknown placement {name!r}; valid are {', '.join(PLACEMENTS)}, best-fit, an installed Score, and "
                f"either of these behind {COMPACT}+",
                param_hint="--placement",
            )
    return names


def machine_of(
    file: Path, cpus_per_node: int, within: str | None, pack: str | None, spread: str | None = None
) -> Machine:
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
    return Machine.of_topology(read_topology(Path.cwd(), str(file)), cpus_per_node, level, pack_ms, spread or "")


def entries_with(entries: Sequence[Entry], placements: tuple[str, ...]) -> list[Entry]:
    """Each of these policies, none of which is a file, under each placement.

    Raises:
        click.BadParameter: too many replays.
    """
    from hal.daemons.twin.named_policies import NamedPolicy, placed

    if not placements:
        return list(entries)
    _check_count(len(entries) * len(placements))
    found = []
    for entry in entries:
        for placement in placements:
            name = _name(entry.name, placement, placements)
            engine = placed(entry.policy.engine, placement)
            found.append(Entry(name, NamedPolicy(name, engine)))
    return found


def sites_with(sites: list[tuple[str, Site]], placements: tuple[str, ...]) -> list[tuple[str, Site]]:
    """Each site under each placement.

    Raises:
        click.BadParameter: too many replays.
    """
    from msgspec.structs import replace

    from hal.daemons.twin.named_policies import placed

    if not placements:
        return sites
    _check_count(len(sites) * len(placements))
    found = []
    for file, site in sites:
        for placement in placements:
            engine = placed(site.engine, placement)
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


def add_gpu_rows(table: Table, gpus: Sequence[GpuFigures | None]) -> None:
    """Add how well GPUs were used; nothing without any."""
    some = [one for one in gpus if one is not None]
    if not some:
        return
    table.add_row("GPUs allocated", *(f"{one.allocated:.1%}" for one in some))
    models = some[0].by_model
    for model in models if len(models) > 1 else ():
        table.add_row(f"  {model}", *(f"{one.by_model[model]:.1%}" for one in some))
    if any(one.allocated_in_demand is not None for one in some):
        table.add_row("GPUs allocated while jobs waited for some", *(_percent(one.allocated_in_demand) for one in some))
    if any(one.islands is not None for one in some):
        table.add_row("link islands of a start", *(_figure(one.islands) for one in some))


def add_extension_rows(table: Table, extensions: Sequence[ExtensionFigures | None]) -> None:
    """Add how far jobs grew; nothing where none may."""
    some = [one for one in extensions if one is not None]
    if some:
        table.add_row("core-hours of extensions", *(f"{one.core_hours:,.1f}" for one in some))
        table.add_row("extensions that left for others", *(f"{one.left:,}" for one in some))


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:,.2f}"


def size_of(machine: Machine) -> dict[str, Any]:
    """What --json prints of the size of its nodes."""
    if machine.cluster is None:
        return {"cpus_per_node": machine.cpus_per_node}
    return {"cluster": machine.cluster.name, "cpus": machine.cluster.cpus}
