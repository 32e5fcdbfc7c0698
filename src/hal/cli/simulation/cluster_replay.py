"""`hal simulate --cluster`: jobs that say what they ask for, on the nodes of a file, under each policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hal.cli.kit.screen import Screen
from hal.cli.simulation.compiled_kernels import note_compilation
from hal.cli.simulation.job_file import read_cluster, read_jobs
from hal.cli.simulation.placements import sites_with
from hal.cli.simulation.policy_names import Entry
from hal.cli.simulation.site_policies import Wanted, compare, read_sites, with_built_in


def compare_on_cluster(
    screen: Screen,
    cluster: Path,
    jobs: str,
    entries: Sequence[Entry],
    placements: tuple[str, ...],
    first: int | None,
    scale_arrivals: float,
    wanted: Wanted,
) -> None:
    """Read both files, replay under all of these, and print what came of it.

    Args:
        jobs: the file of the jobs; '-' is standard input.
    Raises:
        HALError: a file cannot be used; the error names it.
    """
    from hal.core.model.devices import GPU, GPU_ISLAND, WHOLE

    machine = read_cluster(cluster)
    stdin = jobs == "-"
    log, load, people = read_jobs(
        "standard input" if stdin else jobs, sys.stdin.buffer if stdin else None, first, scale_arrivals
    )
    files = tuple(entry.name for entry in entries if entry.is_file)
    asked = [request for spec in load.asked for request in (spec.request, *(group.request for group in spec.groups))]
    parts = any(request.get(GPU, 0) % WHOLE for request in asked)
    islands = any(GPU_ISLAND in request for request in asked)
    sites = with_built_in(entries, read_sites(files), people.queues, gpu_parts=parts, gpu_islands=islands)
    note_compilation(screen)
    compare(screen, log, load, machine, sites_with(sites, placements), wanted, people)
