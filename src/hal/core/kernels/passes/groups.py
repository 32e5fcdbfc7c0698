"""Classes of jobs with several groups of nodes: what is asked of a class is asked of each of its groups.

Pure. A class says which one is that of the next group (C_NEXT); nearly always there is none. The tasks of the other
groups wait outside of buckets, and start with the first one's alone.
"""

from __future__ import annotations

from hal.core.kernels.passes.domain_placing import window
from hal.core.kernels.rules.booked import booked_window, waits_for_booking
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    C_NEXT,
    C_NODES,
    C_SHAPE,
    E_FIRST,
    E_JOB,
    E_SIBLING,
    INF,
    MAX_GROUPS,
    S_EVER,
    S_FIT,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.slots import find_one


@inner
def next_group(t: Tables, class_id: int) -> int:
    """The class of the next group of a job, -1 behind the last one."""
    return int(t.classes[class_id, C_NEXT] - 1)


@inner
def fits_ever(t: Tables, class_id: int) -> bool:
    """Whether, group by group, enough nodes that are up could hold a class when they are empty."""
    for _ in range(MAX_GROUPS):
        if t.shapes[t.classes[class_id, C_SHAPE], S_EVER] < t.classes[class_id, C_NODES]:
            return False
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return True


@inner
def class_window(t: Tables, class_id: int) -> int:
    """The longest planned time of a class that may start now, as `window`; of groups an upper bound."""
    longest = INF
    for _ in range(MAX_GROUPS):
        longest = min(longest, window(t, t.classes[class_id, C_SHAPE], t.classes[class_id, C_NODES]))
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return int(longest)


@inner
def class_booked_window(t: Tables, class_id: int) -> int:
    """The longest walltime that bookings leave a class now, as `booked_window`."""
    longest = INF
    for _ in range(MAX_GROUPS):
        longest = min(longest, booked_window(t, t.classes[class_id, C_SHAPE], t.classes[class_id, C_NODES]))
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return int(longest)


@inner
def class_waits_for_booking(t: Tables, class_id: int, now: int, wall: int) -> bool:
    """Whether the time of its booking keeps some group from starting."""
    for _ in range(MAX_GROUPS):
        if waits_for_booking(t, t.classes[class_id, C_SHAPE], t.classes[class_id, C_NODES], now, wall):
            return True
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return False


@inner
def class_short(t: Tables, class_id: int) -> int:
    """How many nodes lack now, group by group."""
    short = 0
    for _ in range(MAX_GROUPS):
        short += max(t.classes[class_id, C_NODES] - t.shapes[t.classes[class_id, C_SHAPE], S_FIT], 0)
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return int(short)


@inner
def count_groups(t: Tables, class_id: int) -> int:
    """How many groups a job has whose first one is of a class."""
    groups = 0
    for _ in range(MAX_GROUPS):
        groups += 1
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return groups


@inner
def nodes_of_groups(t: Tables, class_id: int) -> int:
    """How many nodes all groups have."""
    nodes = 0
    for _ in range(MAX_GROUPS):
        nodes += t.classes[class_id, C_NODES]
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return int(nodes)


@inner
def entry_of_group(t: Tables, entry: int, group: int) -> int:
    """The entry of a group of the job whose first group's entry this is; -1: it is not there."""
    job = t.entries[entry, E_JOB]
    task = t.entries[entry, E_FIRST] + group
    slot = find_one(t.job_index, t.entries, E_JOB, job)
    tried = 0
    while leads_on(t, slot, tried, t.entries.shape[0]) and t.entries[slot, E_FIRST] != task:
        tried += 1
        slot = t.entries[slot, E_SIBLING]
    return int(slot)


@inner
def all_groups_wait(t: Tables, entry: int, class_id: int) -> bool:
    """Whether each group of a job waits with the first one."""
    for group in range(1, count_groups(t, class_id)):  # noqa: SIM110 - numba
        if entry_of_group(t, entry, group) < 0:
            return False
    return True
