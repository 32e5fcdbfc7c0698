"""The variables by which the processes of a parallel program know their rank, and find one another.

Pure. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are those of PyTorch (`env://`), which
others read, too; JAX reads its coordinator's address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

MAX_RANKS_OF_NODE: Final = 256
"""Ranks of one launch, or of a job, on one node."""
MASTER_ADDR: Final = "MASTER_ADDR"
MASTER_PORT: Final = "MASTER_PORT"
LAUNCH_NODES: Final = "HAL_LAUNCH_NODES"
"""The nodes of a launch, in the order of its ranks."""
OF_A_RANK: Final = (
    *("HAL_RANK", "HAL_SIZE", "HAL_LOCAL_RANK", "HAL_LOCAL_SIZE"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "JAX_COORDINATOR_ADDRESS"),
)
"""What a launcher that is itself begun as a rank must not pass on."""


def numbers_of_rank(rank: int, size: int, local_rank: int, local_size: int) -> dict[str, str]:
    """Return which rank a process is, of how many, and the same among those of its node."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
    }


def variables_of_rank(
    rank: int, size: int, local_rank: int, local_size: int, *, step: Mapping[str, str], passed: Mapping[str, str]
) -> dict[str, str]:
    """Return all variables of one rank of a launch.

    Where rank 0 is follows from the launch's nodes, not from the job's: its first node need not be the job's.

    Args:
        step: the variables of the step that it is begun in.
        passed: those of the launch, which go before; a MASTER_ADDR that is not the step's is somebody's choice.
    """
    found = {
        "HAL_RANK": str(rank),
        "HAL_SIZE": str(size),
        "HAL_LOCAL_RANK": str(local_rank),
        "HAL_LOCAL_SIZE": str(local_size),
    } | numbers_of_rank(rank, size, local_rank, local_size)
    both = {**step, **passed}
    address = passed.get(MASTER_ADDR, "")
    if not address or address == step.get(MASTER_ADDR):
        address = _first_address(step, passed) or both.get(MASTER_ADDR, "")
        if address and MASTER_PORT in both:
            found[MASTER_ADDR] = address
    if address and (port := both.get(MASTER_PORT)) and "JAX_COORDINATOR_ADDRESS" not in passed:
        found["JAX_COORDINATOR_ADDRESS"] = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    if "SLURM_JOB_ID" in both:
        nodes = passed.get(LAUNCH_NODES, both.get("HAL_NODES", ""))
        found |= {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local_rank)}
        found |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), str(size))
        found |= {"SLURM_STEP_NODELIST": nodes, "SLURM_STEP_NUM_NODES": str(nodes.count(",") + 1)}
        found |= {"SLURM_NODEID": step.get("HAL_NODE_RANK", "0"), "SLURMD_NODENAME": step.get("HAL_NODE", "")}
    return found


def _first_address(step: Mapping[str, str], passed: Mapping[str, str]) -> str:
    """Where the first node of the launch is reached; empty if that is not known."""
    nodes, addresses = step.get("HAL_NODES", "").split(","), step.get("HAL_NODE_ADDRESSES", "").split(",")
    first = passed.get(LAUNCH_NODES, "").partition(",")[0]
    if first not in nodes or len(addresses) != len(nodes):
        return ""
    return addresses[nodes.index(first)]


def hostfile(nodes: Sequence[str], slots: Sequence[int], form: str) -> list[str]:
    """Return the lines of the file by which MPI's launchers learn where ranks belong.

    Args:
        slots: ranks of each node; those without any are left out.
        form: `slots` (`w1 slots=2`: Open MPI, DeepSpeed), `colon` (`w1:2`: MPICH, Intel MPI) or `lines` (`w1` twice:
            all of them, and PBS_NODEFILE).
    """
    lines: list[str] = []
    for node, count in zip(nodes, slots, strict=True):
        if form == "lines":
            lines += [node] * count
        elif count:
            lines.append(f"{node}:{count}" if form == "colon" else f"{node} slots={count}")
    return lines
