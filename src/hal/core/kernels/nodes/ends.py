"""When running attempts are planned to end: a tree by planned end, filled when somebody asks.

Pure. Most short tasks are over before a reservation asks when room comes, so an attempt that was opened since then
waits in a list (T_LEFT of its node is -2 less its place there) and leaves it at no cost. Who asks enters the list in
the order of ends: one after the other goes down almost the same path of a tree that no cache holds.
"""

from __future__ import annotations

from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    INF,
    M_END_ROOT,
    M_UNLISTED,
    R_END,
    R_JOB,
    R_TASK,
    T_LEFT,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import sort_many
from hal.core.kernels.structures.treap import tree_build, tree_insert, tree_node, tree_remove


@inner
def add_end(t: Tables, run: int) -> None:
    """Note when a run is planned to end, if ever."""
    if t.runs[run, R_END] < INF:
        place = t.meta[M_UNLISTED]
        t.unlisted[1, place] = run
        t.ends[run, T_LEFT] = -2 - place
        t.meta[M_UNLISTED] = place + 1


@inner
def drop_end(t: Tables, run: int) -> None:
    """Forget when a run is planned to end."""
    if t.runs[run, R_END] >= INF:
        return
    if t.ends[run, T_LEFT] >= -1:
        t.meta[M_END_ROOT] = tree_remove(t.ends, t.meta[M_END_ROOT], run, t.path)
        return
    place = -2 - t.ends[run, T_LEFT]
    t.meta[M_UNLISTED] -= 1
    last = t.unlisted[1, t.meta[M_UNLISTED]]
    t.unlisted[1, place] = last
    t.ends[last, T_LEFT] = -2 - place
    t.ends[run, T_LEFT] = -1


@inner
def ends_root(t: Tables) -> int:
    """The root of the tree by planned end, with all that run."""
    count = t.meta[M_UNLISTED]
    if count > 0:
        for k in range(count):
            run = t.unlisted[1, k]
            t.unlisted[0, k] = t.runs[run, R_END]
            tree_node(t.ends, run, t.runs[run, R_END], t.runs[run, R_JOB], t.runs[run, R_TASK], 0)
        sort_many(t.unlisted[0], t.unlisted[1], count, t.path)
        if t.meta[M_END_ROOT] < 0:
            t.meta[M_END_ROOT] = tree_build(t.ends, t.unlisted[1], count, t.path)
        else:
            for k in range(count):
                t.meta[M_END_ROOT] = tree_insert(t.ends, t.meta[M_END_ROOT], t.unlisted[1, k], t.path)
        t.meta[M_UNLISTED] = 0
    return int(t.meta[M_END_ROOT])
